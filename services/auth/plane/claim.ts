/**
 * One authority plane per space (§13.13, supplement I): the row `plane`, and the two connections that hold it.
 *
 * The row names the plane's two scanners (`scanners.ts`). While both stand the claim is held; when one of them ends, for
 * whatever reason, this plane is over at once, with everything that it was doing, and another one is claimed from the
 * beginning.
 *
 * Invariants
 * 1. A row is taken by create or compare-and-set only, from `released`, or from `held` once both of its
 *    connections are proved gone. Live and unknown refuse, and read differently. No time-out, no
 *    heartbeat.
 * 2. Whoever finds the row held waits quietly: no connection is opened to wait.
 * 3. A clean end ends the duty, then closes the scanners, and then releases the row. A scanner that can't be closed
 *    keeps it held: whoever waits finds it alive. A release that could not be written is written at a later try.
 * 4. It is held from the row's taking on, and said to be once its duty has begun: a duty that can't begin is a
 *    failure, told once while it lasts the same.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { type LedgerStore, type Row, readRow } from "../../../shared/ledger/store.ts";
import { CotalError, ErrorCode, toCotalError } from "../../../shared/protocol/base/errors.ts";
import { type ConnectionTuple, PlaneRow, actorKey } from "../../../shared/protocol/ledger/actor-rows.ts";
import { type Liveness, ofBoth } from "./liveness.ts";

/** Why there is no claim. Each reads differently to an operator. */
export type ClaimState =
  | { readonly kind: "held"; readonly generation: number }
  /** Another plane of this space is alive. */
  | { readonly kind: "live-peer"; readonly claimId: string }
  /** Whether the holder is alive can't be told. */
  | { readonly kind: "inconclusive"; readonly claimId: string; readonly why: string }
  /** Somebody else was faster. */
  | { readonly kind: "outrun" }
  /** A scanner that held it has ended: nothing of this plane goes on. */
  | { readonly kind: "lost"; readonly cause: unknown }
  /** Let go by itself, so that its scanners get new credentials before the old ones end. */
  | { readonly kind: "let-go" }
  | { readonly kind: "failed"; readonly cause: unknown };

/** The connections opened to hold the claim. */
export type Holding = {
  readonly ledger: ConnectionTuple;
  readonly records: ConnectionTuple;
  /** The row is taken, as it stands now: nothing is scanned before. */
  readonly begin: (claimed: Row<PlaneRow>) => void;
  /** Resolves with the first fault of either of them; none comes back. */
  readonly ended: Promise<unknown>;
  /** Milliseconds until their credentials should be new ones. */
  readonly freshMs: number;
  readonly close: () => Promise<void>;
};

export type Duty = {
  readonly stop: () => Promise<void>;
  /** Resolves with its fault: what can't be done any more is held no longer. */
  readonly ended: Promise<unknown>;
};

export type ClaimParts = {
  readonly claimId: string;
  readonly ledger: LedgerStore;
  readonly livenessOf: (tuple: ConnectionTuple) => Promise<Liveness>;
  readonly hold: () => Promise<Holding>;
  readonly onState: (state: ClaimState) => void;
  /** What only the holder does; it is stopped before the claim is given up. */
  readonly whileHeld: () => Promise<Duty>;
  readonly now: () => number;
  readonly retryMs?: number;
};

export type Claim = {
  readonly held: () => boolean;
  /** Lets go, and waits until the row says so. */
  readonly stop: () => Promise<void>;
};

const RETRY_MS = 2000;

/** Claims the plane, now and whenever it becomes free, until stopped. */
export function keepClaim(parts: ClaimParts): Claim {
  const stopping = new AbortController();
  let held = false;
  let said = "";
  const say = (state: ClaimState): void => {
    held = state.kind === "held";
    // What ends because it was told to is no news.
    if (stopping.signal.aborted) return;
    // A wait is told once, not at each look.
    const news = newsOf(state);
    if (said === news && !held) return;
    said = news;
    parts.onState(state);
  };
  const take = (taken: boolean): void => {
    held = taken;
  };
  /** Ours, over, and not yet written as such: on a server that crashed nobody could prove that it is (decision 21). */
  let owed: Row<PlaneRow> | undefined;
  const give = async (taken: Row<PlaneRow>): Promise<void> => {
    owed = taken;
    if (await release(parts, taken)) owed = undefined;
  };
  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      try {
        if (owed !== undefined) await give(owed);
        if (await turn(parts, { say, take, give }, stopping.signal)) continue;
      } catch (cause) {
        say({ kind: "failed", cause });
      }
      await pause(parts.retryMs ?? RETRY_MS, stopping.signal);
    }
  };
  const ended = run();
  return {
    held: () => held,
    stop: async () => {
      stopping.abort();
      await ended;
    },
  };
}

/** What reads the same is one piece of news. */
function newsOf(state: ClaimState): string {
  if (state.kind === "failed") return `${state.kind} ${toCotalError(state.cause).message}`;
  return state.kind === "inconclusive" ? `${state.kind} ${state.why}` : state.kind;
}

type Told = {
  readonly say: (state: ClaimState) => void;
  /** Whether it is held, before anybody is told. */
  readonly take: (taken: boolean) => void;
  /** Writes that a claim is over, now or at a later try. */
  readonly give: (taken: Row<PlaneRow>) => Promise<void>;
};

/** One try: until the claim is over, or at once if it can't be had. True if it is to be claimed anew without a pause. */
async function turn(parts: ClaimParts, { say, take: hold, give }: Told, stopping: AbortSignal): Promise<boolean> {
  const found = await readRow(parts.ledger, "auth", actorKey.plane, PlaneRow);
  const obstacle = await standsInTheWay(parts, found?.value);
  if (obstacle !== undefined) say(obstacle);
  if (obstacle !== undefined || stopping.aborted) return false;
  const holding = await parts.hold();
  let taken: Row<PlaneRow> | undefined;
  try {
    taken = await take(parts, found, holding);
    if (taken === undefined) {
      say({ kind: "outrun" });
      return false;
    }
    hold(true);
    holding.begin(taken);
    const duty = await parts.whileHeld();
    say({ kind: "held", generation: taken.value.generation });
    const over = await endOf({ ...holding, ended: Promise.race([holding.ended, duty.ended]) }, stopping);
    say(over);
    await duty.stop();
    return over.kind === "let-go";
  } finally {
    // Also where the duty could not begin, or not end.
    hold(false);
    await holding.close();
    if (taken !== undefined) await give(taken);
  }
}

/** Waits until a scanner ends, or it is time to let go. */
async function endOf({ ended, freshMs }: Holding, stopping: AbortSignal): Promise<ClaimState> {
  const over = new AbortController();
  const letGo = sleep(freshMs, undefined, { signal: AbortSignal.any([stopping, over.signal]) })
    .catch(() => undefined)
    .then((): ClaimState => ({ kind: "let-go" }));
  const lost = ended.then((cause): ClaimState => ({ kind: "lost", cause }));
  try {
    return await Promise.race([lost, letGo]);
  } finally {
    over.abort();
  }
}

async function standsInTheWay(parts: ClaimParts, row: PlaneRow | undefined): Promise<ClaimState | undefined> {
  if (row?.state !== "held") return undefined;
  const { claimId } = row;
  const [ledger, records] = await Promise.all([parts.livenessOf(row.ledger), parts.livenessOf(row.records)]);
  const found = ofBoth(ledger, records);
  if (found.kind === "gone") return undefined;
  return found.kind === "live" ? { kind: "live-peer", claimId } : { kind: "inconclusive", claimId, why: found.why };
}

/** `undefined` if somebody else was faster. */
async function take(
  { ledger, claimId, now }: ClaimParts,
  found: Row<PlaneRow> | undefined,
  holding: Pick<Holding, "ledger" | "records">,
): Promise<Row<PlaneRow> | undefined> {
  const value: PlaneRow = {
    v: 1,
    generation: (found?.value.generation ?? 0) + 1,
    claimId,
    state: "held",
    ledger: holding.ledger,
    records: holding.records,
    openedAt: now(),
  };
  try {
    const revision =
      found === undefined
        ? await ledger.create("auth", actorKey.plane, value)
        : await ledger.cas("auth", actorKey.plane, value, found.revision);
    return { value, revision };
  } catch (error) {
    if (error instanceof CotalError && error.code === ErrorCode.Conflict) return undefined;
    throw error;
  }
}

/** True once it is settled: written, or another row stands there. */
async function release({ ledger }: ClaimParts, { value, revision }: Row<PlaneRow>): Promise<boolean> {
  try {
    await ledger.cas("auth", actorKey.plane, { ...value, state: "released" }, revision);
    return true;
  } catch (error) {
    return error instanceof CotalError && error.code === ErrorCode.Conflict;
  }
}

async function pause(ms: number, stopping: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal: stopping }).catch(() => undefined);
}
