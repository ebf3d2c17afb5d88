/**
 * `fanout`: how many copies a second the fan-out writes to 10, 100 and 1,000 members, and how soon a post is in a
 * member's inbox. The writer is the delivery service's own, over a broker of its own with the space's streams.
 *
 * The bare side writes as many messages of the same size to as many subjects of a stream like DLV, one by one, with
 * 256 unconfirmed: what a program does that has no batches. Both sides take turns, over the same broker.
 */
import { type ChildProcess, fork } from "node:child_process";
import { join as joinPath } from "node:path";
import { jetstream } from "@nats-io/jetstream";
import { leaderLast } from "../../shared/broker/reads.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import type { Lifecycle } from "../../shared/protocol/ledger/member-rows.ts";
import { type FanoutRig, joining, startFanoutRig } from "../support/fanout-rig.ts";
import { markerOf } from "../support/stored-copies.ts";
import { perSecond, pipelined } from "./jobs.ts";
import { type Report, benchLine, percentile } from "./line.ts";

const ROUNDS = 3;
const COPIES = 60_000;
const IN_FLIGHT = 256;
const SIZES = [10, 100, 1000] as const;
const TEXT = "x".repeat(64);
const LATENCY_POSTS = 300;

export async function fanout(report: Report): Promise<void> {
  const rig = await startFanoutRig();
  try {
    for (const size of SIZES) await rateOf(rig, size, report);
    await latencyOf(rig, report);
  } finally {
    await rig.stop();
  }
}

async function membersOf(rig: FanoutRig, size: number, channel: string): Promise<Lifecycle[]> {
  const members = await Promise.all(Array.from({ length: size }, (_, n) => rig.member(`m${size}_${n}`)));
  const running = rig.run();
  const cursor = await rig.frontier();
  await Promise.all(members.map((who) => running.ask(joining(who, channel, cursor))));
  await running.stop();
  return members;
}

async function rateOf(rig: FanoutRig, size: number, report: Report): Promise<void> {
  const channel = `rate${size}`;
  const members = await membersOf(rig, size, channel);
  const subjects = members.map(({ principal, uid }) => spaceSubjects("main").dlv(principal, uid));
  const posts = COPIES / size;
  const ours: number[] = [];
  const bare: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    let last = 0;
    await pipelined(posts, IN_FLIGHT, async () => {
      last = Math.max(last, await rig.post(channel, TEXT));
    });
    const body = await bodyOf(rig, channel);
    const writer = startWriter(rig.broker.url);
    await claimedBy(rig, writer);
    const began = performance.now();
    await rig.passed(last);
    ours.push(perSecond(COPIES, began));
    await endOf(writer);
    const js = jetstream(rig.nc);
    const begun = performance.now();
    await pipelined(COPIES, IN_FLIGHT, (n) => js.publish(subjects[n % size] ?? "", body));
    bare.push(perSecond(COPIES, begun));
  }
  report(benchLine("fanout", { metric: `copies_rate_${size}`, unit: "/s" }, ours, bare), {
    metric: `copies_rate_${size}`,
    unit: "/s",
    aim: "2.00",
    note: "a backlog of posts, from the moment at which the writer claims the group",
  });
}

async function latencyOf(rig: FanoutRig, report: Report): Promise<void> {
  const [who] = await membersOf(rig, 1, "soon");
  if (who === undefined) return;
  const writer = startWriter(rig.broker.url);
  const taken: number[] = [];
  let sentAt = 0;
  const arrived: (() => void)[] = [];
  rig.nc.subscribe(spaceSubjects("main").dlv(who.principal, who.uid), {
    callback: () => {
      taken.push(performance.now() - sentAt);
      arrived.shift()?.();
    },
  });
  for (let n = 0; n < LATENCY_POSTS + 50; n += 1) {
    const coming = new Promise<void>((resolve) => arrived.push(resolve));
    sentAt = performance.now();
    await Promise.all([rig.post("soon", TEXT), coming]);
    await new Promise((resolve) => setTimeout(resolve, 3));
  }
  await endOf(writer);
  const warm = taken.slice(-LATENCY_POSTS);
  for (const [metric, share] of [
    ["inbox_p50", 0.5],
    ["inbox_p99", 0.99],
  ] as const) {
    report(benchLine("fanout", { metric, unit: "ms" }, [percentile(warm, share)]), {
      metric,
      unit: "ms",
      note: "from the post to its copy on the member's subject",
    });
  }
}

/** The process has started, and what it has to do is not begun. */
async function claimedBy({ nc }: FanoutRig, { pid }: ChildProcess): Promise<void> {
  while ((await markerOf(nc))?.by !== `child${pid}`) await new Promise((resolve) => setTimeout(resolve, 2));
}

/** As large as a copy is: the post's own bytes. */
async function bodyOf(rig: FanoutRig, channel: string): Promise<Uint8Array> {
  const { chat } = spaceNames("main");
  const entry = await leaderLast(rig.nc, chat, rig.posterSubject(channel));
  return entry?.data ?? new Uint8Array();
}

function startWriter(url: string): ChildProcess {
  return fork(joinPath(import.meta.dirname, "..", "support", "fanout-child.ts"), [url, "0", "before"]);
}

async function endOf(child: ChildProcess): Promise<void> {
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  await ended;
}
