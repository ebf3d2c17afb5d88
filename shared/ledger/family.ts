/**
 * The credential family of a lifecycle (§13.1): every row under its prefix, roots and what was derived from them.
 *
 * Invariants
 * 1. A row goes one way, from `active` to `revoked`, pinned to what was read; what was revoked before is handed
 *    back like the rest, because whoever enforces it may have to be told again.
 * 2. A row that can't be read, or that names another lifecycle than its key, stops the operation by its key:
 *    a family that is not known whole is not revoked.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { CredentialRow, ledgerKey } from "../protocol/ledger/rows.ts";
import { isConflict } from "./moves.ts";
import { type LedgerStore, readRow } from "./store.ts";

/** Rows that are revoked at once: a family may have thousands. */
const AT_ONCE = 64;
const ROUNDS = 8;

/** Every row of the family, revoked when this resolves. Safe to run again. */
export async function revokeFamily(store: LedgerStore, uid: string): Promise<readonly CredentialRow[]> {
  const keys = await store.keys("auth", ledgerKey.credsOf(uid));
  const rows: CredentialRow[] = [];
  for (let at = 0; at < keys.length; at += AT_ONCE) {
    rows.push(...(await Promise.all(keys.slice(at, at + AT_ONCE).map((key) => revoke(store, key, uid)))));
  }
  return rows;
}

async function revoke(store: LedgerStore, key: string, uid: string): Promise<CredentialRow> {
  for (let round = 1; ; round += 1) {
    const row = await readRow(store, "auth", key, CredentialRow);
    if (row?.value.lifecycleUid !== uid) throw foreign(key);
    const revoked = { ...row.value, state: "revoked" } as const;
    if (row.value.state === "revoked") return revoked;
    try {
      await store.cas("auth", key, revoked, row.revision);
      return revoked;
    } catch (error) {
      // An entry that is about to lose has moved it.
      if (!isConflict(error) || round === ROUNDS) throw error;
    }
  }
}

function foreign(key: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the ledger row ${key} is not one of its family`, {
    outcome: Outcome.NotExecuted,
    next: "nothing is decided on it; compare it with a backup, or restore the space",
  });
}
