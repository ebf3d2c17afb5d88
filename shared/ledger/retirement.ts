/**
 * The end of a lifecycle (§13.1), in two halves with the end of its connections between them.
 *
 * `beginRetirement`: gate frozen under this operation, which is its durable intent · head `retiring` · every
 * credential row of the lifecycle revoked, and everything that was issued from it retired; it returns the ids, which a
 * broker must refuse that asks no ledger, and who else is let in by any of them.
 * `completeRetirement`: the rows counted once more · obligations drained · the frontier recorded · `cleanUp` (durables, ACL row, exact names) ·
 * gate `retired` · head `retired`.
 *
 * Invariants
 * 1. The alias is free only at `retired`, which asserts that clean-up is done.
 * 2. Both halves may be run again under the same operation id; another operation is refused.
 * 3. A retirement freeze never reopens.
 * 4. The rows are counted after the freeze: one that is written later never releases its credential,
 *    because its gate CAS is lost.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Principal, dotForm } from "../protocol/base/principals.ts";
import { stepGate } from "../protocol/ledger/gate-machine.ts";
import { stepHead } from "../protocol/ledger/head-machine.ts";
import { FrontierRow, type GateRow, ledgerKey } from "../protocol/ledger/rows.ts";
import { holdersOf, revokeFamily } from "./family.ts";
import { retireBySource } from "./issuance-end.ts";
import { type Settle, drainObligations, undecided } from "./obligations.ts";
import { demandHead, holderOf, moveGate, moveHead, readGate, readHead } from "./moves.ts";
import { readReservation } from "./reservation.ts";
import { type LedgerStore, createOrRead } from "./store.ts";

export type Retiring = {
  readonly uid: string;
  readonly opId: string;
  readonly users: readonly string[];
  /** Holders of what was issued to others with this lifecycle for a source (§13.15): their connections must end too. */
  readonly others: readonly Principal[];
};

/**
 * The one operation that ends a managed lifecycle, whoever asks for it and however often (§13.1). A static space,
 * whose ends the trust program takes part in, draws one.
 */
export const managedRetirementOpId = (lifecycleUid: string): string => `retire-${lifecycleUid}`;

/**
 * First half. Throws `not-found` for an alias that was never active, and succeeds again for one
 * that this operation is already retiring. Of whoever means one lifecycle, and no later one of the same
 * alias, it throws `conflict` where the head names another (§13.1: a delayed end harms no successor).
 */
export async function beginRetirement(
  store: LedgerStore,
  principal: Principal,
  newOpId: string,
  meant?: string,
): Promise<Retiring> {
  const head = await readHead(store, principal);
  if (head === undefined || head.value.state === "retired") {
    throw new CotalError(ErrorCode.NotFound, `${dotForm(principal)} is not active`, {
      outcome: Outcome.NotExecuted,
      next: "cotal who lists who is there",
    });
  }
  const { lifecycleUid: uid } = head.value;
  if (meant !== undefined && meant !== uid) {
    throw new CotalError(ErrorCode.Conflict, `${dotForm(principal)} has another lifecycle by now`, {
      outcome: Outcome.NotExecuted,
      next: "nothing is left to end of the one that was meant",
    });
  }
  await readReservation(store, uid);
  const opId = await freeze(store, uid, newOpId);
  const op = { opId, kind: "retirement" } as const;
  demandHead(await moveHead(store, principal, { kind: "retire", lifecycleUid: uid, op }), principal);
  const family = await revokeFamily(store, uid);
  const issued = await retireBySource(store, { kind: "lifecycle", ...principal, uid }, opId);
  const users = [...family, ...issued].map(({ credentialId }) => credentialId);
  return { uid, opId, users, others: holdersOf(issued) };
}

/** The operation that the end runs under: this one, or the one that has begun it before. */
async function freeze(store: LedgerStore, uid: string, opId: string): Promise<string> {
  const frozen = await moveGate(store, uid, { to: "frozen", op: { opId, kind: "retirement" } });
  if (frozen.kind !== "refused") return opId;
  const gate = frozen.now?.value;
  if (gate === undefined) throw new CotalError(ErrorCode.FailedPrecondition, `lifecycle ${uid} has no issuance gate`);
  if (gate.state !== "open" && gate.op.kind === "retirement") return gate.op.opId;
  throw held(uid, gate);
}

function held(uid: string, gate: GateRow | undefined): CotalError {
  return new CotalError(ErrorCode.Conflict, `the gate of ${uid} is ${holderOf(gate)}`, {
    outcome: Outcome.NotExecuted,
    next: "let that operation finish; run the command that began it again",
  });
}

/**
 * Second half, after the broker refuses the users and has none of them connected. `settle` decides what was admitted
 * to it and is undecided; without one such an obligation stops the end.
 */
export async function completeRetirement(
  store: LedgerStore,
  principal: Principal,
  uid: string,
  opId: string,
  streams: Readonly<Record<string, number>>,
  cleanUp: () => Promise<void>,
  settle: Settle = undecided,
): Promise<void> {
  const op = { opId, kind: "retirement" } as const;
  const [head, gate] = await Promise.all([readHead(store, principal), readGate(store, uid)]);
  const free = { kind: "free", lifecycleUid: uid, op } as const;
  const retired = { to: "retired", op } as const;
  // Both last steps must be this operation's to take, or taken by it.
  if (
    head === undefined ||
    stepHead(head.value, free).kind === "refused" ||
    stepGate(gate?.value, retired).kind === "refused"
  ) {
    throw new CotalError(ErrorCode.FailedPrecondition, `${dotForm(principal)} is not being retired by this operation`, {
      outcome: Outcome.NotExecuted,
    });
  }
  // A row that an entry left which lost to the freeze and died before it took it back: it was never released.
  await revokeFamily(store, uid);
  await retireBySource(store, { kind: "lifecycle", ...principal, uid }, opId);
  // Whoever was admitted before the head moved is settled here, before any frontier closes (§13.8).
  const ended = { key: ledgerKey.head(principal), revision: head.revision };
  await drainObligations(store, uid, ended, settle);
  await createOrRead(store, "records", ledgerKey.frontier(uid), FrontierRow, { lifecycleUid: uid, opId, streams });
  await cleanUp();
  // The gate first: a retired head frees the alias, and then this operation can't be told any more.
  const closed = await moveGate(store, uid, retired);
  if (closed.kind === "refused") throw held(uid, closed.now?.value);
  demandHead(await moveHead(store, principal, free), principal);
}
