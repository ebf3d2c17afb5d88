/**
 * The credential family of a lifecycle (§13.1): every row under its prefix, roots and what was derived from them.
 *
 * Invariants
 * 1. A row goes one way, from `active` to `revoked`, pinned to what was read; what was revoked before is handed
 *    back like the rest, because whoever enforces it may have to be told again.
 * 2. A row that can't be read, or that names another lifecycle than its key, stops the operation by its key:
 *    a family that is not known whole is not revoked.
 * 3. It is enumerated under a shut gate, and as it stood when the gate was shut or later: a row that comes after that
 *    never releases its credential.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Principal, parseDotForm } from "../protocol/base/principals.ts";
import { CredentialRow, ledgerKey } from "../protocol/ledger/rows.ts";
import { atOnce } from "../broker/at-once.ts";
import { holderOf, isConflict, readGate } from "./moves.ts";
import { type FoundRow, type LedgerStore, type Row, readRow, rowOf, ROWS_AT_ONCE } from "./store.ts";

const ROUNDS = 8;

/** Every row of the family, revoked when this resolves. Safe to run again. */
export async function revokeFamily(store: LedgerStore, uid: string): Promise<readonly CredentialRow[]> {
  const gate = await readGate(store, uid);
  if (gate === undefined || gate.value.state === "open") throw unshut(uid, holderOf(gate?.value));
  const after = { key: ledgerKey.gate(uid), revision: gate.revision };
  const rows = await store.scan({ bucket: "auth", family: ledgerKey.credsOf(uid), after }, (key, row) => ({
    key,
    ...member(key, row, uid),
  }));
  await atOnce(
    rows.filter(({ value }) => value.state === "active"),
    ROWS_AT_ONCE,
    ({ key, ...row }) => revoke(store, key, uid, row),
  );
  return rows.map(({ value }) => ({ ...value, state: "revoked" }));
}

/** Those of the family whose lineage has one of these entries. */
export async function revokeOfChain(
  store: LedgerStore,
  uid: string,
  entries: ReadonlySet<string>,
): Promise<readonly CredentialRow[]> {
  const keys = await store.keys("auth", ledgerKey.credsOf(uid));
  const rows = await atOnce(keys, ROWS_AT_ONCE, async (key) => {
    const row = await readRow(store, "auth", key, CredentialRow);
    return row?.value.sourceChain.some((entry) => entries.has(entry)) === true ? revokeRow(store, key, uid) : undefined;
  });
  return rows.filter((row) => row !== undefined);
}

/** Who holds these, each once. */
export function holdersOf(rows: readonly CredentialRow[]): readonly Principal[] {
  return [...new Set(rows.map(({ holderPrincipal }) => holderPrincipal))].map((text) => {
    const holder = parseDotForm(text);
    if (holder === undefined) throw foreign(text);
    return holder;
  });
}

/** One row of the family, revoked when this resolves. */
export async function revokeRow(store: LedgerStore, key: string, uid: string): Promise<CredentialRow> {
  const row = ofFamily(await readRow(store, "auth", key, CredentialRow), key, uid);
  await revoke(store, key, uid, row);
  return { ...row.value, state: "revoked" };
}

async function revoke(store: LedgerStore, key: string, uid: string, found: Row<CredentialRow>): Promise<void> {
  let row = found;
  for (let round = 1; row.value.state === "active"; round += 1) {
    try {
      await store.cas("auth", key, { ...row.value, state: "revoked" }, row.revision);
      return;
    } catch (error) {
      // An entry that is about to lose has moved it.
      if (!isConflict(error) || round === ROUNDS) throw error;
    }
    row = ofFamily(await readRow(store, "auth", key, CredentialRow), key, uid);
  }
}

const member = (key: string, row: FoundRow, uid: string): Row<CredentialRow> =>
  ofFamily(rowOf("auth", key, row, CredentialRow), key, uid);

function ofFamily(row: Row<CredentialRow> | undefined, key: string, uid: string): Row<CredentialRow> {
  if (row?.value.lifecycleUid === uid) return row;
  throw foreign(key);
}

function foreign(key: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the ledger row ${key} is not one of its family`, {
    outcome: Outcome.NotExecuted,
    next: "nothing is decided on it; compare it with a backup, or restore the space",
  });
}

function unshut(uid: string, is: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the gate of ${uid} is ${is}: its family is not counted`, {
    outcome: Outcome.NotExecuted,
    next: "ask again: another operation has moved it",
  });
}
