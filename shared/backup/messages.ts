/**
 * Every message of a stream, in order, from its leader.
 *
 * Plain reads by sequence, many at once. A snapshot of the broker would be faster, but it is an image of its files:
 * it can be put back only as it is, with the creation time of a queue that must not have the old one (§8.1) and with
 * copies addressed to lifecycles that have ended (decision 32).
 *
 * Invariants
 * 1. At most `WINDOW` messages are in memory.
 * 2. A leader that is being elected costs a wait, and no message.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { MsgHdrs, NatsConnection } from "@nats-io/transport-node";
import { Match } from "@nats-io/transport-node";
import { CotalError, ErrorCode } from "../protocol/base/errors.ts";
import { type StoredEntry, leaderGet, leaderNext } from "../broker/reads.ts";
import type { Line } from "./format.ts";

const WINDOW = 64;
/** An election takes seconds. */
const PATIENCE_MS = 60_000;
const AGAIN_MS = 250;

/** What is stored from `fromSeq` to `toSeq`, both included; what was removed is left out. */
export async function* storedMessages(
  nc: NatsConnection,
  stream: string,
  fromSeq: number,
  toSeq: number,
): AsyncGenerator<StoredEntry> {
  let next = fromSeq;
  let holes = 0;
  let ahead: Promise<StoredEntry | undefined>[] = [];
  const fill = (): void => {
    while (ahead.length < WINDOW && next <= toSeq) {
      const read = patiently(() => leaderGet(nc, stream, next));
      // A failure is met when its turn comes.
      read.catch(() => undefined);
      ahead.push(read);
      next += 1;
    }
  };
  for (fill(); ahead.length > 0; fill()) {
    const entry = await ahead.shift();
    if (entry !== undefined) {
      holes = 0;
      yield entry;
      continue;
    }
    holes += 1;
    if (holes < WINDOW) continue;
    // A long hole is passed in one step.
    const at = next - ahead.length;
    const beyond = await patiently(() => leaderNext(nc, stream, ">", at));
    ahead = [];
    holes = 0;
    next = beyond?.seq ?? toSeq + 1;
  }
}

/** Runs a read again while no leader answers. */
export async function patiently<T>(read: () => Promise<T>): Promise<T> {
  const deadline = performance.now() + PATIENCE_MS;
  for (;;) {
    try {
      return await read();
    } catch (thrown) {
      const passes =
        thrown instanceof CotalError &&
        (thrown.code === ErrorCode.Unavailable || thrown.code === ErrorCode.DeadlineExceeded);
      if (!passes || performance.now() > deadline) throw thrown;
      await sleep(AGAIN_MS);
    }
  }
}

/** What the broker acts upon when it is published: of a message that is stored it says nothing any more. */
const STEERS = /^nats-/i;

export function lineOf({ seq, timeMs, subject, headers, data }: StoredEntry): Line {
  const kept = headers === undefined ? [] : headerLines(headers);
  return {
    seq,
    at: Math.max(0, Math.floor(timeMs)),
    subject,
    ...(kept.length === 0 ? {} : { headers: kept }),
    data: Buffer.from(data).toString("base64"),
  };
}

function headerLines(of: MsgHdrs): [string, string[]][] {
  return of
    .keys()
    .filter((name) => !STEERS.test(name))
    .map((name) => [name, of.values(name, Match.Exact)]);
}
