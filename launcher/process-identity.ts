/**
 * Which process is meant: a pid alone may have been given to another one since (field case 34).
 *
 * Invariants
 * 1. An identity is pid, start time and boot. Nothing is signalled unless all three agree.
 * 2. A process that has ended but is not yet reaped counts as gone.
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { CotalError, ErrorCode } from "../shared/protocol/base/errors.ts";

export const ProcessIdentity = z.strictObject({
  pid: z.number().int().positive(),
  /** Start time as the system tells it; compared, never computed with. */
  start: z.string().min(1),
  /** This boot of the machine; empty where the system has no name for it. */
  boot: z.string(),
});
export type ProcessIdentity = z.infer<typeof ProcessIdentity>;

/** The identity of a process that runs now; `undefined` if there is none. */
export function identify(pid: number): ProcessIdentity | undefined {
  const start = startOf(pid);
  return start === undefined ? undefined : { pid, start, boot: bootId() };
}

/** This process. */
export function ownIdentity(): ProcessIdentity {
  const own = identify(process.pid);
  if (own === undefined) throw new CotalError(ErrorCode.Internal, "the system does not tell when this process began");
  return own;
}

export function isAlive(identity: ProcessIdentity): boolean {
  const now = identify(identity.pid);
  return now !== undefined && now.start === identity.start && now.boot === identity.boot;
}

/** Signals exactly this process; false if it is gone, or the pid is somebody else's now. */
export function signalProcess(identity: ProcessIdentity, signal: NodeJS.Signals): boolean {
  if (!isAlive(identity)) return false;
  try {
    process.kill(identity.pid, signal);
    return true;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ESRCH") return false;
    throw new CotalError(ErrorCode.PermissionDenied, `process ${identity.pid} belongs to another user`, {
      next: "stop it as the user who started it",
      cause: error,
    });
  }
}

/** Waits until it is gone; false when it is still there after the time. */
export async function waitGone(identity: ProcessIdentity, timeoutMs: number): Promise<boolean> {
  const deadline = performance.now() + timeoutMs;
  while (isAlive(identity)) {
    if (performance.now() >= deadline) return false;
    await sleep(25);
  }
  return true;
}

/** SIGTERM, and SIGKILL after the grace time; true once it is proved gone. */
export async function endProcess(identity: ProcessIdentity, graceMs: number): Promise<boolean> {
  if (!signalProcess(identity, "SIGTERM")) return true;
  if (await waitGone(identity, graceMs)) return true;
  signalProcess(identity, "SIGKILL");
  return waitGone(identity, 2000);
}

/** Fields of `/proc/<pid>/stat` after the command's name, which may hold blanks and brackets. */
const STATE_FIELD = 0;
const START_FIELD = 19;

function startOf(pid: number): string | undefined {
  if (process.platform !== "linux") return startFromPs(pid);
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    return undefined;
  }
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const state = fields[STATE_FIELD];
  return state === "Z" || state === "X" ? undefined : fields[START_FIELD];
}

function startFromPs(pid: number): string | undefined {
  try {
    const text = execFileSync("ps", ["-o", "lstart=", "-p", String(pid)], { encoding: "utf8" }).trim();
    return text === "" ? undefined : text;
  } catch {
    return undefined;
  }
}

let boot: string | undefined;

function bootId(): string {
  if (boot === undefined) {
    try {
      boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    } catch {
      boot = "";
    }
  }
  return boot;
}
