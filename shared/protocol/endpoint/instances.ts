/**
 * The instances of one daemon of this project (decision 25): several processes that share a lifecycle serve side by
 * side, each under an instance id of its own, and each id outlives the process that had it.
 */
import { digestHex, digestOf } from "../base/canonical.ts";

/** Processes of one daemon that may serve at once. */
export const MOST_INSTANCES = 64;

const LENGTH = 32;

/** The id of the `n`th instance, from 0: of the first it is the daemon's own lifecycle UID. */
export function daemonInstance(uid: string, n: number): string {
  return n === 0 ? uid : digestHex(digestOf(`instance\u0000${uid}\u0000${n}`)).slice(0, LENGTH);
}

export function isInstanceOf(uid: string, instanceId: string): boolean {
  return Array.from({ length: MOST_INSTANCES }, (_, n) => n).some((n) => daemonInstance(uid, n) === instanceId);
}
