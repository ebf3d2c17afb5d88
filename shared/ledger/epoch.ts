/**
 * The process epoch of a daemon's lifecycle (§13.1): one more at each start of its process, by CAS on the
 * head, so two processes of one instance never answer under one epoch. Whose epoch somebody else ends goes
 * through the barrier of a takeover (`takeover.ts`).
 */
import type { Principal } from "../protocol/base/principals.ts";
import { demandHead, moveHead } from "./moves.ts";
import { readReservation } from "./reservation.ts";
import type { LedgerStore } from "./store.ts";

/** Takes the next epoch. Throws `failed-precondition` if the lifecycle is not its alias's current one. */
export async function takeEpoch(store: LedgerStore, p: Principal, lifecycleUid: string): Promise<number> {
  await readReservation(store, lifecycleUid);
  const begun = await moveHead(store, p, { kind: "begin", lifecycleUid });
  return demandHead(begun, p).value.processEpoch;
}
