/**
 * The reservation of a UID, read by whoever acts on an ordinary lifecycle (§13.1).
 *
 * Invariant: one that is marked for service custody is refused, by its own reason, before anything is written; so is
 * one that does not parse, or that names another UID. What is made under a marked UID is its host's business alone.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { ReservationRow, isMarked, reservedUid } from "../protocol/ledger/reservation-rows.ts";
import { type UidRow, ledgerKey } from "../protocol/ledger/rows.ts";
import { type LedgerStore, type Row, createOrRead, readRow } from "./store.ts";

/** Kind of the detail that says why: the UID is a service's. */
export const SERVICE_CUSTODY = "ai.cotal.auth.service-custody";

/** The ordinary reservation of this UID, if there is one. */
export async function readReservation(store: Pick<LedgerStore, "read">, uid: string): Promise<Row<UidRow> | undefined> {
  const found = await readRow(store, "records", ledgerKey.uid(uid), ReservationRow);
  return found === undefined ? undefined : ordinary(found, uid);
}

/** Reserves it, or finds who has; never one that is marked. */
export async function reserve(store: LedgerStore, row: UidRow): Promise<UidRow> {
  const uid = row.lifecycleUid;
  return ordinary(await createOrRead(store, "records", ledgerKey.uid(uid), ReservationRow, row), uid).value;
}

function ordinary({ value, revision }: Row<ReservationRow>, uid: string): Row<UidRow> {
  if (reservedUid(value) !== uid) {
    throw new CotalError(ErrorCode.FailedPrecondition, `the ledger row ${ledgerKey.uid(uid)} names another UID`, {
      outcome: Outcome.NotExecuted,
      next: "nothing is decided on it; compare it with a backup, or restore the space",
    });
  }
  if (!isMarked(value)) return { value, revision };
  throw new CotalError(ErrorCode.FailedPrecondition, `the lifecycle UID ${uid} is reserved for service custody`, {
    outcome: Outcome.NotExecuted,
    next: "nothing was changed; only the host of service endpoints acts on it",
    details: [{ kind: SERVICE_CUSTODY }],
  });
}
