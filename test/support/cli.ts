/**
 * The CLI as real processes: one-shot runs, long ones that are told to stop, and a whole plane on a
 * temporary state folder and a free port.
 *
 * Every process a helper starts is ended by `endAll`; `leftOf` looks for what a plane left behind.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { freePort } from "./nats-server.ts";
import { auditIssues } from "./issued-audit.ts";
import { keepState, printed } from "./printed.ts";

const BIN = join(import.meta.dirname, "..", "..", "cli", "bin.js");

export type Item = { readonly kind: string; readonly [field: string]: unknown };

export type Ran = {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
  /** Standard output as objects; empty lines are none. Throws if a line is no JSON. */
  readonly items: () => Item[];
};

export type Running = {
  readonly process: ChildProcess;
  /** Standard output and error so far. */
  readonly out: () => string;
  readonly err: () => string;
  /** Waits until standard output or error contains the text. */
  readonly saying: (text: string, timeoutMs?: number) => Promise<void>;
  /** Objects on standard output so far. */
  readonly items: () => Item[];
  readonly ended: Promise<Ran>;
};

export type CliOptions = {
  readonly node?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Its own process group, as a terminal's foreground job has. */
  readonly group?: boolean;
  readonly input?: string;
};

const running = new Set<ChildProcess>();

/** Starts `cotal` with these arguments. */
export function startCli(args: readonly string[], options: CliOptions = {}): Running {
  const child = spawn(options.node ?? process.execPath, [BIN, ...args], {
    stdio: [options.input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
    detached: options.group === true,
    env: { ...cleanEnv(), ...options.env },
  });
  running.add(child);
  if (options.input !== undefined) child.stdin?.end(options.input);
  let out = "";
  let err = "";
  child.stdout?.setEncoding("utf8").on("data", (text: string) => {
    out += text;
    printed("cli", text);
  });
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    err += text;
    printed("cli", text);
  });
  const ended = new Promise<Ran>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => {
      running.delete(child);
      resolve({ code, out, err, items: () => itemsOf(out) });
    });
  });
  return {
    process: child,
    out: () => out,
    err: () => err,
    items: () => itemsOf(out.slice(0, out.lastIndexOf("\n") + 1)),
    ended,
    saying: async (text, timeoutMs = 20_000) => {
      const deadline = Date.now() + timeoutMs;
      while (!`${out}\n${err}`.includes(text)) {
        if (Date.now() > deadline) throw new Error(`never said ${JSON.stringify(text)}; out: ${out}; err: ${err}`);
        await sleep(20);
      }
    },
  };
}

/** Runs `cotal` to its end. */
export function cli(args: readonly string[], options: CliOptions = {}): Promise<Ran> {
  return startCli(args, options).ended;
}

function itemsOf(text: string): Item[] {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Item);
}

/** No setting of the person who runs the tests, and no colour. */
function cleanEnv(): Record<string, string> {
  const kept = Object.entries(process.env).filter(
    (entry): entry is [string, string] =>
      entry[1] !== undefined && !/^(?:COTAL_|FORCE_COLOR$|NO_COLOR$|NODE_OPTIONS$|VITEST)/.test(entry[0]),
  );
  return Object.fromEntries(kept);
}

export type TestPlane = {
  readonly state: string;
  readonly port: number;
  readonly server: string;
  /** Runs a command on this state. */
  readonly run: (...args: string[]) => Promise<Ran>;
  /** The same with `--json`; throws if it did not end with 0. */
  readonly json: (...args: string[]) => Promise<Item[]>;
  readonly start: (...args: string[]) => Running;
  readonly pid: (child: "launcher" | "broker" | "provisioner" | "auth" | "delivery") => number;
  readonly stop: () => Promise<void>;
};

/** A plane in the background. */
export async function startPlane(...args: string[]): Promise<TestPlane> {
  const state = mkdtempSync(join(tmpdir(), "cotal-plane-"));
  const port = await freePort();
  const up = await cli(["up", "--detach", "--json", "--state", state, "--port", String(port), ...args]);
  if (up.code !== 0) throw new Error(`up ended with ${up.code}: ${up.out} ${up.err}`);
  const plane = planeOn(state, port);
  const audit = await auditIssues(state, plane.server);
  return {
    ...plane,
    stop: async () => {
      await audit.end();
      await plane.stop();
    },
  };
}

export function planeOn(state: string, port: number): TestPlane {
  const run = (...rest: string[]): Promise<Ran> => cli([...rest, "--state", state]);
  return {
    state,
    port,
    server: `nats://127.0.0.1:${port}`,
    run,
    json: async (...rest) => {
      const ran = await run(...rest, "--json");
      if (ran.code !== 0) throw new Error(`${rest.join(" ")} ended with ${ran.code}: ${ran.out} ${ran.err}`);
      return ran.items();
    },
    start: (...rest) => startCli([...rest, "--state", state]),
    pid: (child) => recordedPid(state, child),
    stop: async () => {
      await run("down");
      endAll();
      keepState(state);
      rmSync(state, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

type Recorded = { readonly launcher: { pid: number }; readonly children: { name: string; process: { pid: number } }[] };

/** The pid that the plane's record names now; 0 if it names none. */
function recordedPid(state: string, name: string): number {
  const path = join(state, "run", "plane.json");
  if (!existsSync(path)) return 0;
  const record = JSON.parse(readFileSync(path, "utf8")) as Recorded;
  if (name === "launcher") return record.launcher.pid;
  return record.children.find((child) => child.name === name)?.process.pid ?? 0;
}

/** Ends every process that a helper of this file started and that still runs. */
export function endAll(): void {
  for (const child of running) child.kill("SIGKILL");
}

/** Processes whose command line or working files name this folder. */
export function leftOf(state: string): string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .flatMap((pid) => {
      try {
        const line = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
        const env = readFileSync(`/proc/${pid}/environ`, "utf8");
        return line.includes(state) || env.includes(state) ? [`${pid} ${line}`] : [];
      } catch {
        // It ended meanwhile, or belongs to somebody else.
        return [];
      }
    });
}

/** The texts of messages that a command printed as objects. */
export function textsOf(items: readonly Item[]): string[] {
  return items.map(({ parts }) => (parts as { text?: string }[]).map(({ text = "" }) => text).join(""));
}

/** vitest's asymmetric matchers, with a type that says nothing instead of `any`. */
export const matching = (pattern: RegExp): unknown => expect.stringMatching(pattern);
export const including = (...entries: readonly unknown[]): unknown => expect.arrayContaining([...entries]);

/** Asks again until it holds; the last answer is handed back for the assertion. */
export async function eventually<T>(
  ask: () => Promise<T> | T,
  holds: (answer: T) => boolean,
  timeoutMs = 20_000,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const answer = await ask();
    if (holds(answer) || Date.now() > deadline) return answer;
    await sleep(100);
  }
}

/** A Node older than the project asks for, if the machine has one. */
export function oldNode(): string | undefined {
  const folders = (process.env["PATH"] ?? "").split(":").filter((folder) => !folder.includes("node_modules"));
  return [...folders, "/usr/bin", "/usr/local/bin"]
    .map((folder) => join(folder, "node"))
    .find((path) => existsSync(path) && isOld(path));
}

function isOld(path: string): boolean {
  const version = spawnSync(path, ["--version"], { encoding: "utf8" }).stdout;
  return Number(/^v(\d+)\./.exec(version)?.[1] ?? 99) < 24;
}
