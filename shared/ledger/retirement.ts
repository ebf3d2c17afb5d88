/**
 * The end of a lifecycle (§13.1), in two halves with the broker's own revocation between them.
 *
 * `beginRetirement`: gate frozen under this operation · head `retiring` · every credential row of the
 * lifecycle revoked; it returns the user keys that the broker must refuse. `completeRetirement`: the frontier recorded ·
 * `cleanUp` (durables, ACL row, exact names) · gate `retired` · head `retired`.
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
import { gateMayMove } from "../protocol/ledger/machines.ts";
import { CredentialRow, FrontierRow, GateRow, HeadRow, ledgerKey } from "../protocol/ledger/rows.ts";
import { type LedgerStore, createOrRead, readRow } from "./store.ts";

export type Retiring = { readonly uid: string; readonly opId: string; readonly users: readonly string[] };

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
  const headKey = ledgerKey.head(principal);
  const head = await readRow(store, "records", headKey, HeadRow);
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
  const opId = await freeze(store, uid, newOpId);
  if (head.value.state === "active") {
    const op = { opId, kind: "retirement" } as const;
    await store.cas("records", headKey, { ...head.value, state: "retiring", op }, head.revision);
  }
  const users: string[] = [];
  for (const key of await store.keys("auth", ledgerKey.credsOf(uid))) users.push(await revoke(store, key));
  return { uid, opId, users };
}

async function freeze(store: LedgerStore, uid: string, newOpId: string): Promise<string> {
  const key = ledgerKey.gate(uid);
  const gate = await readRow(store, "auth", key, GateRow);
  if (gate === undefined) throw new CotalError(ErrorCode.FailedPrecondition, `lifecycle ${uid} has no issuance gate`);
  const { value } = gate;
  if (value.state !== "open" && value.op.kind === "retirement") return value.op.opId;
  if (!gateMayMove(value.state, "frozen", "retirement")) throw held(uid, value);
  // An activation that never opened its gate released nothing, and its own next step is pinned to
  // the row we replace here: whoever began it finds out (decision 6).
  if (value.state === "frozen" && value.op.kind !== "activation") throw held(uid, value);
  const op = { opId: newOpId, kind: "retirement" } as const;
  await store.cas("auth", key, { state: "frozen", generation: value.generation, op }, gate.revision);
  return newOpId;
}

function held(uid: string, gate: GateRow): CotalError {
  const by = gate.state === "open" ? "nobody" : `${gate.op.kind} ${gate.op.opId}`;
  return new CotalError(ErrorCode.Conflict, `the gate of ${uid} is ${gate.state}, held by ${by}`, {
    outcome: Outcome.NotExecuted,
    next: "let that operation finish; run the command that began it again",
  });
}

/** Revokes one row; hands back its user key, also of one that a run before this has revoked. */
async function revoke(store: LedgerStore, key: string): Promise<string> {
  const row = await readRow(store, "auth", key, CredentialRow);
  if (row === undefined) throw new CotalError(ErrorCode.Internal, `the ledger row ${key} went away`);
  if (row.value.state === "active") await store.cas("auth", key, { ...row.value, state: "revoked" }, row.revision);
  return row.value.credentialId;
}

/** Second half, after the broker refuses the users and has none of them connected. */
export async function completeRetirement(
  store: LedgerStore,
  principal: Principal,
  uid: string,
  opId: string,
  streams: Readonly<Record<string, number>>,
  cleanUp: () => Promise<void>,
): Promise<void> {
  const headKey = ledgerKey.head(principal);
  const head = await readRow(store, "records", headKey, HeadRow);
  const gateKey = ledgerKey.gate(uid);
  const gate = await readRow(store, "auth", gateKey, GateRow);
  if (
    head?.value.lifecycleUid !== uid ||
    head.value.state === "active" ||
    gate === undefined ||
    gate.value.state === "open" ||
    gate.value.op.opId !== opId ||
    gate.value.op.kind !== "retirement"
  ) {
    throw new CotalError(ErrorCode.FailedPrecondition, `${dotForm(principal)} is not being retired by this operation`, {
      outcome: Outcome.NotExecuted,
    });
  }
  await createOrRead(store, "records", ledgerKey.frontier(uid), FrontierRow, { lifecycleUid: uid, opId, streams });
  await cleanUp();
  // The gate first: a retired head frees the alias, and then this operation can't be told any more.
  if (gate.value.state === "frozen") {
    await store.cas("auth", gateKey, { ...gate.value, state: "retired" }, gate.revision);
  }
  if (head.value.state === "retiring") {
    const { op: _, ...rest } = head.value;
    await store.cas("records", headKey, { ...rest, state: "retired" }, head.revision);
  }
}
