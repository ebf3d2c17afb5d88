/**
 * Three minutes of ordinary traffic while the broker and the provisioner are killed, restarted and
 * frozen by a seeded schedule. What a sender was told is stored must be there at the end; what a
 * receiver was shown, it was shown once.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { CotalError, type InboxItem } from "../../shared/client/index.ts";
import { inflict, schedule } from "../support/chaos.ts";
import { type Draw, drawFor, seeded } from "../support/seeded.ts";
import { type Sessions, type TestSession, sessionsOf } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";
import { heapMiB, sleep, unheardRejections } from "../support/vitals.ts";

const STORM_MS = 180_000;
const CHANNELS = ["general", "team.a"];
/** What an honest client may be told while parts are away; anything else is a fault. */
const HONEST = ["deadline-exceeded", "resource-exhausted", "unavailable"];

let space: TestSpace;
let sessions: Sessions;
beforeAll(async () => {
  space = await startSpace();
  sessions = sessionsOf(space);
}, 60_000);
afterAll(async () => {
  await sessions.closeAll();
  await space.stop();
});

/** One participant: its session, and what it was shown how often. */
type Part = { readonly session: TestSession; readonly shown: Map<string, number> };

type Kept = {
  /** Acknowledged direct messages: receiver, then `sender id`. */
  readonly dms: { readonly to: Part; readonly key: string }[];
  readonly posts: { readonly channel: string; readonly key: string }[];
  readonly done: Map<string, number>;
  readonly failed: Map<string, number>;
};

const count = (map: Map<string, number>, key: string): void => void map.set(key, (map.get(key) ?? 0) + 1);
const keyOf = (item: InboxItem): string => `${item.kind} ${item.from.id} ${item.id}`;

async function participant(actor: string, reading: "callback" | "iterator", draw: Draw): Promise<Part> {
  const read = ["general", "team.>", "extra"];
  const session = await sessions.minted({ actor, subscribe: read, publish: read });
  const part: Part = { session, shown: new Map() };
  const show = async (item: InboxItem): Promise<void> => {
    count(part.shown, keyOf(item));
    await sleep(draw.int(0, 10));
  };
  if (reading === "callback") session.onItem(show, { concurrency: 4 });
  else void iterate(session, show);
  for (const channel of CHANNELS) await session.join(channel);
  return part;
}

/** A reader as an agent would write it: a named failure of the inbox is read, and reading goes on. */
async function iterate(session: TestSession, show: (item: InboxItem) => Promise<void>): Promise<void> {
  for (;;) {
    try {
      for await (const item of session.inbox()) await show(item);
      return;
    } catch (thrown) {
      if (!(thrown instanceof CotalError)) throw thrown;
    }
  }
}

/** Does one thing again and again, with its failures counted by code. */
async function keepDoing(what: string, everyMs: number, record: Kept, going: () => boolean, act: () => Promise<void>) {
  const inFlight = new Set<Promise<void>>();
  while (going()) {
    const work = act()
      .then(
        () => count(record.done, what),
        (thrown: unknown) =>
          count(record.failed, `${what}: ${thrown instanceof CotalError ? thrown.code : String(thrown)}`),
      )
      .finally(() => inFlight.delete(work));
    inFlight.add(work);
    await sleep(everyMs);
  }
  await Promise.all(inFlight);
}

function traffic(parts: readonly Part[], record: Kept, draw: Draw, going: () => boolean): Promise<void>[] {
  const keep = (what: string, everyMs: number, act: () => Promise<void>) =>
    keepDoing(what, everyMs, record, going, act);
  let sent = 0;
  const senders = parts.flatMap(({ session }) => [
    keep("dm", 40, async () => {
      const to = draw.pick(parts.filter((part) => part.session !== session));
      const { id } = await session.dm(to.session.me.id, `d${(sent += 1)}`);
      record.dms.push({ to, key: `dm ${session.me.id} ${id}` });
    }),
    keep("send", 100, async () => {
      const channel = draw.pick(CHANNELS);
      const { id } = await session.send(channel, `c${(sent += 1)}`);
      record.posts.push({ channel, key: `chat ${session.me.id} ${id}` });
    }),
  ]);
  let minted = 0;
  return [
    ...senders,
    keep("history", 400, async () => {
      await draw.pick(parts).session.history(draw.pick(CHANNELS), { limit: 200 });
    }),
    keep("join and leave", 700, async () => {
      const { session } = draw.pick(parts);
      const channel = draw.pick(["extra", "team.>"]);
      await session.join(channel);
      await sleep(draw.int(0, 1000));
      await session.leave(channel);
    }),
    keep("mint", 3000, async () => {
      const actor = `guest${(minted += 1)}`;
      const { text } = await space.mint({ actor, subscribe: ["general"], publish: ["general"] });
      const guest = await sessions.own({ credentials: { kind: "static", text } });
      const { id } = await guest.send("general", actor);
      record.posts.push({ channel: "general", key: `chat ${guest.me.id} ${id}` });
      await guest.drain();
    }),
  ];
}

const answers = (): Promise<boolean> =>
  space.call("space", {}, { deadlineMs: 1000 }).then(
    () => true,
    () => false,
  );

test(
  "a storm: every acknowledged message is there, each is shown once, and nothing leaks",
  async () => {
    const draw = drawFor("storm");
    const faults = schedule(draw, STORM_MS);
    console.log(faults.map((fault) => `${fault.victim} ${fault.act} ${fault.lastsMs}`).join(", "));
    const rejections = unheardRejections();
    // The traffic's choices come from a stream of their own: its timing does not move the schedule.
    const choices = seeded(draw.seed + 1);
    const parts = [
      await participant("alice", "callback", choices),
      await participant("bob", "iterator", choices),
      await participant("carol", "callback", choices),
      await participant("dave", "iterator", choices),
    ];
    const record: Kept = { dms: [], posts: [], done: new Map(), failed: new Map() };
    const heapBefore = heapMiB();
    let going = true;
    const loops = traffic(parts, record, choices, () => going);
    await inflict(space, faults);
    await sleep(2000);
    going = false;
    await Promise.all(loops);
    console.log([...record.done, ...record.failed].map(([what, times]) => `${what} ${times}`).join(", "));

    await until("the space is served again", answers, 60_000);
    const unseen = (): string[] => record.dms.filter(({ to, key }) => !to.shown.has(key)).map(({ key }) => key);
    await until("every acknowledged direct message was shown", () => unseen().length === 0, 120_000).catch(
      () => undefined,
    );
    expect(unseen()).toEqual([]);
    for (const { session, shown } of parts) {
      const twice = [...shown].filter(([, times]) => times > 1);
      expect({ of: session.me.id, twice }).toEqual({ of: session.me.id, twice: [] });
    }
    for (const channel of CHANNELS) {
      const stored = await parts[0]?.session.history(channel, { fromSeq: 1, limit: 1_000_000 });
      const keys = new Set(stored?.map(keyOf));
      const lost = record.posts.filter((post) => post.channel === channel && !keys.has(post.key));
      expect({ channel, lost }).toEqual({ channel, lost: [] });
    }
    const codes = [...record.failed.keys()].map((key) => key.split(": ")[1] ?? "");
    expect([...new Set(codes)].filter((code) => !HONEST.includes(code))).toEqual([]);
    expect(record.dms.length).toBeGreaterThan(2000);
    expect(record.posts.length).toBeGreaterThan(500);
    for (const what of ["history", "join and leave", "mint"]) expect(record.done.get(what) ?? 0).toBeGreaterThan(5);
    await until("nothing is left in hand", () => parts.every(({ session }) => session.stats().held === 0), 90_000);
    // What this test itself remembers is in it; a session that kept what it handled would be far above.
    const grown = heapMiB() - heapBefore;
    console.log(
      `${record.dms.length} direct messages and ${record.posts.length} posts acknowledged; heap grown by ${grown.toFixed(0)} MiB`,
    );
    expect(grown).toBeLessThan(100);
    expect(parts.flatMap(({ session }) => session.told.filter(({ type }) => type === "closed"))).toEqual([]);
    rejections.stop();
    expect(rejections.seen).toEqual([]);
  },
  STORM_MS + 360_000,
);
