/**
 * A real nats-server for one test file: a free port, a temporary folder, and the faults that a real
 * one can have (killed, frozen, restarted on the same port and store).
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, connect as dial } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { findBroker } from "../../launcher/broker-binary.ts";
import { printed } from "./printed.ts";
import { stopProcess } from "./stopped.ts";

export type TestBroker = {
  readonly port: number;
  /** `nats://127.0.0.1:<port>`. */
  readonly url: string;
  readonly folder: string;
  readonly pid: () => number;
  /** SIGKILL; the port and the store stay. */
  readonly kill: () => Promise<void>;
  /** Resolves once its process has ended, by whomever. */
  readonly ended: () => Promise<void>;
  /** Starts it again on the same port and store. */
  readonly restart: () => Promise<void>;
  /** SIGSTOP: connections stand and nothing answers. */
  readonly freeze: () => void;
  readonly thaw: () => void;
  /** The server's own log. */
  readonly log: () => string;
  /** Ends it and removes its folder. */
  readonly stop: () => Promise<void>;
};

export type BrokerOptions = {
  /** Whole configuration, given the port and an empty folder; the default is open, with JetStream. */
  readonly config?: (port: number, folder: string) => string;
  /** Makes a configuration file of its own and returns its path. */
  readonly configFile?: (port: number) => Promise<string>;
  /** More lines for the default configuration. */
  readonly lines?: readonly string[];
};

export async function startBroker(options: BrokerOptions = {}): Promise<TestBroker> {
  const folder = mkdtempSync(join(tmpdir(), "cotal-broker-"));
  const port = await freePort();
  const own = await options.configFile?.(port);
  const config = own ?? join(folder, "test.conf");
  const log = join(folder, "test.log");
  const text =
    options.config?.(port, folder) ??
    [
      `listen: "127.0.0.1:${port}"`,
      `max_control_line: 65536`,
      `jetstream { store_dir: ${JSON.stringify(join(folder, "store"))} }`,
      ...(options.lines ?? []),
    ].join("\n");
  if (own === undefined) writeFileSync(config, `${text}\n`);
  const { path } = findBroker(process.env);
  let child: ChildProcess;
  const start = async (): Promise<void> => {
    child = spawn(path, ["-c", config, "-l", log], { stdio: "ignore" });
    const exited = new Promise<never>((_, reject) =>
      child.once("exit", (code) => reject(new Error(`nats-server ended with ${code}: ${readLog(log)}`))),
    );
    exited.catch(() => undefined);
    await Promise.race([listening(port), exited]);
  };
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    child.kill(signal);
    await over(child);
  };
  await start();
  return {
    port,
    url: `nats://127.0.0.1:${port}`,
    folder,
    pid: () => child.pid ?? 0,
    kill: () => end("SIGKILL"),
    ended: () => over(child),
    restart: start,
    freeze: () => stopProcess(child.pid ?? 0),
    thaw: () => void child.kill("SIGCONT"),
    log: () => readLog(log),
    stop: async () => {
      child.kill("SIGCONT");
      await end("SIGKILL");
      printed("broker", readLog(log));
      rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

function over(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  return new Promise((resolve) => child.once("exit", () => resolve()));
}

/** A port that was free a moment ago. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}

async function listening(port: number): Promise<void> {
  for (let tries = 0; tries < 400; tries += 1) {
    if (await answers(port)) return;
    await sleep(25);
  }
  throw new Error(`nothing listens on ${port} after 10 s`);
}

/** A server that listens sends INFO at once; a port alone may be a leftover. */
function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = dial(port, "127.0.0.1");
    const settle = (ok: boolean): void => {
      socket.destroy();
      resolve(ok);
    };
    socket.setTimeout(1000, () => settle(false));
    socket.once("data", () => settle(true));
    socket.once("error", () => settle(false));
  });
}

function readLog(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
