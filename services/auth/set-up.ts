/**
 * What the provisioner makes before this service can do anything: the stores of the ledger, and the
 * space's settings.
 *
 * Invariants
 * 1. Stores of another shape are refused, with the difference named (supplement H); those of an earlier
 *    version are brought up to date before.
 * 2. Clocks that are apart are told: the broker gives no reason to whom it refuses.
 * 3. The limits of connections are those of the settings row (decision H67): read at the leader, at the
 *    opening and at each refresh. A row that can't be read changes nothing.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import { type Drift, streamState, verifyStreams } from "../../shared/broker/ensure.ts";
import { parseJson } from "../../shared/protocol/base/json.ts";
import { isMarker, leaderLast } from "../../shared/broker/reads.ts";
import { spaceStreams } from "../../shared/broker/resources.ts";
import { isUpgrade } from "../../shared/broker/upgrade.ts";
import type { SpaceHooks } from "../../shared/daemon/spaces.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { SPACE_KEY } from "../../shared/protocol/chat/channel-config.ts";
import { type ConnectionLimits, SpaceSettings } from "../../shared/protocol/chat/space-settings.ts";

type Place = Pick<SpaceHooks, "space" | "signal" | "waiting">;

/** Brings stores of an earlier version up to date: these steps, or it throws. */
export type Upgrade = (steps: readonly Drift[]) => Promise<void>;

/** Waits for the ledger's stores, and proves their shape. */
export function storesAreThere(nc: NatsConnection, place: Place, upgrade: Upgrade): Promise<true> {
  const { auth, records, acl, sessions, issued, accepted } = spaceNames(place.space).bucket;
  const mine = new Set([auth, records, acl, sessions, issued, accepted].map(bucketStream));
  const specs = spaceStreams(place.space, { replicas: 1 }).filter(({ name }) => mine.has(name));
  return whenMade(place, async () => {
    // How many copies there are is the space's own choice.
    const drift = (await verifyStreams(nc, specs)).filter(({ field }) => field !== "num_replicas");
    const differing = drift.filter(({ field }) => field !== "stream");
    const steps = differing.filter((one) => isUpgrade(place.space, one));
    if (steps.length > 0 && steps.length === differing.length) {
      await upgrade(steps);
      return undefined;
    }
    const [first] = differing;
    if (first !== undefined) {
      throw new CotalError(
        ErrorCode.FailedPrecondition,
        `stream ${first.stream} has ${first.field} ${JSON.stringify(first.found)} where ${JSON.stringify(first.expected)} is required`,
        { next: "run cotal doctor; nothing is read from or written to it until it is right" },
      );
    }
    return drift.length === 0 ? true : undefined;
  });
}

/** A question of the broker that looks older than this gets no answer (`shared/trust/callout.ts`). */
const MOST_AHEAD_MS = 10_000;
/** A daemon's credential that seems to live longer by more than this gets no row (`plane/daemons.ts`). */
const MOST_BEHIND_MS = 60_000;

/** Throws where the broker's clock and this machine's are so far apart that somebody is kept out. */
export async function clocksAgree(nc: NatsConnection, space: string, now: () => number): Promise<void> {
  const asked = now();
  const { atMs } = await streamState(nc, bucketStream(spaceNames(space).bucket.auth));
  const aheadMs = (asked + now()) / 2 - atMs;
  if (aheadMs <= MOST_AHEAD_MS && aheadMs >= -MOST_BEHIND_MS) return;
  const seconds = Math.round(Math.abs(aheadMs) / 1000);
  const harm =
    aheadMs > 0
      ? `${seconds} s ahead of the broker's: nobody gets in`
      : `${seconds} s behind the broker's: daemons are refused, and who gets in is cut off too soon`;
  throw new CotalError(ErrorCode.FailedPrecondition, `the clock of this machine is ${harm}`, {
    next: "let both machines keep time by NTP",
  });
}

export type KeptLimits = {
  /** Of a connection that is made now. */
  readonly agent: () => ConnectionLimits;
  /** Reads them again. Throws where they can't be read. */
  readonly refresh: () => Promise<void>;
};

/** Waits for the space's settings, and keeps the limits that they set. */
export async function keepLimits(nc: NatsConnection, place: Place): Promise<KeptLimits> {
  let { agent } = await whenMade(place, () => readLimits(nc, place.space));
  return {
    agent: () => agent,
    refresh: async () => {
      const found = await readLimits(nc, place.space);
      if (found === undefined) throw unreadable("is gone");
      agent = found.agent;
    },
  };
}

async function readLimits(nc: NatsConnection, space: string): Promise<SpaceSettings["limits"] | undefined> {
  const { channels } = spaceNames(space).bucket;
  const entry = await leaderLast(nc, bucketStream(channels), kvKey(channels, SPACE_KEY));
  if (entry === undefined || isMarker(entry.headers)) return undefined;
  const parsed = SpaceSettings.safeParse(parseJson(entry.data));
  if (parsed.success) return parsed.data.limits;
  throw unreadable(`does not parse at ${parsed.error.issues[0]?.path.join(".") ?? "its root"}`);
}

function unreadable(why: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the settings row of the space ${why}`, {
    next: "a newer version may have written it: run that version, or restore the row",
  });
}

const MADE_WITHIN_MS = 60_000;
/** Both daemons start at once: a wait is news only when it lasts. */
const NEWS_AFTER_MS = 3_000;
const LOOK_MS = 200;
const START_IT = "start its provisioner, which makes its stores; this is tried again by itself";

async function whenMade<T>({ space, signal, waiting }: Place, look: () => Promise<T | undefined>): Promise<T> {
  const began = Date.now();
  let isTold = false;
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    const waited = Date.now() - began;
    const missing = `space ${space} has not been set up yet`;
    if (signal.aborted || waited > MADE_WITHIN_MS) {
      throw new CotalError(ErrorCode.Unavailable, missing, { next: START_IT });
    }
    if (waited > NEWS_AFTER_MS && !isTold) {
      isTold = true;
      waiting(missing, START_IT);
    }
    await sleep(LOOK_MS, undefined, { signal }).catch(() => undefined);
  }
}
