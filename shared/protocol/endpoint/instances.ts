/**
 * Several instances of one of this project's daemons on the same keys, in containers for example: one lifecycle,
 * and for each instance an id of its own (decision 31).
 *
 * Invariant: the ids that a lifecycle may serve under are a closed set, so that they can be checked, and their
 * records are bounded. Two hosts that share an id, one pair in four thousand, stand by for each other.
 */
import { createHash } from "node:crypto";
import { encodeToken } from "../base/principals.ts";

const MOST = 4096;

/** The instance of this host: the same after each restart there. */
export function instanceOfHost(uid: string, host: string): string {
  return nth(uid, createHash("sha256").update(host).digest().readUInt32BE() % MOST);
}

/** May this lifecycle serve as that instance? */
export function isInstanceOf(uid: string, instanceId: string): boolean {
  if (instanceId === uid) return true;
  for (let n = 0; n < MOST; n += 1) if (nth(uid, n) === instanceId) return true;
  return false;
}

function nth(uid: string, n: number): string {
  return encodeToken(createHash("sha256").update(`instance\0${uid}\0${n}`).digest(), uid.length);
}
