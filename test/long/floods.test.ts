/**
 * One agent with a valid credential floods every rail it may use (field case 2): the others go on,
 * no direct message is lost, and nobody's memory grows without bound.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Flooder, flooder, subscribeToTheLimit } from "../support/floods.ts";
import { type Sessions, type TestSession, sessionsOf } from "../support/sessions.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";
import { heapMiB, residentMiB, sleep, unheardRejections } from "../support/vitals.ts";

/** Generous: an honest client waits no longer than this for anything, whatever the flood. */
const PATIENCE_MS = 10_000;

let space: TestSpace;
let sessions: Sessions;
let mallory: Minted;
beforeAll(async () => {
  space = await startSpace();
  sessions = sessionsOf(space);
  mallory = await space.mint({ actor: "mallory", subscribe: ["general"], publish: ["general"] });
}, 60_000);
afterAll(async () => {
  await sessions.closeAll();
  await space.stop();
});

const honest = (actor: string): Promise<TestSession> =>
  sessions.minted(
    { actor, subscribe: ["general", "quiet"], publish: ["general", "quiet"] },
    { limits: { readTimeoutMs: PATIENCE_MS } },
  );

type Served = { readonly dmMs: number[]; readonly historyMs: number[]; readonly failures: string[] };

/** Direct messages and history of honest agents, one after the other, while a flood is on. */
async function useTheSpace(alice: TestSession, shown: ReadonlySet<string>, to: string, going: () => boolean) {
  const served: Served = { dmMs: [], historyMs: [], failures: [] };
  const timed = async (into: number[], what: string, act: () => Promise<void>): Promise<void> => {
    const began = performance.now();
    try {
      await act();
      into.push(performance.now() - began);
    } catch (thrown) {
      served.failures.push(`${what}: ${String(thrown)}`);
    }
  };
  for (let number = 0; going() || number < 5; number += 1) {
    await timed(served.dmMs, "dm", async () => {
      await alice.dm(to, `probe ${number}`);
      await until(`probe ${number} is shown`, () => shown.has(`probe ${number}`), PATIENCE_MS);
    });
    await timed(served.historyMs, "history", async () => {
      const items = await alice.history("quiet", { limit: 10 });
      if (items.length !== 3) throw new Error(`${items.length} items`);
    });
    await sleep(50);
  }
  return served;
}

const worst = (times: readonly number[]): string => `${times.length}, ${Math.max(...times).toFixed(0)} ms at worst`;

const FLOODS: readonly (readonly [string, (flood: Flooder) => Promise<void>])[] = [
  ["20,000 posts", (flood) => flood.posts(20_000, "general", "bob")],
  ["5,000 history requests", (flood) => flood.historyRequests(5000, "general")],
  ["2,000 requests that are none", (flood) => flood.bogusRequests(2000)],
  ["20,000 presence records", (flood) => flood.presence(20_000)],
];

/** All floods one by one, then all at once, each on a connection of its own. */
async function floodAll(): Promise<void> {
  const floods = await Promise.all(
    FLOODS.map(async ([, run]) => {
      const flood = flooder(await space.connect(mallory), mallory);
      return () => run(flood);
    }),
  );
  for (const run of floods) await run();
  await Promise.all(floods.map((run) => run()));
}

test("floods of a valid credential: others are served, no direct message is lost, and memory is bounded", async () => {
  const rejections = unheardRejections();
  const daemon = space.provisioner.pid();
  const [alice, bob, carol] = [await honest("alice"), await honest("bob"), await honest("carol")];
  for (const text of ["one", "two", "three"]) await alice.send("quiet", text);
  // Bob reads; carol holds her inbox and does not read until the flood is over.
  const shown = new Set<string>();
  bob.onItem((item) => void (item.kind === "dm" && shown.add(item.text)));
  await carol.listen();
  for (const session of [bob, carol]) {
    await (
      await session.join("general")
    ).replayed;
  }
  const watch = bob.watchRoster(() => undefined);
  const waiting = Array.from({ length: 60 }, (_, number) => `held ${number}`);
  for (const text of waiting.slice(0, 20)) await alice.dm(carol.me.id, text);
  const heapBefore = heapMiB();

  let flooding = true;
  let residentMost = 0;
  const looking = setInterval(() => {
    residentMost = Math.max(residentMost, residentMiB(daemon));
  }, 200);
  const using = useTheSpace(alice, shown, bob.me.id, () => flooding);
  const subscribed = await subscribeToTheLimit(await space.connect(mallory), mallory, "general", 1200);
  const began = performance.now();
  const flood = floodAll();
  for (const text of waiting.slice(20, 40)) await alice.dm(carol.me.id, text);
  await flood;
  const took = (performance.now() - began) / 1000;
  await sleep(2000);
  flooding = false;
  const { dmMs, historyMs, failures } = await using;
  clearInterval(looking);
  for (const text of waiting.slice(40)) await alice.dm(carol.me.id, text);

  const got: string[] = [];
  carol.onItem((item) => void (item.kind === "dm" && got.push(item.text)));
  await until("carol has her mail", () => got.length >= waiting.length, 30_000);
  await until("nothing is left in hand", () => carol.stats().held === 0, 30_000);
  const grown = heapMiB() - heapBefore;
  console.log(
    [
      `flooded for ${took.toFixed(1)} s, ${subscribed} subscriptions`,
      `direct messages ${worst(dmMs)}`,
      `history ${worst(historyMs)}`,
      `provisioner ${residentMost.toFixed(0)} MiB at most`,
      `heap grown by ${grown.toFixed(0)} MiB`,
      `bob dropped ${bob.stats().dropped}, carol ${carol.stats().dropped}`,
    ].join("; "),
  );

  expect(failures).toEqual([]);
  expect(Math.max(...dmMs, ...historyMs)).toBeLessThan(PATIENCE_MS);
  expect(got.toSorted()).toEqual(waiting.toSorted());
  // What carol lost is live chatter, and it was counted.
  expect(carol.stats().dropped).toBeGreaterThan(0);
  // 1,000 of its credential; nats.js spends some of them itself.
  expect(subscribed).toBeGreaterThan(900);
  expect(subscribed).toBeLessThanOrEqual(1000);
  for (const session of [alice, bob, carol]) {
    expect(session.told.filter(({ type }) => type === "closed" || type === "down")).toEqual([]);
  }
  await until("the roster is current", () => watch.current());
  watch.stop();
  expect(space.provisioner.pid()).toBe(daemon);
  expect(residentMiB(daemon)).toBeGreaterThan(0);
  expect(residentMost).toBeLessThan(600);
  expect(grown).toBeLessThan(150);
  rejections.stop();
  expect(rejections.seen).toEqual([]);
}, 180_000);
