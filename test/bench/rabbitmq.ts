/**
 * RabbitMQ: a fanout exchange to durable classic queues of either version, persistent messages, publisher confirms. A
 * confirm says that every queue has the message.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ChannelModel, type ConfirmChannel, connect } from "amqplib";
import { freePort } from "../support/nats-server.ts";
import { BODY, IN_FLIGHT } from "./fanout-sizes.ts";
import { pause, pipelined } from "./jobs.ts";
import { type OtherBroker, findProgram } from "./other-broker.ts";

export type QueueVersion = 1 | 2;

/** Debian's own start script changes the user and the folders: the one that it calls does not. */
const DEBIAN = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const EXCHANGE = "bench";
const PREFETCH = 1000;
/** Acknowledged together, as its users do for speed. */
const ACK_EVERY = 100;
const AT_ONCE = 64;

export async function startRabbitmq(
  program: string,
  version: QueueVersion,
  env: NodeJS.ProcessEnv,
): Promise<OtherBroker> {
  const server = await startServer(existsSync(DEBIAN) ? DEBIAN : program, env);
  let channel: ConfirmChannel | undefined;
  const open = async (): Promise<ConfirmChannel> => {
    if (channel !== undefined) return channel;
    const connection = await server.open();
    // Its end, by a kill, is no failure.
    connection.on("error", () => undefined);
    channel = await connection.createConfirmChannel();
    channel.on("error", () => undefined);
    await channel.assertExchange(EXCHANGE, "fanout", { durable: true });
    await channel.prefetch(PREFETCH);
    return channel;
  };
  const queue = (n: number): string => `receiver${n}`;
  let count = 0;
  const each = async (run: (at: ConfirmChannel, name: string) => Promise<unknown>): Promise<void> => {
    const at = await open();
    await pipelined(count, AT_ONCE, (n) => run(at, queue(n)));
  };
  const publish = (at: ConfirmChannel): Promise<void> =>
    new Promise((resolve, reject) => {
      at.publish(EXCHANGE, "", BODY, { persistent: true }, (error: unknown) => {
        if (error === null || error === undefined) resolve();
        else reject(new Error("RabbitMQ refused a message", { cause: error }));
      });
    });

  return {
    name: `rabbitmq_v${version}`,
    receivers: async (wanted) => {
      count = wanted;
      await each(async (at, name) => {
        await at.assertQueue(name, { durable: true, arguments: { "x-queue-version": version } });
        await at.bindQueue(name, EXCHANGE, "");
      });
    },
    flood: async (posts) => {
      const at = await open();
      await pipelined(posts, IN_FLIGHT, () => publish(at));
    },
    empty: () => each((at, name) => at.purgeQueue(name)),
    forget: () => each((at, name) => at.deleteQueue(name)),
    catchUp: async (wanted) => {
      const at = await open();
      let came = 0;
      const began = performance.now();
      await new Promise<void>((resolve, reject) => {
        const take = (message: Parameters<typeof at.ack>[0] | null): void => {
          if (message === null) return reject(new Error("the queue is gone"));
          came += 1;
          if (came % ACK_EVERY === 0 || came === wanted) at.ack(message, true);
          if (came === wanted) resolve();
        };
        at.consume(queue(1), take, { consumerTag: "reader" }).catch(reject);
      });
      const took = performance.now() - began;
      await at.cancel("reader");
      return took;
    },
    latency: async (posts) => {
      const at = await open();
      const taken: number[] = [];
      let arrived: (() => void) | undefined;
      const take = (message: Parameters<typeof at.ack>[0] | null): void => {
        if (message !== null) at.ack(message);
        arrived?.();
      };
      await at.consume(queue(1), take, { consumerTag: "reader" });
      for (let n = 0; n < posts; n += 1) {
        const coming = new Promise<void>((resolve) => {
          arrived = resolve;
        });
        const sentAt = performance.now();
        const confirmed = publish(at);
        await coming;
        taken.push(performance.now() - sentAt);
        await confirmed;
      }
      await at.cancel("reader");
      return taken;
    },
    afterKill: async () => {
      channel = undefined;
      await server.kill();
      server.start();
      let left = 0;
      await each(async (at, name) => {
        const { messageCount } = await at.checkQueue(name);
        left += messageCount;
      });
      return left;
    },
    stop: server.stop,
  };
}

async function startServer(program: string, env: NodeJS.ProcessEnv) {
  const folder = mkdtempSync(join(tmpdir(), "bench-rabbitmq-"));
  const [port, distPort, epmdPort] = [await freePort(), await freePort(), await freePort()];
  const config = join(folder, "rabbitmq.conf");
  writeFileSync(config, `listeners.tcp.1 = 127.0.0.1:${port}\nlog.console = false\nlog.file = false\n`);
  const plugins = join(folder, "enabled_plugins");
  writeFileSync(plugins, "[].\n");
  const own = {
    ...env,
    HOME: folder,
    ERL_EPMD_PORT: String(epmdPort),
    ERL_EPMD_ADDRESS: "127.0.0.1",
    RABBITMQ_NODENAME: `bench${port}@localhost`,
    RABBITMQ_DIST_PORT: String(distPort),
    RABBITMQ_MNESIA_BASE: join(folder, "data"),
    RABBITMQ_LOG_BASE: join(folder, "log"),
    RABBITMQ_PID_FILE: join(folder, "pid"),
    RABBITMQ_CONFIG_FILE: config,
    RABBITMQ_ENABLED_PLUGINS_FILE: plugins,
    RABBITMQ_CONF_ENV_FILE: join(folder, "none"),
  };
  // Erlang would start its name service by itself, and leave it behind.
  const names = findProgram("epmd", env);
  const epmd = names === undefined ? undefined : spawn(names, [], { env: own, stdio: "ignore" });
  let server: ChildProcess | undefined;
  const start = (): void => {
    // A group of its own: the start script and what it starts end together.
    server = spawn(program, [], { env: own, stdio: "ignore", detached: true });
  };
  const kill = async (): Promise<void> => {
    if (server?.pid === undefined || server.exitCode !== null || server.signalCode !== null) return;
    const ended = once(server, "exit");
    process.kill(-server.pid, "SIGKILL");
    await ended;
  };
  start();
  return {
    start,
    kill,
    open: async (): Promise<ChannelModel> => {
      for (let tries = 0; ; tries += 1) {
        try {
          return await connect({ port, hostname: "127.0.0.1" }, { noDelay: true });
        } catch (thrown) {
          if (tries > 300) throw thrown;
          await pause(200);
        }
      }
    },
    stop: async () => {
      await kill();
      epmd?.kill("SIGKILL");
      rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}
