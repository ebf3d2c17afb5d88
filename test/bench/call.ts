/**
 * `call`: what a typed call costs beside a bare request and reply with nats.js on the same broker.
 *
 * Servers are processes of their own; each serves all sides. Ours resolves, pins digests, and checks arguments
 * and answers, over connections with an agent's and a service's rows; bare does none of that, over one without
 * bounds. `call_floor_*` is between them: nats.js alone on the subjects, rows and bytes of a call, so that one
 * sees what the contract itself costs, and what this project's code adds.
 */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Route, endpointSubjects } from "../../shared/protocol/endpoint/grammar.ts";
import { bareCall, floorCaller, gatherBare } from "./call-bare.ts";
import { BARE_SILENT, COMMAND, ENDPOINT, SILENT, SPACE, TEXT } from "./call-contract.ts";
import { type CallWorld, openCallWorld } from "./call-world.ts";
import { complete, perSecond, pipelined } from "./jobs.ts";
import { type Metric, type Report, benchLine, percentile } from "./line.ts";
import { type Both, inTurn } from "./rounds.ts";

export type CallSizes = {
  /** Calls of each kind before anything is measured, so that every side's code is compiled. */
  readonly warm: number;
  readonly rounds: number;
  /** Calls one after the other in a round. */
  readonly latency: number;
  /** Calls of a round with many at once. */
  readonly rate: number;
  readonly scatters: number;
  /** Instances that a scatter asks. */
  readonly instances: number;
  readonly resolves: number;
  /** Calls that are begun at once against a server that says nothing. */
  readonly flight: number;
  readonly flights: number;
};

export const CALL_SIZES: CallSizes = {
  warm: 10_000,
  rounds: 9,
  latency: 1000,
  rate: 15_000,
  scatters: 20,
  instances: 100,
  resolves: 100,
  flight: 10_000,
  flights: 3,
};

const BENCH = "call";
const IN_FLIGHT = 64;
/** Calls of one connection that may wait (supplement D). */
const MOST_PENDING = 1024;
const FLIGHT_MS = 1500;
const ARGS = { text: TEXT };

const METRICS = {
  floorP50: {
    metric: "call_floor_p50",
    unit: "ms",
    note: "nats.js alone, on a call's subjects, rows and bytes: what the contract costs; bare: nc.request",
  },
  p50: { metric: "call_p50", unit: "ms", aim: "<= 1.5", note: "resolved, checked, pinned; bare: nc.request" },
  floorRate: { metric: "call_floor_rate", unit: "1/s", note: `${IN_FLIGHT} at once` },
  rate: { metric: "call_rate", unit: "1/s", note: `${IN_FLIGHT} at once; bare: the same with nc.request` },
  rate4: { metric: "call_rate_4", unit: "1/s", note: "the same with four servers" },
  describe: { metric: "describe_ms", unit: "ms", note: "asked anew each time; bare: one request" },
  resolve: { metric: "resolve_ms", unit: "ms", note: "cold: describe, fetch, verify; bare: one request" },
  cached: { metric: "resolve_cached_ms", unit: "ms" },
  scatter: { metric: "scatter_100_ms", unit: "ms", note: "registry read included; bare: 100 replies to one request" },
  flight: {
    metric: "flight_10000_mb",
    unit: "MB",
    note: `heap held: ${MOST_PENDING} wait, the rest is refused; bare: all wait`,
  },
} as const satisfies Record<string, Metric>;

type Job = () => Promise<unknown>;

export async function call(report: Report, sizes: CallSizes = CALL_SIZES): Promise<void> {
  const world = await openCallWorld(sizes.instances);
  const { open } = world;
  const told = (metric: Metric, { ours, bare }: Both<number>): void =>
    report(benchLine(BENCH, metric, ours, bare), metric);
  const client = world.newClient();
  const ours: Job = () => client.call(ENDPOINT, COMMAND, ARGS);
  const floor: Job = floorCaller(world.nc, world.caller, world.inboxPrefix);
  const bare: Job = () => bareCall(open);
  const rounds = (measure: (job: Job) => Promise<number>, one: Job, other: Job): Promise<Both<number>> =>
    inTurn(
      sizes.rounds,
      () => measure(one),
      () => measure(other),
    );
  const latency = (job: Job): Promise<number> => p50(sizes.latency, job);
  const many = (job: Job): Promise<number> => rate(sizes.rate, job);
  const resolves = (job: Job): Promise<number> => p50(sizes.resolves, job);
  try {
    await world.addServer();
    for (const job of [floor, ours, bare]) await pipelined(sizes.warm, IN_FLIGHT, job);
    told(METRICS.floorP50, await rounds(latency, floor, bare));
    told(METRICS.p50, await rounds(latency, ours, bare));
    told(METRICS.floorRate, await rounds(many, floor, bare));
    told(METRICS.rate, await rounds(many, ours, bare));
    for (let more = 1; more < 4; more += 1) await world.addServer();
    told(METRICS.rate4, await rounds(many, ours, bare));
    told(METRICS.describe, await rounds(resolves, () => client.describe(ENDPOINT), bare));
    told(METRICS.resolve, await rounds(resolves, () => world.newClient().resolve(ENDPOINT, COMMAND), bare));
    const { ours: cached } = await rounds(
      resolves,
      () => client.resolve(ENDPOINT, COMMAND),
      () => Promise.resolve(),
    );
    report(benchLine(BENCH, METRICS.cached, cached), METRICS.cached);
    await world.startCrowd();
    const all: Job = async () => {
      const { answers } = await client.scatter(ENDPOINT, COMMAND, ARGS);
      complete("scatter", answers.length, sizes.instances);
    };
    const gathered = (job: Job): Promise<number> => p50(sizes.scatters, job);
    told(METRICS.scatter, await rounds(gathered, all, () => gatherBare(open, sizes.instances)));
    told(METRICS.flight, await flights(world, sizes));
  } finally {
    await world.close();
  }
}

async function p50(count: number, one: Job): Promise<number> {
  const took: number[] = [];
  for (let done = 0; done < count; done += 1) {
    const began = performance.now();
    await one();
    took.push(performance.now() - began);
  }
  return percentile(took, 0.5);
}

async function rate(count: number, one: Job): Promise<number> {
  const began = performance.now();
  await pipelined(count, IN_FLIGHT, one);
  return perSecond(count, began);
}

/** So many calls begun at once to somebody who says nothing: what they hold, and that no more wait than may. */
async function flights({ open, newRail }: CallWorld, { flight, flights: count }: CallSizes): Promise<Both<number>> {
  // Somebody has to hear it, or the broker says at once that nobody does.
  const deaf = { callback: () => undefined };
  const subjects = [endpointSubjects(SPACE).serveOne(SILENT, COMMAND), BARE_SILENT];
  const silent = subjects.map((subject) => open.subscribe(subject, deaf));
  await open.flush();
  const rail = newRail();
  const address = { route: Route.One, endpoint: SILENT, command: COMMAND } as const;
  const payload = JSON.stringify(ARGS);
  const both = await inTurn(
    count,
    () =>
      held(
        flight,
        () => rail.ask({ address, args: ARGS }, FLIGHT_MS),
        () => complete("calls that wait", rail.pending(), Math.min(flight, MOST_PENDING)),
      ),
    () => held(flight, () => open.request(BARE_SILENT, payload, { timeout: FLIGHT_MS })),
  );
  for (const subscription of silent) subscription.unsubscribe();
  return both;
}

/** Megabytes that so many hold while they are under way. */
async function held(count: number, one: Job, look: () => void = () => undefined): Promise<number> {
  const before = heapUsed();
  const settled = Promise.allSettled(Array.from({ length: count }, one));
  await new Promise((resolve) => {
    setTimeout(resolve, FLIGHT_MS / 3);
  });
  look();
  const grown = heapUsed() - before;
  await settled;
  return Math.max(grown, 0) / 1e6;
}

/** What is in use once everything that can go has gone. */
function heapUsed(): number {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  collect();
  const { heapUsed: heap, external } = process.memoryUsage();
  return heap + external;
}
