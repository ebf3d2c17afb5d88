/**
 * The membership feed of a space (§8): looks at who hears what, and writes it for people to see.
 *
 * Invariants
 * 1. It decides nothing and nobody decides by it: the two connections it works with may look, and write this bucket.
 * 2. One of several instances looks, whoever holds the lease. Two at once would write the same, each pinned to what it
 *    read.
 * 3. Whoever looks takes a twentieth of his time for it at most: a large space is looked at less often, and its view
 *    says how old it is.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import { type LeaseHolder, type LeasePlace, takeLease } from "../../../shared/broker/lease.ts";
import { keepRenewed } from "../../../shared/broker/lease-keep.ts";
import { createWriter } from "../../../shared/broker/write.ts";
import { type CotalError, toCotalError } from "../../../shared/protocol/base/errors.ts";
import { FEED_DUTY } from "../../../shared/protocol/base/names.ts";
import { type FeedEntry, channelsHeard, feedEntry } from "../../../shared/protocol/chat/membership-feed.ts";
import type { Gather } from "../../../shared/broker/gather.ts";
import { type FeedPass, createFeedBucket } from "./bucket.ts";
import { type DurableView, followDurable } from "./durable.ts";
import { type LiveView, createLive } from "./live.ts";

export type FeedEvent =
  | { readonly kind: "looked"; readonly pass: FeedPass; readonly gap: string | undefined; readonly ms: number }
  | { readonly kind: "failed"; readonly error: CotalError };

export type FeedOptions = {
  readonly space: string;
  /** A connection in the store as `membership-rw`. */
  readonly store: NatsConnection;
  /** A connection in the system account as `membership-observer`. */
  readonly gather: Gather;
  /** Public key of front. */
  readonly front: string;
  /** As whom this run takes the lease, and signs its looks. */
  readonly who: LeaseHolder;
  readonly instanceId: string;
  readonly tell: (event: FeedEvent) => void;
  /** From one look to the next, at least. */
  readonly everyMs: number;
};

export type Feed = { readonly stop: () => Promise<void> };

/** Pauses are this many times as long as the look before. */
const SPARING = 19;
/** How soon a lease that nobody holds is taken. */
const LOOK_MS = 2000;
const STOP_MS = 1500;

export function keepFeed(options: FeedOptions): Feed {
  const stopping = new AbortController();
  const running = keep(options, stopping.signal);
  return {
    stop: async () => {
      stopping.abort();
      await Promise.race([running, sleep(STOP_MS, undefined, { ref: false })]);
    },
  };
}

async function keep(options: FeedOptions, stopping: AbortSignal): Promise<void> {
  const { space, store, who, tell } = options;
  const place: LeasePlace = { space, service: "delivery", duty: FEED_DUTY };
  while (!stopping.aborted) {
    try {
      const taken = await takeLease(store, place, who);
      if (taken.kind === "held") {
        const ending = new AbortController();
        const signal = AbortSignal.any([stopping, ending.signal]);
        const renewing = keepRenewed(taken.hold, signal).finally(() => ending.abort());
        await lookAgain(options, signal);
        await renewing;
        if (taken.hold.isHeld()) await taken.hold.release().catch(() => undefined);
      }
    } catch (thrown) {
      tell({ kind: "failed", error: toCotalError(thrown) });
    }
    await pause(LOOK_MS, stopping);
  }
}

async function lookAgain(options: FeedOptions, signal: AbortSignal): Promise<void> {
  const { space, store, gather, front, instanceId, tell, everyMs } = options;
  const live = createLive({ gather, account: front, heard: channelsHeard(space), now: () => performance.now() });
  const durable = followDurable(store, space);
  const bucket = createFeedBucket(store, space, createWriter({ nc: store }));
  while (!signal.aborted) {
    const began = performance.now();
    try {
      const [seen] = await Promise.all([live(), durable.refresh()]);
      if (signal.aborted) return;
      const view = { v: 1, at: Date.now(), gap: seen.gap ?? null, by: instanceId } as const;
      const pass = await bucket.put(feedOf(seen, durable), view);
      tell({ kind: "looked", pass, gap: seen.gap, ms: performance.now() - began });
    } catch (thrown) {
      tell({ kind: "failed", error: toCotalError(thrown) });
    }
    await pause(Math.max(everyMs, SPARING * (performance.now() - began)), signal);
  }
}

type Hears = { readonly live: string[]; readonly durable: string[]; omitted: number };

/** The union by principal; of who hears nothing there is no entry. */
export function feedOf({ hearings }: LiveView, durable: Pick<DurableView, "all">): Map<string, FeedEntry> {
  const all = new Map<string, Hears>();
  const of = (id: string): Hears => {
    const hears = all.get(id) ?? { live: [], durable: [], omitted: 0 };
    all.set(id, hears);
    return hears;
  };
  for (const { id, patterns, omitted } of hearings) {
    if (patterns.length === 0 && omitted === 0) continue;
    const hears = of(id);
    for (const pattern of patterns) hears.live.push(pattern);
    hears.omitted += omitted;
  }
  for (const { id, pattern } of durable.all()) of(id).durable.push(pattern);
  return new Map(
    [...all].map(([id, { live, durable: kept, omitted }]) => [id, feedEntry(live, kept, omitted)] as const),
  );
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => undefined);
}
