/**
 * What a person asks of a plane from outside: is it there, how is it, end it.
 *
 * Invariants
 * 1. Records are claims. What they name is compared with the system before it is shown as running,
 *    and never signalled otherwise (process-identity.ts).
 * 2. `stopPlane` returns when every process of the record is proved gone.
 */
import { existsSync } from "node:fs";
import { CotalError, ErrorCode } from "../shared/protocol/base/errors.ts";
import { saysInfo } from "./broker-process.ts";
import { isLocked } from "./lock.ts";
import { type ChildRecord, type PlaneRecord, liveChildren, readPlane, removePlane } from "./plane-record.ts";
import { endProcess, isAlive, signalProcess, waitGone } from "./process-identity.ts";
import { type HealthCheck, failingChecks } from "./readyz.ts";
import { LOOPBACK, planePaths } from "./state-folder.ts";

export type ChildStatus = {
  readonly name: string;
  readonly pid: number;
  readonly restarts: number;
  /**
   * `down`: not running; `failing`: runs, and says that something is wrong; `silent`: does not answer.
   */
  readonly health: "ok" | "failing" | "silent" | "down";
  /** Checks that fail. */
  readonly failing: readonly HealthCheck[];
};

export type PlaneStatus =
  | { readonly kind: "none" }
  /** There is a record whose launcher is gone. */
  | { readonly kind: "crashed"; readonly record: PlaneRecord; readonly left: readonly ChildRecord[] }
  | { readonly kind: "running"; readonly record: PlaneRecord; readonly children: readonly ChildStatus[] };

/** The parts of a plane, in the order in which they start. */
const EXPECTED: Readonly<Record<PlaneRecord["auth"], readonly string[]>> = {
  static: ["broker", "provisioner", "delivery"],
  open: ["broker", "provisioner", "delivery"],
  user: ["broker", "provisioner", "auth", "delivery"],
};
const STOP_TIMEOUT_MS = 15_000;

export async function planeStatus(state: string): Promise<PlaneStatus> {
  const record = readPlane(state);
  if (record === undefined) {
    await assertReadable(state);
    return { kind: "none" };
  }
  if (!isAlive(record.launcher)) return { kind: "crashed", record, left: liveChildren(record) };
  const children = await Promise.all(EXPECTED[record.auth].map((name) => childStatus(record, name)));
  return { kind: "running", record, children };
}

/** Refuses to say that nothing runs while a launcher is there whose record does not parse. */
async function assertReadable(state: string): Promise<void> {
  const { record } = planePaths(state);
  if (!existsSync(record) || !(await isLocked(state))) return;
  throw new CotalError(ErrorCode.FailedPrecondition, `a space runs on ${state}, and its record ${record} is damaged`, {
    next: "end it with Ctrl-C in its terminal, or end the process that runs cotal up",
  });
}

async function childStatus(record: PlaneRecord, name: string): Promise<ChildStatus> {
  const child = record.children.find((one) => one.name === name);
  if (child === undefined || !isAlive(child.process)) {
    return { name, pid: child?.process.pid ?? 0, restarts: child?.restarts ?? 0, health: "down", failing: [] };
  }
  const seen = name === "broker" ? await brokerHealth(record) : await daemonHealth(child);
  return { name, pid: child.process.pid, restarts: child.restarts, ...seen };
}

type Seen = Pick<ChildStatus, "health" | "failing">;

async function brokerHealth(record: PlaneRecord): Promise<Seen> {
  return { health: (await saysInfo(LOOPBACK, record.port, 2000)) ? "ok" : "silent", failing: [] };
}

async function daemonHealth(child: ChildRecord): Promise<Seen> {
  const failing = child.health === undefined ? undefined : await failingChecks(child.health);
  if (failing === undefined) return { health: "silent", failing: [] };
  return { health: failing.length === 0 ? "ok" : "failing", failing };
}

/** Ends the plane of this state and waits until it is gone; false if none ran. */
export async function stopPlane(state: string): Promise<boolean> {
  const record = readPlane(state);
  if (record === undefined) {
    await assertReadable(state);
    return false;
  }
  const ran = signalProcess(record.launcher, "SIGTERM");
  if (ran && !(await waitGone(record.launcher, STOP_TIMEOUT_MS))) {
    signalProcess(record.launcher, "SIGKILL");
    await waitGone(record.launcher, 2000);
  }
  // Read again: a launcher that was ended by force may have started another child meanwhile.
  const left = liveChildren(readPlane(state) ?? record);
  for (const child of left.toReversed()) {
    if (await endProcess(child.process, 3000)) continue;
    throw new CotalError(ErrorCode.FailedPrecondition, `process ${child.process.pid} (${child.name}) does not end`, {
      next: "end it by hand",
    });
  }
  if (readPlane(state)?.startedAt === record.startedAt) removePlane(state);
  return ran || left.length > 0;
}
