/**
 * The takeover of a lifecycle (§13.1): its epoch ends with everything that was issued in it, and the next one begins
 * under the same UID.
 *
 * In order: gate frozen under this operation · every credential row of the family revoked · `barrier` · epoch and
 * operation in one head CAS · gate reopened at the next generation. Only then can a root of the new epoch be
 * entered.
 *
 * Invariants
 * 1. The epoch is last: when it moves, nothing of the one before can be used or is connected (`barrier` throws until
 *    that is proved, and the gate stays shut).
 * 2. A completion is one operation's: whoever asked for the same epoch under another id finds a foreign one and is
 *    refused. If it had frozen the gate by then, it opens it again where it was.
 * 3. Every step may be run again under the same id, from whichever process.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Principal, dotForm } from "../protocol/base/principals.ts";
import { stepHead } from "../protocol/ledger/head-machine.ts";
import type { CredentialRow } from "../protocol/ledger/rows.ts";
import { revokeFamily } from "./family.ts";
import { demandHead, holderOf, moveGate, moveHead, readHead } from "./moves.ts";
import { readReservation } from "./reservation.ts";
import type { LedgerStore } from "./store.ts";

export type Takeover = {
  readonly principal: Principal;
  readonly uid: string;
  readonly opId: string;
  /** The epoch that is to end, as whoever asks has read it. */
  readonly fromEpoch: number;
};

/** One operation for the end of one epoch, if nobody names another. */
export const takeoverOpId = (uid: string, fromEpoch: number): string => `takeover-${uid}-${fromEpoch}`;

/**
 * Hands back the epoch that has begun. Throws `failed-precondition` for a lifecycle that is not current, or whose
 * epoch somebody else has ended; `conflict` while another operation holds the gate; and what `barrier` throws.
 */
export async function takeOver(
  store: LedgerStore,
  { principal, uid, opId, fromEpoch }: Takeover,
  barrier: (revoked: readonly CredentialRow[]) => Promise<void>,
): Promise<number> {
  await readReservation(store, uid);
  const op = { opId, kind: "takeover" } as const;
  const step = { kind: "takeover", lifecycleUid: uid, opId, fromEpoch } as const;
  const head = await readHead(store, principal);
  const before = stepHead(head?.value, step);
  if (before.kind === "refused") demandHead({ kind: "refused", now: head }, principal);
  if (before.kind === "move") {
    const frozen = await moveGate(store, uid, { to: "frozen", op });
    if (frozen.kind === "refused") throw held(principal, holderOf(frozen.now?.value));
    const now = await readHead(store, principal);
    const still = stepHead(now?.value, step);
    if (still.kind === "refused") {
      // Somebody else ended this epoch before the freeze: nothing of this operation has been done.
      await moveGate(store, uid, { to: "open", op });
      demandHead({ kind: "refused", now }, principal);
    }
    if (still.kind === "move") {
      await barrier(await revokeFamily(store, uid));
      demandHead(await moveHead(store, principal, step), principal);
    }
  }
  const opened = await moveGate(store, uid, { to: "open", op });
  if (opened.kind === "refused") throw held(principal, holderOf(opened.now?.value));
  return fromEpoch + 1;
}

function held(p: Principal, by: string): CotalError {
  return new CotalError(ErrorCode.Conflict, `the gate of ${dotForm(p)} is ${by}`, {
    outcome: Outcome.NotExecuted,
    next: "let that operation finish: cotal doctor says how",
  });
}
