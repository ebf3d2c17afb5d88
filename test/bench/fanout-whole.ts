/**
 * The whole way of a copy, through the accounts of a space: how soon a post is in a member's inbox, how fast a member
 * that was away catches up, and what a backlog costs the delivery service in memory.
 */
import { type ChildProcess, fork } from "node:child_process";
import { join as joinPath } from "node:path";
import type { NatsConnection } from "@nats-io/transport-node";
import { AckBody, inboxPrefix, jsApi } from "../../shared/protocol/base/broker-subjects.ts";
import { dlvDurable, dmDurable, spaceNames } from "../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import type { Minted } from "../support/space.ts";
import { ask, endChild } from "./child.ts";
import type { Return } from "./fanout-reader.ts";
import { BENCH, type FanoutSizes, TEXT } from "./fanout-sizes.ts";
import { type FanoutWorld, SPACE, openFanoutWorld } from "./fanout-world.ts";
import { type SideName, pause } from "./jobs.ts";
import { type Metric, type Report, benchLine, percentile } from "./line.ts";
import { peakMiB, residentMiB } from "./resident.ts";
import { inTurn } from "./rounds.ts";

const READER = joinPath(import.meta.dirname, "fanout-reader.ts");
/** Of the channel whose backlog is weighed. */
const CROWD = 20;
const PAUSE_MS = 2;
const WAIT_NS = 10e9;

const METRICS = {
  p50: {
    metric: "inbox_p50",
    unit: "ms",
    note: "from the post to the member's pull; bare: a message stored for it alone",
  },
  p99: { metric: "inbox_p99", unit: "ms" },
  catchUp: { metric: "catchup_rate", unit: "1/s", aim: ">= 0.90", note: "bare: single pulls, acknowledged" },
  rest: { metric: "rss_delivery_0", unit: "MiB", note: "the delivery service, no backlog" },
  peak: { metric: "rss_delivery_peak", unit: "MiB", note: "the most it ever was; bare: with no backlog" },
} as const satisfies Record<string, Metric>;

export async function whole(report: Report, sizes: FanoutSizes): Promise<void> {
  // The memory of a service that has done nothing else before.
  for (const parts of [[latency, catchUp], [memory]]) {
    const world = await openFanoutWorld(TEXT);
    try {
      for (const part of parts) await part(world, sizes, report);
    } finally {
      await world.close();
    }
  }
}

async function latency(world: FanoutWorld, { rounds, latency: count }: FanoutSizes, report: Report): Promise<void> {
  const channel = "bench.soon";
  const member = await world.member("soon");
  await world.join(member, channel);
  const [from, to] = [await world.space.connect(world.poster), await world.space.connect(member)];
  const [names, subjects] = [spaceNames(SPACE), spaceSubjects(SPACE)];
  const { principal, uid } = member.view;
  const me = world.poster.view.principal;
  const ways: Readonly<Record<SideName, Way>> = {
    ours: { next: jsApi.next(names.dlv, dlvDurable(principal, uid)), subject: subjects.chat(me, channel) },
    bare: { next: jsApi.next(names.dm, dmDurable(principal, uid)), subject: subjects.inst(principal, me) },
  };
  const reply = `${inboxPrefix(uid, member.view.inboxNonce)}.bench`;
  const round = (side: SideName) => () =>
    onTheWay({ from, to, reply, count, body: () => world.body(channel) }, ways[side]);
  const both = await inTurn(rounds, round("ours"), round("bare"));
  for (const [about, share] of [
    [METRICS.p50, 0.5],
    [METRICS.p99, 0.99],
  ] as const) {
    const at = (taken: readonly number[]): number => percentile(taken, share);
    report(benchLine(BENCH, about, both.ours.map(at), both.bare.map(at)), about);
  }
}

type Way = { readonly next: string; readonly subject: string };
type Trip = {
  readonly from: NatsConnection;
  readonly to: NatsConnection;
  readonly reply: string;
  readonly count: number;
  readonly body: () => string;
};

/** Milliseconds from each publish to its message at a pull that waits for it; one at a time. */
async function onTheWay({ from, to, reply, count, body }: Trip, { next, subject }: Way): Promise<number[]> {
  const taken: number[] = [];
  const inbox = to.subscribe(reply);
  const messages = inbox[Symbol.asyncIterator]();
  for (let n = 0; n < count; n += 1) {
    to.publish(next, JSON.stringify({ batch: 1, expires: WAIT_NS }), { reply });
    await to.flush();
    await pause(PAUSE_MS);
    const sentAt = performance.now();
    from.publish(subject, body());
    const came = await messages.next();
    taken.push(performance.now() - sentAt);
    // An expired pull is answered too, with nothing to acknowledge.
    const { reply: ack = "" } = came.done === true ? {} : came.value;
    if (ack === "") throw new Error(`nothing came for post ${n}`);
    to.publish(ack, AckBody.Ack);
  }
  inbox.unsubscribe();
  await to.flush();
  return taken;
}

async function catchUp(world: FanoutWorld, { returns, away }: FanoutSizes, report: Report): Promise<void> {
  const start = async (side: SideName) => {
    const who = await world.member(`away_${side}`);
    const channel = `bench.away.${side}`;
    await world.join(who, channel);
    const child = fork(READER, { serialization: "advanced" });
    return { child, run: () => comeBack(world, child, { side, who, channel, count: away }) };
  };
  const sides = { ours: await start("ours"), bare: await start("bare") };
  try {
    const both = await inTurn(returns, sides.ours.run, sides.bare.run);
    report(benchLine(BENCH, METRICS.catchUp, both.ours, both.bare), METRICS.catchUp);
  } finally {
    await Promise.all([endChild(sides.ours.child), endChild(sides.bare.child)]);
  }
}

type Coming = { readonly side: SideName; readonly who: Minted; readonly channel: string; readonly count: number };

async function comeBack(world: FanoutWorld, child: ChildProcess, coming: Coming): Promise<number> {
  const { side, who, channel, count } = coming;
  await world.post(channel, count);
  const order: Return = { side, url: world.space.url, space: SPACE, creds: who.text, channel, count };
  return (await ask(child, "catch-up", order)) as number;
}

async function memory(world: FanoutWorld, { backlog }: FanoutSizes, report: Report): Promise<void> {
  const channel = "bench.many";
  for (let n = 0; n < CROWD; n += 1) await world.join(await world.member(`crowd${n}`), channel);
  const pid = world.delivery.pid();
  const rest = residentMiB(pid);
  report(benchLine(BENCH, METRICS.rest, [rest]), METRICS.rest);
  let written = 0;
  for (const copies of backlog) {
    await world.post(channel, Math.ceil((copies - written) / CROWD));
    written = copies;
    const about: Metric = { metric: `rss_delivery_${copies}`, unit: "MiB", note: `${copies} copies wait; bare: none` };
    report(benchLine(BENCH, about, [residentMiB(pid)], [rest]), about);
  }
  report(benchLine(BENCH, METRICS.peak, [peakMiB(pid)], [rest]), METRICS.peak);
}
