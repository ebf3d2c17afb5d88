/**
 * Pruning of native-key evidence (§13.1): each connection leaves a `natkey.` row, and nobody needs it once
 * the JWT that it tells of has ended.
 *
 * Invariants
 * 1. Only who holds the plane's claim removes, and only a row whose `exp` and the clock tolerance have
 *    passed, by a purge marker pinned to the sequence that was read. A row that moved meanwhile stays.
 * 2. The walk is by leader reads in the order of writes, in bounded batches with a pause between them; the
 *    look at the start is bounded too, and removes nothing.
 * 3. A row that is no evidence ends everything: the start fails, a running plane is fenced. Nothing behind
 *    it is removed, for whoever wrote it may have written more.
 * 4. Evidence of a service stays whatever its `exp` says: only its retirement may end it, which is not
 *    built. It is counted apart.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { parseJson } from "../../../shared/protocol/base/json.ts";
import type { BucketRow, RowPage } from "../../../shared/broker/reads.ts";
import { CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";
import type { RandomBytes } from "../../../shared/protocol/base/principals.ts";
import { EvidenceRow, userKeyOf } from "../../../shared/protocol/ledger/actor-rows.ts";

export type Evidence = {
  /** Rows of the family in the order of their writes, from a sequence on, by leader reads. */
  readonly page: (fromSeq: number | undefined, limit: number) => Promise<RowPage>;
  /** Throws `conflict` unless the key's row is the one at this sequence. */
  readonly purge: (userKey: string, seq: number) => Promise<unknown>;
};

export type PruneEvent =
  | { readonly kind: "batch"; readonly seen: number; readonly pruned: number }
  /** All rows were met once: how many are a service's, and for how long the oldest of the others was over. */
  | { readonly kind: "walked"; readonly service: number; readonly oldestExpiredSeconds: number }
  /** This walk ended early; the next one begins anew. */
  | { readonly kind: "failed"; readonly cause: unknown }
  /** Nothing is walked here any more. */
  | { readonly kind: "stopped" };

export type PruneParts = {
  readonly space: string;
  readonly evidence: Evidence;
  readonly holdsPlane: () => boolean;
  /** A row that is no evidence was met: the plane must end. Told once, and nothing is removed after it. */
  readonly onBadRow: (cause: CotalError) => void;
  readonly onEvent: (event: PruneEvent) => void;
  /** Epoch milliseconds. */
  readonly now: () => number;
  readonly random: RandomBytes;
  /** About so long from one walk to the next. */
  readonly everyMs?: number;
};

/** A row outlives its JWT by this much: the broker ends connections by a clock of its own. */
export const TOLERANCE_SECONDS = 60;
/** Rows of one batch: reads one after another, then the purges at once. */
export const BATCH_ROWS = 256;
/** Rows that the look at the start may read. */
export const CHECK_ROWS = 2048;
/** Leaves the broker to others between two batches. Over 1,000 rows a second pass all the same. */
const PAUSE_MS = 100;
const EVERY_MS = 5 * 60_000;
/** Several spaces, and several planes, must not walk in step. */
const JITTER = 0.2;

type Read =
  | { readonly kind: "evidence"; readonly userKey: string; readonly seq: number; readonly exp: number }
  | { readonly kind: "service" }
  | { readonly kind: "marker" };

/** The look at the start: throws `failed-precondition` for the first row that is no evidence. */
export async function checkEvidence({ space, evidence }: Pick<PruneParts, "space" | "evidence">): Promise<void> {
  let cursor: number | undefined;
  for (let left = CHECK_ROWS; left > 0; left -= BATCH_ROWS) {
    const page = await evidence.page(cursor, Math.min(left, BATCH_ROWS));
    for (const row of page.rows) read(row, space);
    if (page.cursor === undefined) return;
    ({ cursor } = page);
  }
}

/** Walks at once, and again and again, until stopped. */
export function keepPruning(parts: PruneParts): { readonly stop: () => Promise<void> } {
  const stopping = new AbortController();
  const ended = run(parts, stopping.signal);
  return {
    stop: async () => {
      stopping.abort();
      await ended;
      parts.onEvent({ kind: "stopped" });
    },
  };
}

async function run(parts: PruneParts, stopping: AbortSignal): Promise<void> {
  while (!stopping.aborted) {
    try {
      await walk(parts, stopping);
    } catch (cause) {
      if (cause instanceof BadRow) return parts.onBadRow(cause);
      parts.onEvent({ kind: "failed", cause });
    }
    await pause(jittered(parts), stopping);
  }
}

async function walk(parts: PruneParts, stopping: AbortSignal): Promise<void> {
  let cursor: number | undefined;
  let service = 0;
  let oldestExpiredSeconds = 0;
  while (!stopping.aborted && parts.holdsPlane()) {
    const page = await parts.evidence.page(cursor, BATCH_ROWS);
    const now = Math.floor(parts.now() / 1000);
    const rows = page.rows.map((row) => read(row, parts.space)).filter(({ kind }) => kind !== "marker");
    const over = rows.flatMap((row) => (row.kind === "evidence" && row.exp + TOLERANCE_SECONDS <= now ? [row] : []));
    service += rows.filter(({ kind }) => kind === "service").length;
    for (const { exp } of over) oldestExpiredSeconds = Math.max(oldestExpiredSeconds, now - exp);
    const pruned = await Promise.all(over.map(({ userKey, seq }) => purge(parts.evidence, userKey, seq)));
    parts.onEvent({ kind: "batch", seen: rows.length, pruned: pruned.filter(Boolean).length });
    if (page.cursor === undefined) return parts.onEvent({ kind: "walked", service, oldestExpiredSeconds });
    ({ cursor } = page);
    await pause(PAUSE_MS, stopping);
  }
}

/** `false` for a row that somebody wrote meanwhile: it stays. */
async function purge(evidence: Evidence, userKey: string, seq: number): Promise<boolean> {
  try {
    await evidence.purge(userKey, seq);
    return true;
  } catch (error) {
    if (error instanceof CotalError && error.code === ErrorCode.Conflict) return false;
    throw error;
  }
}

/** Throws `BadRow` for a row that is no evidence of this space. */
function read({ key, seq, kind, data }: BucketRow, space: string): Read {
  if (kind === "marker") return { kind };
  const bad = (why: string): BadRow => new BadRow(space, key, why);
  const userKey = userKeyOf(key);
  if (userKey === undefined) throw bad("its key is no user key");
  const row = EvidenceRow.safeParse(parseJson(data)).data;
  if (row === undefined) throw bad("it does not parse");
  if (row.space !== space) throw bad("it is of another space");
  if (!("service" in row)) return { kind: "evidence", userKey, seq, exp: row.exp };
  if (row.service.connection.userNkey !== userKey) throw bad("its connection has another key");
  return { kind: "service" };
}

class BadRow extends CotalError {
  constructor(space: string, key: string, why: string) {
    super(ErrorCode.FailedPrecondition, `the evidence row ${key} of space ${space} is corrupt: ${why}`, {
      next: "find out who else writes to the space's auth bucket; put a delete marker over the row, and start the auth service again",
    });
  }
}

function jittered({ random, everyMs = EVERY_MS }: PruneParts): number {
  const share = (random(1)[0] ?? 0) / 255;
  return everyMs * (1 - JITTER + 2 * JITTER * share);
}

async function pause(ms: number, stopping: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal: stopping }).catch(() => undefined);
}
