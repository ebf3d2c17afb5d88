/**
 * `callout`: how fast people come in, beside a responder that asks nobody whether they may.
 *
 * One broker, one run; each side first with one process and then with two. Each process of ours answers
 * from the ledger, with leader reads before and after it signs; the bare one decodes, signs and answers.
 */
import { type CalloutWorld, type Crowd, openCalloutWorld } from "./callout-world.ts";
import type { Taken } from "./callout-load.ts";
import type { SideName } from "./jobs.ts";
import { type Metric, type Report, benchLine, percentile } from "./line.ts";
import { type Both, inTurn } from "./rounds.ts";

export type CalloutSizes = {
  readonly rounds: number;
  readonly crowd: Crowd;
  readonly connects: number;
  readonly latency: number;
  readonly exchanges: number;
};

export const CALLOUT_SIZES: CalloutSizes = {
  rounds: 5,
  crowd: { people: 10, actors: 10 },
  connects: 4000,
  latency: 400,
  exchanges: 500,
};

const BENCH = "callout";
/** Enough to keep every process busy. */
const CROWDED = 64;
/** Few enough that nobody waits for somebody else for long. */
const CALM = 2;
const EXCHANGES = 16;

const METRICS = {
  rate: {
    metric: "connect_rate",
    unit: "1/s",
    aim: ">= 0.60",
    note: "64 at once; bare: decode, sign the same permissions, answer; no ledger",
  },
  p50: { metric: "connect_p50", unit: "ms", note: "2 at once, from the dial to the first answer inside" },
  p99: { metric: "connect_p99", unit: "ms" },
  exchange: {
    metric: "exchange_rate",
    unit: "1/s",
    note: "16 at once, enrolled before; bare: check the ID token, sign a bearer; no ledger, nothing durable",
  },
} as const satisfies Record<string, Metric>;

export async function callout(report: Report, sizes: CalloutSizes = CALLOUT_SIZES): Promise<void> {
  const world = await openCalloutWorld(sizes.crowd);
  try {
    await measure(world, sizes, report, "");
    await world.addResponder();
    await measure(world, sizes, report, "_two");
  } finally {
    await world.close();
  }
}

async function measure(world: CalloutWorld, sizes: CalloutSizes, report: Report, suffix: string): Promise<void> {
  const { rounds, connects, latency, exchanges } = sizes;
  const both = (run: (side: SideName) => Promise<Taken>): Promise<Both<Taken>> =>
    inTurn(
      rounds,
      () => run("ours"),
      () => run("bare"),
    );
  const tell = (about: Metric, { ours, bare }: Both<Taken>, figure: (taken: Taken) => number): void => {
    const named = { ...about, metric: `${about.metric}${suffix}` };
    report(benchLine(BENCH, named, ours.map(figure), bare.map(figure)), named);
  };
  const rate = ({ each, ms }: Taken): number => (each.length * 1000) / ms;
  const at =
    (share: number) =>
    ({ each }: Taken): number =>
      percentile(each, share);

  tell(METRICS.rate, await both((side) => world.connects(side, { count: connects, inFlight: CROWDED })), rate);
  const calm = await both((side) => world.connects(side, { count: latency, inFlight: CALM }));
  tell(METRICS.p50, calm, at(0.5));
  tell(METRICS.p99, calm, at(0.99));
  tell(METRICS.exchange, await both((side) => world.exchanges(side, { count: exchanges, inFlight: EXCHANGES })), rate);
}
