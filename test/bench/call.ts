/**
 * `call`: what a typed call costs beside a bare request and reply with nats.js on the same broker.
 *
 * Servers are processes of their own; each serves both sides. Ours resolves, pins digests, and checks
 * arguments and answers; bare does none of that.
 */
import { fork } from "node:child_process";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { type NatsConnection, createInbox } from "@nats-io/transport-node";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import { type EndpointClient, createEndpointClient } from "../../shared/client/endpoint-client.ts";
import { createRail } from "../../shared/client/rail.ts";
import { pooledRandom } from "../../shared/client/random.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { OPEN_OWNER, drawLifecycleUid, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import { startBroker } from "../support/nats-server.ts";
import { BARE_ALL, BARE_ONE, type CallServerSetup, ENDPOINT, SPACE } from "./call-contract.ts";
import { ask, endChild } from "./child.ts";
import { complete, perSecond, pipelined } from "./jobs.ts";
import { type Metric, type Report, benchLine, percentile } from "./line.ts";
import { type Both, inTurn } from "./rounds.ts";

export type CallSizes = {
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
};

export const CALL_SIZES: CallSizes = {
  rounds: 7,
  latency: 500,
  rate: 15_000,
  scatters: 20,
  instances: 100,
  resolves: 100,
  flight: 10_000,
};

const BENCH = "call";
const IN_FLIGHT = 64;
const TEXT = ".".repeat(100);
const SILENT = "com.acme.silent";
const FLIGHT_MS = 2000;

const METRICS = {
  p50: { metric: "call_p50", unit: "ms", aim: "<= 1.5", note: "bare: nc.request, answered as it came" },
  rate: { metric: "call_rate", unit: "1/s", note: `${IN_FLIGHT} at once; bare: the same with nc.request` },
  rate4: { metric: "call_rate_4", unit: "1/s", note: "the same with four servers" },
  scatter: { metric: "scatter_100_ms", unit: "ms", note: "registry read included; bare: 100 replies to one request" },
  resolve: { metric: "resolve_ms", unit: "ms", note: "cold: describe, fetch, verify; bare: one request" },
  cached: { metric: "resolve_cached_ms", unit: "ms" },
  flight: {
    metric: "flight_10000_mb",
    unit: "MB",
    note: "1024 wait, the rest is refused; heap grown, nothing collected yet",
  },
} as const satisfies Record<string, Metric>;

const PROGRAM = join(import.meta.dirname, "call-server.ts");

async function startServer(setup: CallServerSetup): Promise<{ readonly stop: () => Promise<void> }> {
  const child = fork(PROGRAM);
  await ask(child, "setup", setup);
  return { stop: () => endChild(child) };
}

async function dial(url: string): Promise<Connection> {
  const prefix = inboxPrefix(drawLifecycleUid(randomBytes), drawNonce(randomBytes));
  return openConnection({ servers: [url], inboxPrefix: prefix, name: "bench", reconnect: { kind: "endless" } });
}

function clientOn({ nc, inboxPrefix: prefix }: Connection): EndpointClient {
  const random = pooledRandom();
  const caller = { principal: principal(OPEN_OWNER, "bench"), uid: drawLifecycleUid(randomBytes) };
  const denials = watchDenials(nc);
  return createEndpointClient({
    rail: createRail({ nc, space: SPACE, caller, name: "bench", inboxPrefix: prefix, denials, random }),
  });
}

export async function call(report: Report, sizes: CallSizes = CALL_SIZES): Promise<void> {
  const broker = await startBroker();
  const servers = [await startServer({ url: broker.url, instances: 1, reads: true })];
  const connection = await dial(broker.url);
  const { nc } = connection;
  const client = clientOn(connection);
  const told = (metric: Metric, { ours, bare }: Both<number>): void =>
    report(benchLine(BENCH, metric, ours, bare), metric);
  const ours = () => client.call(ENDPOINT, "echo", { text: TEXT });
  const bare = () => nc.request(BARE_ONE, JSON.stringify({ text: TEXT }));
  const rounds = (one: () => Promise<number>, other: () => Promise<number>) => inTurn(sizes.rounds, one, other);
  try {
    told(
      METRICS.p50,
      await rounds(
        () => p50(sizes.latency, ours),
        () => p50(sizes.latency, bare),
      ),
    );
    told(
      METRICS.rate,
      await rounds(
        () => rate(sizes.rate, ours),
        () => rate(sizes.rate, bare),
      ),
    );
    for (let more = 1; more < 4; more += 1) {
      servers.push(await startServer({ url: broker.url, instances: 1, reads: false }));
    }
    told(
      METRICS.rate4,
      await rounds(
        () => rate(sizes.rate, ours),
        () => rate(sizes.rate, bare),
      ),
    );
    const cold = async (): Promise<void> => void (await clientOn(connection).resolve(ENDPOINT, "echo"));
    told(
      METRICS.resolve,
      await rounds(
        () => p50(sizes.resolves, cold),
        () => p50(sizes.resolves, bare),
      ),
    );
    const { ours: cached } = await rounds(
      () => p50(sizes.resolves, () => client.resolve(ENDPOINT, "echo")),
      () => Promise.resolve(0),
    );
    report(benchLine(BENCH, METRICS.cached, cached), METRICS.cached);
    for (const server of servers.splice(0)) await server.stop();
    servers.push(await startServer({ url: broker.url, instances: sizes.instances, reads: true }));
    const all = async (): Promise<void> => {
      const { answers } = await client.scatter(ENDPOINT, "echo", { text: TEXT });
      complete("scatter", answers.length, sizes.instances);
    };
    const many = (): Promise<void> => gatherBare(nc, sizes.instances);
    told(
      METRICS.scatter,
      await rounds(
        () => p50(sizes.scatters, all),
        () => p50(sizes.scatters, many),
      ),
    );
    report(benchLine(BENCH, METRICS.flight, [await flight(connection, sizes.flight)]), METRICS.flight);
  } finally {
    for (const server of servers) await server.stop();
    await connection.close();
    await broker.stop();
  }
}

async function p50(count: number, one: () => Promise<unknown>): Promise<number> {
  const took: number[] = [];
  for (let done = 0; done < count; done += 1) {
    const began = performance.now();
    await one();
    took.push(performance.now() - began);
  }
  return percentile(took, 0.5);
}

async function rate(count: number, one: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await pipelined(count, IN_FLIGHT, one);
  return perSecond(count, began);
}

/** One request, and so many replies on an inbox of its own. */
async function gatherBare(nc: NatsConnection, count: number): Promise<void> {
  const inbox = createInbox();
  const replies = nc.subscribe(inbox, { max: count });
  nc.publish(BARE_ALL, JSON.stringify({ text: TEXT }), { reply: inbox });
  let came = 0;
  for await (const _ of replies) came += 1;
  complete("bare scatter", came, count);
}

/** So many calls begun at once to somebody who says nothing: what they take, and that no more wait than may. */
async function flight(connection: Connection, count: number): Promise<number> {
  const { nc, inboxPrefix: prefix } = connection;
  const caller = { principal: principal(OPEN_OWNER, "flight"), uid: drawLifecycleUid(randomBytes) };
  const rail = createRail({
    nc,
    space: SPACE,
    caller,
    name: "flight",
    inboxPrefix: prefix,
    denials: watchDenials(nc),
    random: pooledRandom(),
  });
  // Somebody has to hear it, or the broker says at once that nobody does.
  const silent = nc.subscribe(`cotal.${SPACE}.ep.one.${SILENT.replaceAll(".", "_")}.>`, { callback: () => undefined });
  await nc.flush();
  const before = process.memoryUsage().heapUsed;
  const address = { route: "one", endpoint: SILENT, command: "echo" } as const;
  const calls = Array.from({ length: count }, () => rail.ask({ address, args: { text: TEXT } }, FLIGHT_MS));
  const settled = Promise.allSettled(calls);
  await nc.flush();
  complete("calls that wait", rail.pending(), Math.min(count, 1024));
  const grown = process.memoryUsage().heapUsed - before;
  await settled;
  silent.unsubscribe();
  return Math.max(grown, 0) / 1e6;
}
