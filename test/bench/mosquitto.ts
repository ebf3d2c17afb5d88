/**
 * Mosquitto with persistence: receivers are sessions that it keeps, QoS 1, and no bound on what waits for them.
 * It writes its database at intervals (half an hour) and when it ends, so a kill shows what it had only in memory.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "../support/nats-server.ts";
import { BODY, IN_FLIGHT } from "./fanout-sizes.ts";
import { pause, pipelined } from "./jobs.ts";
import { type Mqtt, openMqtt } from "./mqtt.ts";
import type { OtherBroker } from "./other-broker.ts";

const TOPIC = "bench/fanout";
const AT_ONCE = 64;
const QUIET_MS = 1000;

export async function startMosquitto(program: string): Promise<OtherBroker> {
  const folder = mkdtempSync(join(tmpdir(), "bench-mosquitto-"));
  const port = await freePort();
  const config = join(folder, "mosquitto.conf");
  const lines = [
    `listener ${port} 127.0.0.1`,
    "allow_anonymous true",
    "user root",
    "persistence true",
    `persistence_location ${folder}/`,
    "max_queued_messages 0",
    "max_queued_bytes 0",
    "max_inflight_messages 1000",
    "log_dest none",
  ];
  writeFileSync(config, `${lines.join("\n")}\n`);
  let server: ChildProcess | undefined;
  let publisher: Mqtt | undefined;
  const start = async (): Promise<void> => {
    server = spawn(program, ["-c", config], { stdio: "ignore" });
    publisher = await untilOpen(port);
  };
  const kill = async (): Promise<void> => {
    if (server === undefined || server.exitCode !== null || server.signalCode !== null) return;
    const ended = once(server, "exit");
    server.kill("SIGKILL");
    await ended;
  };
  const publish = (): Promise<void> => publisher?.publish(TOPIC, BODY) ?? Promise.resolve();
  let count = 0;
  const open = (n: number, clean: boolean, onMessage = (): void => undefined): Promise<Mqtt> =>
    openMqtt({ port, id: `receiver${n}`, clean, onMessage });
  const each = (run: (n: number) => Promise<void>): Promise<void> => pipelined(count, AT_ONCE, run);

  const beAway = (): Promise<void> =>
    each(async (n) => {
      const session = await open(n, false);
      await session.subscribe(TOPIC);
      await session.close();
    });
  const forget = (): Promise<void> => each(async (n) => (await open(n, true)).close());

  await start();
  return {
    name: "mosquitto",
    receivers: (wanted) => {
      count = wanted;
      return beAway();
    },
    flood: (posts) => pipelined(posts, IN_FLIGHT, publish),
    empty: async () => {
      await forget();
      await beAway();
    },
    forget,
    catchUp: async (wanted) => {
      let came = 0;
      let all: (() => void) | undefined;
      const done = new Promise<void>((resolve) => {
        all = resolve;
      });
      const began = performance.now();
      const session = await open(1, false, () => {
        came += 1;
        if (came === wanted) all?.();
      });
      await done;
      const took = performance.now() - began;
      await session.close();
      return took;
    },
    latency: async (posts) => {
      const taken: number[] = [];
      let arrived: (() => void) | undefined;
      const session = await open(1, false, () => arrived?.());
      for (let n = 0; n < posts; n += 1) {
        const coming = new Promise<void>((resolve) => {
          arrived = resolve;
        });
        const sentAt = performance.now();
        const confirmed = publish();
        await coming;
        taken.push(performance.now() - sentAt);
        await confirmed;
      }
      await session.close();
      return taken;
    },
    afterKill: async () => {
      await kill();
      await start();
      let left = 0;
      await each(async (n) => {
        const session = await open(n, false, () => (left += 1));
        let seen = -1;
        while (session.wasKept && seen !== left) {
          seen = left;
          await pause(QUIET_MS);
        }
        await session.close();
      });
      return left;
    },
    stop: async () => {
      await kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function untilOpen(port: number): Promise<Mqtt> {
  for (let tries = 0; ; tries += 1) {
    try {
      return await openMqtt({ port, id: "publisher", clean: true });
    } catch (thrown) {
      if (tries > 200) throw thrown;
      await pause(50);
    }
  }
}
