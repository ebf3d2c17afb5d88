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
import { type Principal, parseDotForm } from "../protocol/base/principals.ts";
import { CredentialRow, ledgerKey } from "../protocol/ledger/rows.ts";
import { isConflict } from "./moves.ts";
import { type LedgerStore, readRow } from "./store.ts";

/** Rows that are revoked at once: a family may have thousands. */
const AT_ONCE = 64;
const ROUNDS = 8;

/** Every row of the family, revoked when this resolves. Safe to run again. */
export async function revokeFamily(store: LedgerStore, uid: string): Promise<readonly CredentialRow[]> {
  const keys = await store.keys("auth", ledgerKey.credsOf(uid));
  return inBatches(keys, (key) => revokeRow(store, key, uid));
}

/** Those of the family whose lineage has one of these entries. */
export async function revokeOfChain(
  store: LedgerStore,
  uid: string,
  entries: ReadonlySet<string>,
): Promise<readonly CredentialRow[]> {
  const keys = await store.keys("auth", ledgerKey.credsOf(uid));
  const rows = await inBatches(keys, async (key) => {
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

/** So many at once, in their order. */
export async function inBatches<T, R>(all: readonly T[], one: (item: T) => Promise<R>): Promise<R[]> {
  const done: R[] = [];
  for (let at = 0; at < all.length; at += AT_ONCE) {
    done.push(...(await Promise.all(all.slice(at, at + AT_ONCE).map(one))));
  }
  return done;
}

/** One row of the family, revoked when this resolves. */
export async function revokeRow(store: LedgerStore, key: string, uid: string): Promise<CredentialRow> {
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
