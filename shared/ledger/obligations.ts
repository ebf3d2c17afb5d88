/**
 * Acceptance obligations (§13.8, supplement D): admitting work to a lifecycle, and draining what is undecided when that
 * lifecycle ends.
 *
 * An admission: head read at the leader · row created `provisional` · the same head read again · only if it has not
 * moved, the decision may be taken: row `accepted` · what it binds is written · row `terminal`. An end has moved the
 * head before it drains, so of an admission and an end that race either the second reading sees the end, or the drain
 * sees the row.
 *
 * Invariants
 * 1. Who finds the row of another joins only if it binds the very same.
 * 2. The row is where an acceptance and its rejection meet: it moves before what it binds is written. With the write
 *    first, an end that applies it and an admission that takes itself back would both succeed.
 * 3. What was accepted and died is finished from the row: written if it is still at its base, and left if somebody has
 *    written it or overtaken it.
 * 4. A drain is over when a whole enumeration has found nothing unsettled, and not before.
 */
import { canonicalDigest } from "../protocol/base/canonical.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Principal, dotForm } from "../protocol/base/principals.ts";
import {
  type ObligationName,
  ObligationRow,
  type ObligationState,
  boundBy,
  obligationKey,
  obligationMayMove,
} from "../protocol/ledger/obligation-rows.ts";
import { isConflict, readHead } from "./moves.ts";
import { readReservation } from "./reservation.ts";
import { type LedgerStore, type Row, type Scan, createOrRead, readRow, rowOf } from "./store.ts";

type Bound = Omit<Extract<ObligationRow, { decision: "self" }>, "v" | "state" | "mappingRevision" | "policyRevision">;

/** Admits one commit for a target that is active now. Throws `expired` if it is not, or ends meanwhile. */
export async function admit(
  store: LedgerStore,
  name: ObligationName,
  target: Principal,
  bound: Bound,
): Promise<Row<ObligationRow>> {
  const mappingRevision = await activeRevision(store, target, name.target);
  if (mappingRevision === undefined) throw ended(target);
  const key = obligationKey.of(name);
  const row: ObligationRow = { v: 1, state: "provisional", mappingRevision, ...bound };
  const found = await createOrRead(store, "records", key, ObligationRow, row);
  if (canonicalDigest(boundBy(found.value)) !== canonicalDigest(boundBy(row))) {
    throw new CotalError(ErrorCode.Conflict, `${key} binds something else`, {
      outcome: Outcome.NotExecuted,
      next: "ask under another id",
    });
  }
  if (found.value.state === "rejected") throw ended(target);
  if (found.value.state !== "provisional") return found;
  if ((await activeRevision(store, target, name.target)) === mappingRevision) return found;
  await settleTo(store, key, found, "rejected");
  throw ended(target);
}

async function activeRevision(store: LedgerStore, target: Principal, uid: string): Promise<number | undefined> {
  const [head] = await Promise.all([readHead(store, target), readReservation(store, uid)]);
  return head?.value.state === "active" && head.value.lifecycleUid === uid ? head.revision : undefined;
}

/** Takes the decision that an admission allows, and writes what it binds. Throws `expired` if an end was faster. */
export async function decideSelf(store: LedgerStore, name: ObligationName, target: Principal): Promise<void> {
  const key = obligationKey.of(name);
  const found = await readRow(store, "records", key, ObligationRow);
  if (found?.value.state === "provisional") await settleTo(store, key, found, "accepted");
  const now = await readRow(store, "records", key, ObligationRow);
  if (now?.value.state !== "accepted" && now?.value.state !== "terminal") throw ended(target);
  if (now.value.state === "accepted") await apply(store, key, now);
}

/** Settles one that an end has found. Safe to run again, and beside others: the row says which way it went. */
export type Settle = (key: string, row: Row<ObligationRow>) => Promise<void>;

/** What nobody has accepted is rejected; what was accepted is written, if nobody has overtaken it. */
export function settleSelf(store: LedgerStore): Settle {
  return async (key, found) => {
    if (found.value.decision !== "self") throw undecidable(key, found.value.decision);
    return found.value.state === "accepted" ? apply(store, key, found) : settleTo(store, key, found, "rejected");
  };
}

/** Landed, or overtaken by somebody: terminal. Still at its base: written first (supplement D). */
async function apply(store: LedgerStore, key: string, found: Row<ObligationRow>): Promise<void> {
  const { value } = found;
  if (value.decision !== "self") throw undecidable(key, value.decision);
  const place = await store.read("records", value.commitKey);
  const revision = place.kind === "absent" ? 0 : place.revision;
  if (revision === value.commitBaseRevision) {
    try {
      if (revision === 0) await store.create("records", value.commitKey, value.commitValue);
      else await store.cas("records", value.commitKey, value.commitValue, revision);
    } catch (error) {
      // Somebody has written it, or something else: either way it is not at its base any more.
      if (!isConflict(error)) throw error;
    }
  }
  return settleTo(store, key, found, "terminal");
}

/** Must an end wait for it? Work that a fact has accepted is its pool's, and stays accepted. */
const isUnsettled = ({ state, decision }: ObligationRow): boolean =>
  state === "provisional" || (state === "accepted" && decision === "self");

async function settleTo(store: LedgerStore, key: string, { value, revision }: Row<ObligationRow>, to: ObligationState) {
  if (!obligationMayMove(value.state, to))
    throw new CotalError(ErrorCode.Internal, "the state machine has no such edge");
  await store.cas("records", key, { ...value, state: to }, revision).catch((error: unknown) => {
    if (!isConflict(error)) throw error;
  });
}

/** Where nothing here can decide: the end stops, and says by which row. */
export const undecided: Settle = (key, { value }) => Promise.reject(undecidable(key, value.decision));

function undecidable(key: string, decision: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the obligation ${key} is undecided (${decision})`, {
    outcome: Outcome.NotExecuted,
    next: "let the endpoint that accepted it decide, and ask again",
  });
}

/** Rounds of a drain while others decide the same rows; each round reads all of them. */
const ROUNDS = 16;

/**
 * Settles what is unsettled of one lifecycle, until an enumeration finds nothing. `ended` is where its head stands
 * that is not active any more: whoever was admitted wrote his row before it moved there.
 */
export async function drainObligations(
  store: LedgerStore,
  lifecycleUid: string,
  ended: Scan["after"],
  settle: Settle,
): Promise<void> {
  const asked = { bucket: "records", family: obligationKey.ofTarget(lifecycleUid), after: ended } as const;
  for (let round = 1; ; round += 1) {
    const unsettled = await store.scan(asked, (key, found) => {
      const row = rowOf("records", key, found, ObligationRow);
      return row !== undefined && isUnsettled(row.value) ? { key, row } : undefined;
    });
    if (unsettled.length === 0) return;
    for (const { key, row } of unsettled) await settle(key, row);
    if (round === ROUNDS) {
      throw new CotalError(ErrorCode.Unavailable, `obligations of ${lifecycleUid} come as fast as they are settled`, {
        outcome: Outcome.NotExecuted,
        next: "ask again",
      });
    }
  }
}

function ended(target: Principal): CotalError {
  return new CotalError(ErrorCode.Expired, `${dotForm(target)} is not active under this lifecycle`, {
    outcome: Outcome.NotExecuted,
    next: "address the lifecycle that the name has now",
  });
}
