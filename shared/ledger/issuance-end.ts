/**
 * The end of what was issued or derived from a source (§13.1, §13.15): a lifecycle that ends, a handle that is revoked, or an
 * issuance that others were cut from.
 *
 * Invariants
 * 1. The source's own gate is shut before its index is read: whoever comes after that loses on it.
 * 2. A whole index is read, and every row of it retired; a key in it that is none stops the end by its name.
 * 3. What was retired before is handed back like the rest where this operation did it: its holders' connections may
 *    still have to be ended.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { IssuedIndexRow, issuedKey } from "../protocol/ledger/issued-rows.ts";
import { type CredentialRow, ledgerKey } from "../protocol/ledger/rows.ts";
import {
  type HandleSource,
  type IssuedRef,
  type Source,
  chainEntry,
  indexed,
  sourceKey,
} from "../protocol/ledger/source-rows.ts";
import { atOnce } from "../broker/at-once.ts";
import { revokeOfChain, revokeRow } from "./family.ts";
import { freezeSource, moveAttempt } from "./issued-moves.ts";
import { type LedgerStore, readRow, ROWS_AT_ONCE } from "./store.ts";

/**
 * Every issuance that has this source, retired when this resolves. The credentials that went with them are handed back,
 * but for those of the source's own lifecycle, whose whole family its end has revoked.
 */
export async function retireBySource(
  store: LedgerStore,
  source: Source,
  by: string,
): Promise<readonly CredentialRow[]> {
  const keys = await store.keys("issued", issuedKey.ofSource(source));
  const refs = await atOnce(keys, ROWS_AT_ONCE, async (key) => {
    const row = await readRow(store, "issued", key, IssuedIndexRow);
    if (row === undefined || issuedKey.bySource(source, row.value.ref) !== key) throw foreign(key);
    return (await retireOne(store, row.value.ref, by)) ? [row.value.ref] : [];
  });
  const own = source.kind === "lifecycle" ? source.uid : undefined;
  return revokeUnder(
    store,
    refs.flat().filter(({ uid }) => uid !== own),
  );
}

/** One issuance and whatever was cut from it. */
export async function retireIssuance(
  store: LedgerStore,
  ref: IssuedRef,
  by: string,
): Promise<readonly CredentialRow[]> {
  // Its own row is the gate of what is cut from it.
  const isMine = await retireOne(store, ref, by);
  const own = await revokeUnder(store, isMine ? [ref] : []);
  return [...own, ...(await retireBySource(store, { kind: "issued", ref }, by))];
}

/** True if it is this operation that ended it, now or before. */
async function retireOne(store: LedgerStore, ref: IssuedRef, by: string): Promise<boolean> {
  const { kind, now } = await moveAttempt(store, ref, { to: "retired", by });
  // The intent comes before the index: a key without one is of no issuance.
  if (kind === "refused") throw foreign(issuedKey.attempt(ref));
  return now.value.state === "retired" && now.value.by === by;
}

/** The credentials that were released under these, one walk over each holder's family. */
async function revokeUnder(store: LedgerStore, refs: readonly IssuedRef[]): Promise<readonly CredentialRow[]> {
  const rows: CredentialRow[] = [];
  for (const [uid, generations] of Map.groupBy(refs, (ref) => ref.uid)) {
    const entries = new Set(generations.map(({ generation }) => chainEntry.issued(generation)));
    rows.push(...(await revokeOfChain(store, uid, entries)));
  }
  return rows;
}

/**
 * A handle and whatever was redeemed or issued under it or under any of its descendants, revoked when this resolves:
 * each names its whole lineage. Their holders' connections are still to be ended.
 */
export async function revokeHandle(store: LedgerStore, handle: HandleSource): Promise<readonly CredentialRow[]> {
  await freezeSource(store, handle);
  const keys = await store.keys("auth", sourceKey.indexOf(handle));
  const derived = await atOnce(keys, ROWS_AT_ONCE, (key) => {
    const named = indexed(handle, key);
    if (named === undefined) throw foreign(key);
    return revokeRow(store, ledgerKey.cred(named.uid, named.credentialId), named.uid);
  });
  const issued = await retireBySource(store, handle, `revoked-${handle.issuerKeyId}.${handle.id}`);
  return [...derived, ...issued];
}

function foreign(key: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the ledger row ${key} is none of its index`, {
    outcome: Outcome.NotExecuted,
    next: "nothing is decided on it; compare it with a backup, or restore the space",
  });
}
