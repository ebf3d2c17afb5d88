/**
 * Who writes the membership feed, and what a death or a second writer leaves (§8): one of several instances looks, and
 * whatever stands in the bucket becomes what is seen.
 */
import { join } from "node:path";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { createFeedBucket } from "../../services/delivery/feed/bucket.ts";
import { type Feed, type FeedEvent, keepFeed } from "../../services/delivery/feed/feed.ts";
import { holderOf } from "../../services/delivery/liveness/plane.ts";
import { gatherOver } from "../../shared/broker/gather.ts";
import { streamState } from "../../shared/broker/ensure.ts";
import { allRows } from "../../shared/broker/reads.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { type FeedEntry, feedEntry } from "../../shared/protocol/chat/membership-feed.ts";
import { DeliveryFile, DeliverySpaceFile } from "../../shared/trust/delivery-folder.ts";
import { readKept, trustPaths } from "../../shared/trust/folder.ts";
import { untilItEnds } from "../support/crash.ts";
import { daemonCredential, freshHolder } from "../support/holders.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";

const BUCKET = "cotal_membership_main";
const OWNER = `u_${"f".repeat(26)}`;

let space: TestSpace;
let store: NatsConnection;
beforeAll(async () => {
  space = await startSpace({ delivery: false });
  store = await space.store();
}, 180_000);
afterAll(() => space.stop());

const view = (at: number) => ({ v: 1, at, gap: null, by: "test" }) as const;
const entries = (all: Readonly<Record<string, readonly string[]>>): Map<string, FeedEntry> =>
  new Map(Object.entries(all).map(([actor, live]) => [`${OWNER}.${actor}`, feedEntry(live, [], 0)]));
async function stored(): Promise<Record<string, string[]>> {
  const rows: Record<string, string[]> = {};
  for await (const { key, kind, data } of allRows(store, BUCKET, { limit: 100 })) {
    if (key === "=view") continue;
    const value = kind === "marker" ? undefined : (JSON.parse(new TextDecoder().decode(data)) as { live: string[] });
    rows[key.split(".")[1] ?? key] = value?.live ?? ["(marker)"];
  }
  return Object.fromEntries(Object.entries(rows).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
const writing = async (): Promise<NatsConnection> =>
  space.connect(
    await daemonCredential(space, "membership-rw", "store", { ...freshHolder(OWNER, "delivery"), space: "main" }),
  );

/** A conflict is an answer here; anything else is not. */
const succeeds = (run: Promise<unknown>): Promise<boolean> =>
  run.then(
    () => true,
    (error: unknown) => {
      expect(error).toMatchObject({ code: "conflict" });
      return false;
    },
  );

describe("W8.19 the bucket becomes what is seen", () => {
  test("after a death at any write, the next pass has it whole; nothing is left of what is gone", async () => {
    const nc = await writing();
    const before = createFeedBucket(nc, "main", createWriter({ nc }));
    const wanted = entries({ a: ["x"], b: ["y", "z"], d: ["new"] });
    const { result, deaths } = await untilItEnds(async (death) => {
      // What the run before had sent may still land, and is put right.
      const old = entries({ a: ["x"], b: ["y"], c: ["gone"] });
      await until("what stood before", () => succeeds(before.put(old, view(1))));
      return createFeedBucket(nc, "main", createWriter({ nc, die: death })).put(wanted, view(2));
    });
    // A changed row, a new one, a removed one, and the view; each before and after.
    expect(deaths).toBe(8);
    expect(result).toEqual({ rows: 3, written: 2, removed: 1 });
    expect(await stored()).toEqual({ a: ["x"], b: ["y", "z"], d: ["new"] });
    expect((await streamState(store, `KV_${BUCKET}`)).messages).toBe(4);
  }, 120_000);

  test("of two that write each finds the other's work, and ends with what it has seen last", async () => {
    const [one, two] = await Promise.all([writing(), writing()]);
    const first = createFeedBucket(one, "main", createWriter({ nc: one }));
    const second = createFeedBucket(two, "main", createWriter({ nc: two }));
    const [mine, yours] = [entries({ a: ["1"], b: ["1"] }), entries({ b: ["2"], c: ["2"] })];
    for (let round = 0; round < 10; round += 1) {
      await Promise.allSettled([first.put(mine, view(round)), second.put(yours, view(round))]);
    }
    await until("the second alone converges", async () => {
      await succeeds(second.put(yours, view(99)));
      return JSON.stringify(await stored()) === JSON.stringify({ b: ["2"], c: ["2"] });
    });
    // The first one's picture is old: it reads anew instead of writing over what it has not seen.
    await until("the first alone converges", async () => {
      await succeeds(first.put(mine, view(100)));
      return JSON.stringify(await stored()) === JSON.stringify({ a: ["1"], b: ["1"] });
    });
    expect(await first.put(mine, view(101))).toEqual({ rows: 2, written: 0, removed: 0 });
  }, 120_000);
});

describe("W8.19 one of several instances", () => {
  async function instance(epoch: number): Promise<{ readonly feed: Feed; readonly looks: FeedEvent[] }> {
    const own = freshHolder(OWNER, "delivery");
    const folder = trustPaths(space.state).delivery("main");
    const { front } = readKept(join(folder, DeliveryFile.Space), (text) => DeliverySpaceFile.parse(JSON.parse(text)));
    const scope = { ...own, space: "main", frontAccount: front };
    const observer = await space.open(await daemonCredential(space, "membership-observer", "system", scope));
    const looks: FeedEvent[] = [];
    const feed = keepFeed({
      space: "main",
      store: await writing(),
      gather: gatherOver(observer),
      front,
      who: holderOf({ uid: own.holder.uid, epoch, instanceId: own.holder.uid, principal: `${OWNER}.delivery` }),
      instanceId: own.holder.uid,
      tell: (event) => looks.push(event),
      everyMs: 100,
    });
    onTestFinished(() => feed.stop());
    return { feed, looks };
  }

  test("one looks while it holds the lease; when it stops another does, soon", async () => {
    const one = await instance(1);
    await until("the first looks", () => one.looks.length > 0);
    const two = await instance(1);
    const before = one.looks.length;
    await until("the first looks on", () => one.looks.length > before + 3);
    expect(two.looks).toEqual([]);
    await one.feed.stop();
    const after = one.looks.length;
    await until("the second looks", () => two.looks.length > 2);
    expect(one.looks).toHaveLength(after);
    expect([...one.looks, ...two.looks].filter(({ kind }) => kind === "failed")).toEqual([]);
  }, 120_000);
});
