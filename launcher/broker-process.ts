/**
 * The broker as a child process, on a port and a store that stay the same over its restarts.
 *
 * It writes its own bounded log and not into a pipe of ours: a broker whose launcher was killed must
 * not end with its next log line, because clients are still connected to it.
 */
import { spawn } from "node:child_process";
import { connect as dial, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";
import { type Child, adopt, endText } from "./child.ts";
import { lastLines } from "./log-file.ts";

export type BrokerProcess = {
  readonly binary: string;
  readonly config: string;
  readonly log: string;
  readonly host: string;
  readonly port: number;
};

const READY_TIMEOUT_MS = 30_000;
const LOG_LIMIT_BYTES = 8 * 1024 * 1024;

export function launchBroker(options: BrokerProcess): Promise<Child> {
  const { binary, config, log, host, port } = options;
  const args = ["-c", config, "-l", log, "--log_size_limit", String(LOG_LIMIT_BYTES)];
  return adopt({
    name: "the broker",
    log,
    process: spawn(binary, args, { stdio: "ignore", detached: true }),
    untilReady: (ended) => listening(host, port, ended),
    readyTimeoutMs: READY_TIMEOUT_MS,
    whyEnded: (end) =>
      new CotalError(
        ErrorCode.FailedPrecondition,
        `the broker ended with ${endText(end)}: ${lastLines(log, 1).join(" ")}`,
        { next: `read ${log}; if the port is taken, choose another with --port` },
      ),
  });
}

/** A server that listens sends INFO at once; an open port alone may be anything. */
async function listening(host: string, port: number, ended: AbortSignal): Promise<void> {
  while (!ended.aborted) {
    if (await saysInfo(host, port)) return;
    await sleep(15);
  }
}

export function saysInfo(host: string, port: number, timeoutMs = 1000): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = dial(port, host);
    const settle = (says: boolean): void => {
      socket.destroy();
      resolve(says);
    };
    socket.setTimeout(timeoutMs, () => settle(false));
    socket.once("data", (data) => settle(data.toString("latin1").startsWith("INFO ")));
    socket.once("error", () => settle(false));
    socket.once("close", () => settle(false));
  });
}

/** Refuses a port that another program has, with one that is free. */
export async function assertPortFree(host: string, port: number): Promise<void> {
  const taken = await listenOnce(host, port).then(
    () => undefined,
    (error: NodeJS.ErrnoException) => error,
  );
  if (taken === undefined) return;
  if (taken.code === "EACCES") {
    throw new CotalError(ErrorCode.PermissionDenied, `port ${port} is not allowed to this user`, {
      outcome: Outcome.NotExecuted,
      next: "choose one above 1023 with --port",
      cause: taken,
    });
  }
  const free = await freePort(host);
  throw new CotalError(ErrorCode.AlreadyExists, `port ${port} is taken by another program`, {
    outcome: Outcome.NotExecuted,
    next: `choose another: cotal up --port ${free} (it is remembered for this state folder)`,
    cause: taken,
  });
}

/** A port that was free a moment ago. */
function freePort(host: string): Promise<number> {
  return listenOnce(host, 0);
}

function listenOnce(host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen({ host, port, exclusive: true }, () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : port));
    });
  });
}
