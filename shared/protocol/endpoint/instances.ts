/**
 * Several instances of one of this project's daemons on the same keys, in containers for example: one lifecycle,
 * and for each instance an id of its own (decision 31).
 *
 * Invariant: an id shows whose instance it is: its first characters are the host's, the rest is made from them
 * and the lifecycle's UID. Two hosts that share them, one pair in thirty million, stand by for each other.
 */
import { createHash } from "node:crypto";
import { encodeToken } from "../base/principals.ts";

const HOST_LENGTH = 5;

/** The instance of this host: the same after each restart there. */
export function instanceOfHost(uid: string, host: string): string {
  return instanceAt(uid, encodeToken(hash(host), HOST_LENGTH));
}

/** May this lifecycle serve as that instance? */
export function isInstanceOf(uid: string, instanceId: string): boolean {
  return instanceId === uid || instanceId === instanceAt(uid, instanceId.slice(0, HOST_LENGTH));
}

function instanceAt(uid: string, host: string): string {
  return `${host}${encodeToken(hash(`instance\0${uid}\0${host}`), uid.length - HOST_LENGTH)}`;
}

const hash = (text: string): Buffer => createHash("sha256").update(text).digest();
