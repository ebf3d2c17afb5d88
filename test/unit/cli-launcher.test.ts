/** The launcher's own parts: who a process is, one launcher per folder, bounded logs, the record. */
import { spawn } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { childEnv } from "../../launcher/child-env.ts";
import { planeStatus, stopPlane } from "../../launcher/control.ts";
import { isLocked, takeLock } from "../../launcher/lock.ts";
import { lastLines, openLogFile } from "../../launcher/log-file.ts";
import { type PlaneRecord, livePlane, readPlane, writePlane } from "../../launcher/plane-record.ts";
import { endProcess, identify, isAlive, ownIdentity, signalProcess } from "../../launcher/process-identity.ts";
import { knownSpaces, planePaths, prepareState, readRemembered } from "../../launcher/state-folder.ts";
import { refusal } from "../support/refusal.ts";

let state: string;
const spawned: ReturnType<typeof spawn>[] = [];

beforeEach(() => {
  state = mkdtempSync(join(tmpdir(), "cotal-launcher-"));
  prepareState(state);
});
afterEach(() => {
  for (const child of spawned.splice(0)) child.kill("SIGKILL");
  rmSync(state, { recursive: true, force: true });
});

/** A harmless process of ours. */
async function sleeper() {
  const child = spawn("sleep", ["60"], { stdio: "ignore" });
  spawned.push(child);
  await new Promise((resolve) => child.once("spawn", resolve));
  const identity = identify(child.pid ?? 0);
  if (identity === undefined) throw new Error("the sleeper has no identity");
  return { child, identity };
}

const record = (changes: Partial<PlaneRecord>): PlaneRecord => ({
  v: 1,
  phase: "ready",
  launcher: ownIdentity(),
  server: "nats://127.0.0.1:1",
  port: 1,
  auth: "static",
  space: "main",
  brokerVersion: "2.14.0",
  startedAt: "2026-01-01T00:00:00.000Z",
  children: [],
  ...changes,
});

describe("a process is pid, start time and boot", () => {
  test("another start time or another boot is another process, and is never signalled", async () => {
    const { identity } = await sleeper();
    expect(isAlive(identity)).toBe(true);
    expect(signalProcess({ ...identity, start: `${identity.start}1` }, "SIGKILL")).toBe(false);
    expect(signalProcess({ ...identity, boot: "another" }, "SIGKILL")).toBe(false);
    expect(isAlive(identity)).toBe(true);
  });

  test("a process that ended is gone, also before it is reaped", async () => {
    const { identity } = await sleeper();
    expect(await endProcess(identity, 2000)).toBe(true);
    expect(isAlive(identity)).toBe(false);
    expect(signalProcess(identity, "SIGTERM")).toBe(false);
  });

  test("a process that ignores SIGTERM is ended all the same", async () => {
    const child = spawn("sh", ["-c", 'trap "" TERM; echo on; while :; do sleep 1; done']);
    spawned.push(child);
    await new Promise((resolve) => child.stdout.once("data", resolve));
    const identity = identify(child.pid ?? 0);
    expect(identity).toBeDefined();
    expect(await endProcess(identity ?? ownIdentity(), 100)).toBe(true);
  });
});

describe("the lock of a state folder", () => {
  test("one holder at a time, and free again after it", async () => {
    const first = await takeLock(state);
    expect(first).toBeDefined();
    expect(await takeLock(state)).toBeUndefined();
    await first?.release();
    const second = await takeLock(state);
    expect(second).toBeDefined();
    await second?.release();
  });

  test("fifty contenders have one winner", async () => {
    const taken = await Promise.all(Array.from({ length: 50 }, () => takeLock(state)));
    const winners = taken.filter((lock) => lock !== undefined);
    expect(winners).toHaveLength(1);
    await winners[0]?.release();
  });
});

describe("the record of a plane", () => {
  test("a record whose launcher is gone is no running plane", async () => {
    const { identity } = await sleeper();
    writePlane(state, record({ launcher: identity }));
    expect(livePlane(state)).toBeDefined();
    await endProcess(identity, 2000);
    expect(livePlane(state)).toBeUndefined();
    expect((await planeStatus(state)).kind).toBe("crashed");
  });

  test("down of a stale record signals nobody whose identity differs, and clears the record", async () => {
    const { identity } = await sleeper();
    const other = { ...identity, start: "1" };
    writePlane(state, record({ launcher: other, children: [{ name: "broker", process: other, restarts: 0 }] }));
    expect(await stopPlane(state)).toBe(false);
    expect(isAlive(identity)).toBe(true);
    expect(readPlane(state)).toBeUndefined();
  });

  test("down ends what a killed launcher left behind", async () => {
    const { identity } = await sleeper();
    const gone = { pid: identity.pid, start: "1", boot: identity.boot };
    writePlane(state, record({ launcher: gone, children: [{ name: "broker", process: identity, restarts: 0 }] }));
    expect(await stopPlane(state)).toBe(true);
    expect(isAlive(identity)).toBe(false);
  });

  test.each(["", "{", "null", '{"v":2}', '{"v":1,"launcher":{"pid":-1}}'])("%j is no record, and no crash", (text) => {
    writeFileSync(planePaths(state).record, text);
    expect(readPlane(state)).toBeUndefined();
  });

  test("a remembered mode that does not parse is refused, never guessed", () => {
    writeFileSync(planePaths(state).remembered, '{"v":1,"port":"x"}');
    expect(refusal(() => readRemembered(state)).code).toBe("failed-precondition");
  });
});

describe("what lies on disk", () => {
  test("a space that was only named by a command is no space of this state", () => {
    mkdirSync(join(state, "spaces", "typo", "agents"), { recursive: true });
    mkdirSync(join(state, "spaces", "main", "trust"), { recursive: true });
    mkdirSync(join(state, "spaces", "not a space", "trust"), { recursive: true });
    expect(knownSpaces(state)).toEqual(["main"]);
  });

  test("the folders are for their owner alone, also where they were not", () => {
    chmodSync(planePaths(state).logs, 0o755);
    prepareState(state);
    const { run, logs } = planePaths(state);
    expect([state, run, logs].map((path) => statSync(path).mode & 0o777)).toEqual([0o700, 0o700, 0o700]);
  });

  test("a folder that holds other things is refused, and stays open to whom it was", () => {
    const other = mkdtempSync(join(tmpdir(), "cotal-other-"));
    try {
      writeFileSync(join(other, "thesis.txt"), "x");
      chmodSync(other, 0o755);
      expect(refusal(() => prepareState(other)).code).toBe("failed-precondition");
      expect(statSync(other).mode & 0o777).toBe(0o755);
      expect(readdirSync(other)).toEqual(["thesis.txt"]);
    } finally {
      rmSync(other, { recursive: true, force: true });
    }
  });

  test("one name of ours among others proves nothing: the root of a machine has a run folder too", () => {
    const other = mkdtempSync(join(tmpdir(), "cotal-other-"));
    try {
      for (const name of ["run", "etc", "home"]) mkdirSync(join(other, name));
      chmodSync(other, 0o755);
      expect(refusal(() => prepareState(other)).code).toBe("failed-precondition");
      expect([other, join(other, "run")].map((path) => statSync(path).mode & 0o777)).toEqual([0o755, 0o755]);
    } finally {
      rmSync(other, { recursive: true, force: true });
    }
  });

  test("a disk of its own is a state folder, and so is one that holds a credential besides", () => {
    const disk = mkdtempSync(join(tmpdir(), "cotal-disk-"));
    try {
      mkdirSync(join(disk, "lost+found"));
      prepareState(disk);
      mkdirSync(join(disk, "broker"));
      writeFileSync(join(disk, "plane.json"), "{}");
      writeFileSync(join(disk, "scout.creds"), "x");
      prepareState(disk);
      expect(statSync(disk).mode & 0o777).toBe(0o700);
    } finally {
      rmSync(disk, { recursive: true, force: true });
    }
  });

  test.runIf(process.platform === "linux")(
    "a folder that the system will not make is refused, and not tried for ever",
    () => {
      expect(refusal(() => prepareState("/proc/cotal/state"))).toMatchObject({
        code: "failed-precondition",
        message: "the state folder /proc/cotal/state can't be written",
      });
    },
  );

  test("a folder is locked while a launcher holds it, and asking takes nothing", async () => {
    expect(await isLocked(state)).toBe(false);
    const lock = await takeLock(state);
    expect(lock).toBeDefined();
    expect([await isLocked(state), await isLocked(state)]).toEqual([true, true]);
    await lock?.release();
    expect(await isLocked(state)).toBe(false);
  });

  test("a log is bounded: the current file and the one before it", () => {
    const path = planePaths(state).log("x");
    const log = openLogFile(path, 1000);
    for (let n = 0; n < 100; n += 1) log.write(Buffer.from(`line ${n}`.padEnd(99) + "\n"));
    log.close();
    expect(readdirSync(planePaths(state).logs).toSorted()).toEqual(["x.log", "x.log.1"]);
    expect(statSync(path).size + statSync(`${path}.1`).size).toBeLessThanOrEqual(2000);
    expect(lastLines(path, 1)[0]?.trim()).toBe("line 99");
    expect(readFileSync(`${path}.1`, "utf8")).toContain("line 8");
  });

  test("a child inherits no COTAL_ variable of the shell", () => {
    process.env["COTAL_SPACES"] = "elsewhere";
    try {
      const env = childEnv({ COTAL_SERVERS: "nats://x" });
      expect(env["COTAL_SPACES"]).toBeUndefined();
      expect(env["COTAL_SERVERS"]).toBe("nats://x");
      expect(env["PATH"]).toBe(process.env["PATH"]);
    } finally {
      delete process.env["COTAL_SPACES"];
    }
  });
});
