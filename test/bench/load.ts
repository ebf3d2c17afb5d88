/**
 * `load`: five hundred agents on one machine, as a space has them: each sends once a second, four of ten to its channel
 * and the others directly, and is shown what the others send.
 *
 * The bare side is the same crowd with nats.js alone: one stream, a durable for each agent, single pulls. It has no
 * copies, no permissions for a member and nobody's presence. Broker, daemons and agents share the machine.
 */
import { type ChildProcess, fork } from "node:child_process";
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/transport-node";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { markerOf } from "../support/stored-copies.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { ask, endChild } from "./child.ts";
import { type SideName, pause } from "./jobs.ts";
import { type Metric, type Report, benchLine } from "./line.ts";
import { type Crew, type Shift, actorOf } from "./load-crew.ts";
import { peakMiB, residentMiB } from "./resident.ts";
import { type Spread, countOf, merged, shareOf } from "./spread.ts";
import { storeCreds } from "./world.ts";

export type LoadSizes = {
  readonly agents: number;
  readonly channels: number;
  readonly processes: number;
  /** Of ten sends, posts to the channel. */
  readonly posts: number;
  readonly seconds: number;
  readonly bareSeconds: number;
  /** Before what is counted: connections, joins and code that runs for the first time. */
  readonly warmSeconds: number;
};

export const LOAD_SIZES: LoadSizes = {
  agents: 500,
  channels: 20,
  processes: 4,
  posts: 4,
  seconds: 300,
  bareSeconds: 60,
  warmSeconds: 5,
};

const BENCH = "load";
const SPACE = "main";
const STREAM = "BENCH_LOAD";
const TEXT_BYTES = 128;
const AGENTS = join(import.meta.dirname, "load-agents.ts");
const MINT_AT_ONCE = 16;

const METRICS = {
  sent: { metric: "sent_rate", unit: "1/s", note: "posts and direct messages, each with a receipt" },
  shown: { metric: "shown_rate", unit: "1/s", note: "to readers, all together" },
  least: { metric: "shown_least", unit: "1/s", aim: ">= 10", note: "to the agent that was shown fewest" },
  receipt50: { metric: "receipt_p50", unit: "ms" },
  receipt99: { metric: "receipt_p99", unit: "ms" },
  shown50: { metric: "shown_p50", unit: "ms", note: "from the send to the reader" },
  shown99: { metric: "shown_p99", unit: "ms" },
  lag: { metric: "copies_behind", unit: "posts", note: "the most by which the copies were behind the posts" },
  failed: { metric: "failed", unit: "posts", aim: "0" },
  missing: { metric: "missing", unit: "", aim: "0", note: "owed to readers and not shown three seconds later" },
} as const satisfies Record<string, Metric>;

export async function load(report: Report, sizes: LoadSizes = LOAD_SIZES): Promise<void> {
  const space = await startSpace();
  try {
    const store = await space.store();
    const lag = await watchLag(store);
    const ours = await crowd(space, "ours", sizes);
    const daemons = { broker: space.broker.pid(), provisioner: space.provisioner.pid(), delivery: deliveryPid(space) };
    const [first = 0] = ours.pids;
    const memory = Object.entries({ ...daemons, agents: first }).map(
      ([name, pid]) => [name, residentMiB(pid), peakMiB(pid)] as const,
    );
    await ours.end();
    const mostBehind = lag.stop();
    await makeStream(store);
    const bare = await crowd(space, "bare", { ...sizes, seconds: sizes.bareSeconds });
    await bare.end();
    say(report, sizes, ours, bare, mostBehind);
    for (const [name, resident, peak] of memory) {
      const about: Metric = { metric: `rss_${name}`, unit: "MiB", note: noteOf(name, peak, sizes) };
      report(benchLine(BENCH, about, [resident]), about);
    }
  } finally {
    await space.stop();
  }
}

const noteOf = (name: string, peak: number, { agents, processes }: LoadSizes): string =>
  `at the end; the most it was: ${Math.round(peak)}${name === "agents" ? `; one process of ${agents / processes} agents` : ""}`;

function deliveryPid({ delivery }: TestSpace): number {
  if (delivery === undefined) throw new Error("no delivery service runs");
  return delivery.pid();
}

type Crowd = {
  readonly shifts: readonly Shift[];
  readonly seconds: number;
  readonly pids: readonly number[];
  readonly end: () => Promise<void>;
};

/** Brings them in, warms them, and lets them talk. */
async function crowd(space: TestSpace, side: SideName, sizes: LoadSizes): Promise<Crowd> {
  const creds = side === "ours" ? await mintAll(space, sizes) : [await storeCreds(space)];
  const each = Math.ceil(sizes.agents / sizes.processes);
  const children: ChildProcess[] = [];
  const end = async (): Promise<void> => {
    await Promise.all(children.map((child) => ask(child, "close", { kind: "close" }).catch(() => undefined)));
    await Promise.all(children.map(endChild));
  };
  try {
    for (let from = 0; from < sizes.agents; from += each) {
      const child = fork(AGENTS, { serialization: "advanced" });
      children.push(child);
      const mine = Array.from({ length: Math.min(each, sizes.agents - from) }, (_, n) => from + n);
      const channels = mine.map((agent) => channelOf(agent, sizes));
      const peers = mine.map((agent) => (agent + 1) % sizes.agents);
      const own = side === "ours" ? creds.slice(from, from + each) : creds;
      const crew: Crew = {
        side,
        url: space.url,
        creds: own,
        channels,
        peers,
        first: from,
        posts: sizes.posts,
        textBytes: TEXT_BYTES,
        stream: STREAM,
      };
      await ask(child, "open", { kind: "open", crew });
    }
    const turn = (seconds: number): Promise<Shift[]> =>
      Promise.all(
        children.map((child) => ask(child, "run", { kind: "run", seconds }, (seconds + 60) * 1000) as Promise<Shift>),
      );
    await turn(sizes.warmSeconds);
    return {
      shifts: await turn(sizes.seconds),
      seconds: sizes.seconds,
      pids: children.map(({ pid }) => pid ?? 0),
      end,
    };
  } catch (thrown) {
    await end();
    throw thrown;
  }
}

const channelOf = (agent: number, { channels }: LoadSizes): string => `load.c${agent % channels}`;

async function mintAll(space: TestSpace, { agents }: LoadSizes): Promise<string[]> {
  const texts: string[] = [];
  for (let from = 0; from < agents; from += MINT_AT_ONCE) {
    const some = Array.from({ length: Math.min(MINT_AT_ONCE, agents - from) }, (_, n) => actorOf(from + n));
    const minted = some.map((actor) => space.mint({ actor, subscribe: ["load.>"], publish: ["load.>"] }));
    texts.push(...(await Promise.all(minted)).map(({ text }) => text));
  }
  return texts;
}

/** Of a sender and channel CHAT keeps the last thousand; the bare stream keeps as many of a channel as are needed. */
async function makeStream(store: NatsConnection): Promise<void> {
  const { streams } = await jetstreamManager(store);
  const { config } = await streams.info(spaceNames(SPACE).chat);
  const { duplicate_window, storage, allow_direct } = config;
  await streams.add({ name: STREAM, subjects: [`${STREAM}.>`], duplicate_window, storage, allow_direct });
}

/** How far the copies are behind the posts, looked at again and again. */
async function watchLag(store: NatsConnection) {
  const { streams } = await jetstreamManager(store);
  const { chat } = spaceNames(SPACE);
  let most = 0;
  let watching = true;
  const watch = async (): Promise<void> => {
    while (watching) {
      const { state } = await streams.info(chat);
      const marker = await markerOf(store);
      if (marker !== undefined) most = Math.max(most, state.last_seq - marker.sequence);
      await pause(500);
    }
  };
  const running = watch().catch(() => undefined);
  return {
    stop: (): number => {
      watching = false;
      void running;
      return most;
    },
  };
}

type Told = Pick<Crowd, "shifts" | "seconds">;

function say(report: Report, sizes: LoadSizes, ours: Told, bare: Told, mostBehind: number): void {
  const tell = (about: Metric, of: (told: Told) => number): void =>
    report(benchLine(BENCH, about, [of(ours)], [of(bare)]), about);
  const all = (told: Told, pick: (shift: Shift) => Spread): Spread => merged(told.shifts.map(pick));
  const sum = ({ shifts }: Told, of: (shift: Shift) => number): number => shifts.reduce((all, one) => all + of(one), 0);
  tell(METRICS.sent, (told) => sum(told, ({ posted, written }) => posted + written) / told.seconds);
  tell(METRICS.shown, (told) => countOf(all(told, ({ shown }) => shown)) / told.seconds);
  tell(METRICS.least, ({ shifts, seconds }) => Math.min(...shifts.flatMap(({ received }) => received)) / seconds);
  for (const [about, share, pick] of [
    [METRICS.receipt50, 0.5, (shift: Shift) => shift.receipt],
    [METRICS.receipt99, 0.99, (shift: Shift) => shift.receipt],
    [METRICS.shown50, 0.5, (shift: Shift) => shift.shown],
    [METRICS.shown99, 0.99, (shift: Shift) => shift.shown],
  ] as const) {
    tell(about, (told) => shareOf(all(told, pick), share));
  }
  report(benchLine(BENCH, METRICS.lag, [mostBehind]), METRICS.lag);
  tell(METRICS.failed, (told) => sum(told, ({ failed }) => failed));
  // A session does not show its own posts.
  const readers = sizes.agents / sizes.channels;
  const owed = sum(ours, ({ posted, written }) => posted * (readers - 1) + written);
  report(benchLine(BENCH, METRICS.missing, [owed - countOf(all(ours, ({ shown }) => shown))]), METRICS.missing);
}
