/**
 * `idle`: what a space costs at rest, how long `cotal up` takes, and how long a session is without
 * it after a `kill -9`.
 *
 * All of it on the product as it ships: the CLI starts the plane, its launcher restarts what dies.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { userCredentials } from "../../cli/signin.ts";
import { connect } from "../../shared/client/index.ts";
import { type TestPlane, cli, planeOn } from "../support/cli.ts";
import { freePort, startBroker } from "../support/nats-server.ts";
import { type Metric, type Report, benchLine } from "./line.ts";
import { pause } from "./jobs.ts";
import { residentMiB } from "./resident.ts";

export type IdleSizes = {
  readonly starts: number;
  readonly kills: number;
  /** How long everything rests before it is measured. */
  readonly restMs: number;
};

export const IDLE_SIZES: IdleSizes = { starts: 3, kills: 3, restMs: 5000 };

const BENCH = "idle";
const CLIENT = join(import.meta.dirname, "bare-client.ts");
const CHANNEL = "general";
/** Between a return and the next kill. */
const CALM_MS = 1000;
/** A request that went out before the daemon was back is never answered: the next try comes soon. */
const READ_TIMEOUT_MS = 500;

type Daemon = "provisioner" | "auth" | "delivery" | "launcher" | "broker";
const DAEMONS: readonly (readonly [Daemon, Omit<Metric, "metric" | "unit">])[] = [
  ["provisioner", { aim: "< 120", note: "bare: a node process with one nats.js connection" }],
  ["auth", { aim: "< 120", note: "bare: the same" }],
  ["delivery", { aim: "< 120", note: "bare: the same" }],
  ["launcher", { aim: "< 120", note: "bare: the same" }],
  ["broker", { note: "bare: the same binary with JetStream and no streams" }],
];

const RECOVER_NOTE = "kill -9 until a send is stored and a read answered";
const START: Metric = { metric: "start_ms", unit: "ms", aim: "< 5000", note: "cold state folder, to ready" };
const RECOVER = {
  broker: { metric: "recover_ms_broker", unit: "ms", aim: "< 10000", note: RECOVER_NOTE },
  provisioner: { metric: "recover_ms_provisioner", unit: "ms", aim: "< 10000", note: RECOVER_NOTE },
} as const satisfies Record<string, Metric>;

export async function idle(report: Report, sizes: IdleSizes = IDLE_SIZES): Promise<void> {
  const took: number[] = [];
  const start = async (): Promise<TestPlane> => {
    const { plane, ms } = await coldStart();
    took.push(ms);
    return plane;
  };
  for (let more = sizes.starts; more > 1; more -= 1) await (await start()).stop();
  const plane = await start();
  try {
    report(benchLine(BENCH, START, took), START);
    await memory(plane, sizes, report);
    await recovery(plane, sizes, report);
  } finally {
    await plane.stop();
  }
}

/** `cotal up` on a folder that isn't there yet, the command's own start included. */
async function coldStart(): Promise<{ readonly plane: TestPlane; readonly ms: number }> {
  const state = mkdtempSync(join(tmpdir(), "cotal-bench-"));
  const port = await freePort();
  const began = performance.now();
  const up = await cli(["up", "--detach", "--json", "--state", state, "--port", String(port)]);
  const ms = performance.now() - began;
  if (up.code !== 0) {
    rmSync(state, { recursive: true, force: true });
    throw new Error(`up ended with ${up.code}: ${up.out} ${up.err}`);
  }
  return { plane: planeOn(state, port), ms };
}

async function memory(plane: TestPlane, { restMs }: IdleSizes, report: Report): Promise<void> {
  const beside = await startBareProcesses();
  try {
    await untilWhole(plane);
    await pause(restMs);
    for (const [daemon, about] of DAEMONS) {
      const metric: Metric = { ...about, metric: `rss_${daemon}`, unit: "MiB" };
      const bare = daemon === "broker" ? beside.broker : beside.client;
      report(benchLine(BENCH, metric, [residentMiB(plane.pid(daemon))], [residentMiB(bare)]), metric);
    }
  } finally {
    await beside.stop();
  }
}

/** The delivery service is started behind the plane: nobody waits for it but who measures it. */
async function untilWhole(plane: TestPlane): Promise<void> {
  while (plane.pid("delivery") === 0) await pause(20);
}

async function recovery(plane: TestPlane, { kills }: IdleSizes, report: Report): Promise<void> {
  const session = await connect({
    servers: [plane.server],
    credentials: userCredentials({ state: plane.state, space: "main" }, "bench"),
    limits: { readTimeoutMs: READ_TIMEOUT_MS },
  });
  const work = async (): Promise<void> => {
    await session.send(CHANNEL, "is it back?");
    await session.roster();
  };
  try {
    for (const daemon of ["broker", "provisioner"] as const) {
      const took: number[] = [];
      for (let kill = 0; kill < kills; kill += 1) {
        await work();
        await pause(CALM_MS);
        took.push(await untilBack(plane.pid(daemon), work));
      }
      report(benchLine(BENCH, RECOVER[daemon], took), RECOVER[daemon]);
    }
  } finally {
    await session.close();
  }
}

/** Kills it and asks until it answers, the way a user would: each failure is followed by another try. */
async function untilBack(pid: number, work: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  process.kill(pid, "SIGKILL");
  // What was under way when it died may still be answered: the end is waited for first.
  while (isAlive(pid)) await pause(1);
  for (;;) {
    try {
      await work();
      return performance.now() - began;
    } catch {
      if (performance.now() - began > 60_000) throw new Error("nothing is back after a minute");
      await pause(20);
    }
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

type Beside = { readonly broker: number; readonly client: number; readonly stop: () => Promise<void> };

async function startBareProcesses(): Promise<Beside> {
  const broker = await startBroker();
  const client = fork(CLIENT, [broker.url]);
  await once(client, "message");
  return {
    broker: broker.pid(),
    client: client.pid ?? 0,
    stop: async () => {
      const ended = once(client, "exit");
      client.disconnect();
      await ended;
      await broker.stop();
    },
  };
}
