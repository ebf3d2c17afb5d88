/** One step of an attempt, or of the gate of a handle: read at the leader, asked of its machine, written pinned (§13.15, §13.1). */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import {
  AttemptRow,
  type AttemptStep,
  IssuedEvidence,
  isSameRef,
  issuedKey,
  stepAttempt,
} from "../protocol/ledger/issued-rows.ts";
import {
  type HandleSource,
  type IssuedRef,
  SourceGateRow,
  sourceKey,
  stepSourceGate,
} from "../protocol/ledger/source-rows.ts";
import { type Stepped, move } from "./moves.ts";
import { type LedgerStore, type Row, readRow } from "./store.ts";

type Reading = Pick<LedgerStore, "read">;

export const readAttempt = (store: Reading, ref: IssuedRef): Promise<Row<AttemptRow> | undefined> =>
  own(ref, issuedKey.attempt(ref), readRow(store, "issued", issuedKey.attempt(ref), AttemptRow));

export const readEvidence = (store: Reading, ref: IssuedRef): Promise<Row<IssuedEvidence> | undefined> =>
  own(ref, issuedKey.evidence(ref), readRow(store, "issued", issuedKey.evidence(ref), IssuedEvidence));

/** A row that names another issuance than its key authorises nothing. */
async function own<T extends { readonly ref: IssuedRef }>(
  ref: IssuedRef,
  key: string,
  reading: Promise<Row<T> | undefined>,
) {
  const found = await reading;
  if (found === undefined || isSameRef(found.value.ref, ref)) return found;
  throw new CotalError(ErrorCode.FailedPrecondition, `the ledger row ${key} names another issuance`, {
    outcome: Outcome.NotExecuted,
    next: "nothing is decided on it; compare it with a backup, or restore the space",
  });
}

export function moveAttempt(store: LedgerStore, ref: IssuedRef, step: AttemptStep): Promise<Stepped<AttemptRow>> {
  const key = issuedKey.attempt(ref);
  return move(
    () => readAttempt(store, ref),
    (row) => stepAttempt(row, step),
    (row, revision) =>
      revision === undefined ? store.create("issued", key, row) : store.cas("issued", key, row, revision),
  );
}

export function freezeSource(store: LedgerStore, handle: HandleSource): Promise<Stepped<SourceGateRow>> {
  const key = sourceKey.gate(handle);
  return move(
    () => readRow(store, "auth", key, SourceGateRow),
    (row) => stepSourceGate(row, "frozen"),
    (row, revision) =>
      revision === undefined ? store.create("auth", key, row) : store.cas("auth", key, row, revision),
  );
}
