/**
 * How many copies a second the fan-out writes, by members and by channels. The writer is the delivery service's own,
 * as a process over a broker with the space's streams.
 *
 * The bare side writes as many messages of the same size to as many subjects of the same stream, one by one: what a
 * program does that has no batches. Both sides take turns.
 */
import { type ChildProcess, fork } from "node:child_process";
import { join as joinPath } from "node:path";
import { jetstream } from "@nats-io/jetstream";
import { streamState } from "../../shared/broker/ensure.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import type { Lifecycle } from "../../shared/protocol/ledger/member-rows.ts";
import { type FanoutRig, joining, startFanoutRig } from "../support/fanout-rig.ts";
import { markerOf } from "../support/stored-copies.ts";
import { BENCH, type FanoutSizes, IN_FLIGHT, TEXT } from "./fanout-sizes.ts";
import { pause, perSecond, pipelined } from "./jobs.ts";
import { type Metric, type Report, benchLine } from "./line.ts";
import { inTurn } from "./rounds.ts";

const SPACE = "main";
/** Of each channel, where channels are counted. */
const FEW = 10;
const WRITER = joinPath(import.meta.dirname, "..", "support", "fanout-child.ts");
const NOTE = "a backlog, from the moment at which the writer claims it; bare: pipelined publishes";

export async function copies(report: Report, sizes: FanoutSizes): Promise<void> {
  const rig = await startFanoutRig();
  try {
    for (const members of sizes.members) {
      const channel = `rate${members}`;
      const joined = await membersOf(rig, [channel], members);
      await rateOf(rig, sizes, report, {
        about: { metric: `copies_rate_${members}`, unit: "1/s", aim: ">= 2.00", note: NOTE },
        channels: [channel],
        joined,
      });
    }
    for (const count of sizes.channels) {
      const channels = Array.from({ length: count }, (_, n) => `of${count}.n${n}`);
      const joined = await membersOf(rig, channels, FEW);
      await rateOf(rig, sizes, report, {
        about: { metric: `copies_rate_channels_${count}`, unit: "1/s", note: `${FEW} members in each channel` },
        channels,
        joined,
      });
    }
  } finally {
    await rig.stop();
  }
  await lostOnKill(report, sizes);
}

/** So many for each channel, members from now on. */
async function membersOf(rig: FanoutRig, channels: readonly string[], each: number): Promise<Lifecycle[]> {
  const running = rig.run();
  const cursor = await rig.frontier();
  const joined: Lifecycle[] = [];
  const count = channels.length * each;
  await pipelined(count, IN_FLIGHT, async (n) => {
    const channel = channels[n % channels.length] ?? "";
    const who = await rig.member(`m${count}_${channels.length}_${n}`);
    joined.push(who);
    await running.ask(joining(who, channel, cursor));
  });
  await running.stop();
  return joined;
}

type Rate = {
  readonly about: Metric;
  readonly channels: readonly string[];
  readonly joined: readonly Lifecycle[];
};

async function rateOf(
  rig: FanoutRig,
  { rounds, copies: count }: FanoutSizes,
  report: Report,
  { about, channels, joined }: Rate,
): Promise<void> {
  const subjects = joined.map(({ principal, uid }) => spaceSubjects(SPACE).dlv(principal, uid));
  const posts = Math.max(1, Math.floor((count * channels.length) / joined.length));
  const written = (posts * joined.length) / channels.length;
  const js = jetstream(rig.nc);
  const ours = async (): Promise<number> => {
    let last = 0;
    await pipelined(posts, IN_FLIGHT, async (n) => {
      last = Math.max(last, await rig.post(channels[n % channels.length] ?? "", TEXT));
    });
    const writer = fork(WRITER, [rig.broker.url, "0", "before"]);
    await claimedBy(rig, writer);
    const began = performance.now();
    await rig.passed(last);
    const rate = perSecond(written, began);
    await endOf(writer);
    return rate;
  };
  const bare = async (): Promise<number> => {
    const body = await bodyOf(rig, channels[0] ?? "");
    const began = performance.now();
    await pipelined(written, IN_FLIGHT, (n) => js.publish(subjects[n % subjects.length] ?? "", body));
    return perSecond(written, began);
  };
  const both = await inTurn(rounds, ours, bare);
  report(benchLine(BENCH, about, both.ours, both.bare), about);
}

/** What the broker had confirmed, and does not have after it was killed. */
async function lostOnKill(report: Report, { copies: count }: FanoutSizes): Promise<void> {
  const rig = await startFanoutRig();
  try {
    const channel = "kept";
    await membersOf(rig, [channel], FEW);
    const { dlv } = spaceNames(SPACE);
    const stored = async (): Promise<number> => (await streamState(rig.nc, dlv)).messages;
    const running = rig.run();
    let last = 0;
    await pipelined(count / FEW, IN_FLIGHT, async () => {
      last = Math.max(last, await rig.post(channel, TEXT));
    });
    await rig.passed(last);
    await running.stop();
    const before = await stored();
    await rig.broker.kill();
    await rig.broker.restart();
    let after: number | undefined;
    while (after === undefined) {
      after = await stored().catch(() => undefined);
      if (after === undefined) await pause(100);
    }
    const about = { metric: "lost_on_kill", unit: "%", aim: "0", note: "of the confirmed, by a kill -9 of the broker" };
    report(benchLine(BENCH, about, [(100 * (before - after)) / before]), about);
  } finally {
    await rig.stop();
  }
}

/** The process has started, and what it has to do is not begun. */
async function claimedBy({ nc }: FanoutRig, { pid }: ChildProcess): Promise<void> {
  while ((await markerOf(nc))?.by !== `child${pid}`) await pause(2);
}

/** As large as a copy is: the post's own bytes. */
async function bodyOf(rig: FanoutRig, channel: string): Promise<Uint8Array> {
  const { chat } = spaceNames(SPACE);
  const entry = await leaderLast(rig.nc, chat, rig.posterSubject(channel));
  return entry?.data ?? new Uint8Array();
}

async function endOf(child: ChildProcess): Promise<void> {
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  await ended;
}
