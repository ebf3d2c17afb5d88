/**
 * A daemon as a child process: it tells over IPC where its health is served and when it is ready,
 * and it ends by itself when its launcher is gone.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { CotalError, ErrorCode } from "../shared/protocol/base/errors.ts";
import { EXIT_CODES, type ExitCode } from "../shared/daemon/exit-codes.ts";
import type { DaemonEvent } from "../shared/daemon/host.ts";
import { type Child, type ChildEnd, adopt, endText } from "./child.ts";
import { childEnv } from "./child-env.ts";
import { daemonMemory } from "./daemon-memory.ts";
import { type LogFile, lastLines, openLogFile } from "./log-file.ts";
import { type HealthCheck, failingChecks } from "./readyz.ts";
import { parseJson } from "./state-folder.ts";

export type DaemonProcess = {
  readonly name: string;
  /** Its `main.ts`. */
  readonly program: string;
  readonly env: Readonly<Record<string, string>>;
  readonly log: string;
  readonly listening: (healthPort: number) => void;
  /** Told every few seconds of a start that takes longer, with what the daemon says. */
  readonly waiting: (why: string) => void;
  /**
   * Whether it serves what this start is for, though these checks fail: it may keep several spaces,
   * and one that can't be served takes no other along. Asked when it takes longer than usual.
   */
  readonly isEnough: (failing: readonly HealthCheck[]) => boolean;
};

const READY_TIMEOUT_MS = 30_000;
const ASK_MS = 3000;

/** Milliseconds a daemon gets to finish what is in flight: all of it must fit in ten seconds. */
export const DAEMON_DRAIN_MS = 6000;

export function launchDaemon(options: DaemonProcess): Promise<Child> {
  const { name, program, env, log } = options;
  let why: string | undefined;
  const waiting = (next: string): void => {
    if (next !== why) options.waiting(next);
    why = next;
  };
  const file = openLogFile(log);
  const memory = daemonMemory(name);
  const child = spawn(process.execPath, [...memory.flags, program], {
    stdio: ["ignore", "pipe", "pipe", "ipc"],
    detached: true,
    env: childEnv({
      ...memory.env,
      ...env,
      COTAL_PARENT_IPC: "true",
      COTAL_HEALTH_PORT: "0",
      COTAL_DRAIN_MS: String(DAEMON_DRAIN_MS),
    }),
  });
  child.stdout?.on("data", file.write);
  child.stderr?.on("data", file.write);
  child.once("close", () => file.close());
  return adopt({
    name,
    log,
    process: child,
    untilReady: (ended) => untilReady(child, ended, { ...options, waiting }),
    whyLate: () => why,
    readyTimeoutMs: READY_TIMEOUT_MS,
    whyEnded: (end) => whyEnded(name, log, end, file),
  });
}

function untilReady(child: ChildProcess, ended: AbortSignal, options: DaemonProcess): Promise<void> {
  return new Promise((resolve) => {
    let timer: NodeJS.Timeout | undefined;
    const settle = (): void => {
      clearInterval(timer);
      timer = undefined;
      resolve();
    };
    const ask = async (port: number): Promise<void> => {
      const failing = (await failingChecks(port)) ?? [];
      const [first] = failing;
      if (first === undefined || ended.aborted || timer === undefined) return;
      options.waiting(`${first.name}: ${first.detail}`);
      if (options.isEnough(failing)) settle();
    };
    ended.addEventListener("abort", settle, { once: true });
    child.on("message", (event: DaemonEvent) => {
      if (event.kind === "ready") return settle();
      options.listening(event.health);
      timer ??= setInterval(() => void ask(event.health), ASK_MS);
    });
  });
}

function whyEnded(name: string, log: string, end: ChildEnd, file: LogFile): CotalError {
  file.close();
  const known: { readonly meaning: string } | undefined =
    end.code === null ? undefined : EXIT_CODES[end.code as ExitCode];
  const cause = lastFault(log);
  const why = [known?.meaning, cause].filter((part) => part !== undefined).join(": ");
  return new CotalError(
    ErrorCode.FailedPrecondition,
    `the ${name} ended with ${endText(end)}${why === "" ? "" : ` (${why})`}`,
    { next: `read ${log}` },
  );
}

/** The message of the last error in a JSON log. */
function lastFault(log: string): string | undefined {
  for (const line of lastLines(log, 50).toReversed()) {
    const entry = parseJson(line);
    if (typeof entry !== "object" || entry === null || !("level" in entry)) continue;
    if (entry.level !== "fatal" && entry.level !== "error") continue;
    const err = "err" in entry ? entry.err : undefined;
    if (typeof err === "object" && err !== null && "message" in err && typeof err.message === "string") {
      return err.message;
    }
    if ("msg" in entry && typeof entry.msg === "string") return entry.msg;
  }
  return undefined;
}
