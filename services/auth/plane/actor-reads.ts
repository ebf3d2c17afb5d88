/**
 * Reading the actor ledger: one row, and the chain of rows that bound it.
 *
 * Invariant: an actor acts within every row above it as they are now. A parent that is revoked, ended or
 * narrowed bounds its children at once, whatever they were granted.
 */
import { type LedgerStore, type Row, readRow } from "../../../shared/ledger/store.ts";
import { CotalError, ErrorCode, Outcome } from "../../../shared/protocol/base/errors.ts";
import { type Principal, dotForm, samePrincipal } from "../../../shared/protocol/base/principals.ts";
import { ActorRow, actorKey } from "../../../shared/protocol/ledger/actor-rows.ts";
import { beyond } from "./envelope.ts";

/** A delegation is no deeper than this. */
export const MAX_DEPTH = 8;

/** Throws `failed-precondition` for a row that is corrupt. */
export async function readActor(ledger: LedgerStore, p: Principal): Promise<Row<ActorRow> | undefined> {
  const key = actorKey.actor(p);
  const row = await readRow(ledger, "auth", key, ActorRow);
  if (row === undefined || samePrincipal(row.value, p)) return row;
  throw new CotalError(ErrorCode.FailedPrecondition, `the ledger row ${key} names another actor`, {
    outcome: Outcome.NotExecuted,
    next: "nothing is decided on it; compare it with a backup, or restore the space",
  });
}

/** Why this row may not act now, by the rows above it; `undefined` if it may. */
export async function outOfBounds(ledger: LedgerStore, row: ActorRow): Promise<string | undefined> {
  let child = row;
  for (let depth = 0; child.parent !== undefined; depth += 1) {
    if (depth === MAX_DEPTH) return `it is delegated more than ${MAX_DEPTH} times`;
    const { lifecycleUid, ...of } = child.parent;
    const parent = (await readActor(ledger, of))?.value;
    if (parent?.state !== "active" || parent.lifecycleUid !== lifecycleUid) {
      return `${dotForm(of)}, for whom it acts, is no longer granted`;
    }
    const excess = beyond(parent, child);
    if (excess !== undefined) return `${excess}, and ${dotForm(of)}, for whom it acts, may not`;
    child = parent;
  }
  return undefined;
}
