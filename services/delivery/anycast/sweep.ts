/**
 * The sweep over the records of requests (§8.1): finishes what a crash has left, and removes a row a day after
 * it first found the request off the queue.
 *
 * Invariants
 * 1. A row of a queued request is never removed. Off the queue is what the leader said, or a sequence below the
 *    oldest one that the queue holds, or a stream that is gone: none of these comes back.
 * 2. A row that owes a notice stays.
 * 3. What it writes and removes is pinned to the row as it was read. Several daemons may sweep at once.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { isCode } from "../../../shared/broker/errors.ts";
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { epochToken, parseAnycastKey } from "../../../shared/protocol/chat/anycast.ts";
import type { Notices } from "./notices.ts";
import type { Requests } from "./requests.ts";
import type { AnycastStore, WalkedRow } from "./store.ts";

const SWEEP_EVERY_MS = 10 * 60_000;
export const KEPT_MS = 24 * 3600_000;
const AT_ONCE = 16;

export type SweepParts = {
  readonly store: AnycastStore;
  readonly requests: Pick<Requests, "finish">;
  readonly notices: Pick<Notices, "settle">;
  /** Epoch milliseconds. */
  readonly now: () => number;
};

export type Swept = {
  readonly rows: number;
  readonly removed: number;
  readonly unreadable: number;
  readonly failed: number;
  /** Requests that are taken and still queued, by role. */
  readonly taken: ReadonlyMap<string, number>;
  /** Of those that failed, the first. */
  readonly cause?: unknown;
};

/** One pass over every row. Throws if the walk itself fails. */
export async function sweepAnycast(parts: SweepParts): Promise<Swept> {
  const { store } = parts;
  const { created, firstSeq } = await store.queue();
  const queue = { epoch: epochToken(created), firstSeq };
  const tally = { rows: 0, removed: 0, unreadable: 0, failed: 0 };
  const taken = new Map<string, number>();
  let cause: unknown;
  const running = new Set<Promise<void>>();
  for await (const walked of store.rows()) {
    tally.rows += 1;
    const one = sweepRow(parts, queue, walked)
      .then(
        (what) => {
          if (what === "queued") countTaken(taken, walked);
          else if (what !== "kept") tally[what] += 1;
        },
        (thrown: unknown) => {
          tally.failed += 1;
          cause ??= thrown;
        },
      )
      .finally(() => running.delete(one));
    running.add(one);
    if (running.size >= AT_ONCE) await Promise.race(running);
  }
  await Promise.all(running);
  return { ...tally, taken, ...(cause === undefined ? {} : { cause }) };
}

type Queue = { readonly epoch: string; readonly firstSeq: number };

async function sweepRow(
  { store, requests, notices, now }: SweepParts,
  queue: Queue,
  { key, revision, row }: WalkedRow,
): Promise<"kept" | "queued" | "removed" | "unreadable"> {
  const place = parseAnycastKey(key);
  if (row === "unreadable" || place === undefined) return "unreadable";
  const { epoch, seq } = place;
  if (row.owed.length > 0) {
    await notices.settle(key);
    return "kept";
  }
  if (row.state === "cancelled" && row.removal === "pending") {
    await requests.finish({ key, revision, row });
    return "kept";
  }
  if (epoch === queue.epoch && seq >= queue.firstSeq && (await store.request(seq)) !== undefined) return "queued";
  try {
    if (row.offAt === undefined) {
      await store.cas(key, { ...row, offAt: now() }, revision);
      return "kept";
    }
    // A clock that was set back makes no row older.
    if (now() - row.offAt < KEPT_MS) return "kept";
    await store.remove(revision);
    return "removed";
  } catch (error) {
    if (isCode(error, ErrorCode.Conflict)) return "kept";
    throw error;
  }
}

function countTaken(taken: Map<string, number>, { row }: WalkedRow): void {
  if (row !== "unreadable" && row.state === "taken") taken.set(row.role, (taken.get(row.role) ?? 0) + 1);
}

/** A pass at once and then again and again, until told to stop. */
export function keepSweeping(
  pass: () => Promise<void>,
  everyMs = SWEEP_EVERY_MS,
): { readonly stop: () => Promise<void> } {
  const stopping = new AbortController();
  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      await pass();
      await sleep(everyMs, undefined, { signal: stopping.signal }).catch(() => undefined);
    }
  };
  const ended = run();
  return {
    stop: async () => {
      stopping.abort();
      await ended;
    },
  };
}
