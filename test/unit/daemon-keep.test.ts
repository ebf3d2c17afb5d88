/** The keeper of a background loop: it never dies silently. */
import { describe, expect, test } from "vitest";
import { createBackoff } from "../../shared/daemon/backoff.ts";
import { createHealth } from "../../shared/daemon/health.ts";
import { type Loop, type LoopEnd, keep } from "../../shared/daemon/keep.ts";
import { createLog } from "../../shared/daemon/log.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";

function keeper(run: (loop: Loop, round: number) => Promise<LoopEnd>, maxWaitMs = 2) {
  const lines: Record<string, unknown>[] = [];
  const log = createLog({
    service: "test",
    level: "trace",
    destination: { write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>) },
  });
  const health = createHealth();
  const fatal: unknown[] = [];
  let restarts = 0;
  let round = 0;
  const kept = keep("watch", (loop) => run(loop, (round += 1)), {
    health,
    log,
    backoff: createBackoff({ baseMs: maxWaitMs, capMs: maxWaitMs }),
    onFatal: (cause) => fatal.push(cause),
    onRestart: () => (restarts += 1),
  });
  return { kept, health, lines, fatal, restarts: () => restarts, rounds: () => round };
}

const untilStopped = ({ stopping }: Loop): Promise<LoopEnd> =>
  new Promise((end) => stopping.addEventListener("abort", () => end({ kind: "done" })));

test("a loop that throws or asks for it is started again, and each time the log says so", async () => {
  const { kept, lines, restarts, rounds } = keeper(async (_loop, round) => {
    if (round === 1) throw new Error("first");
    if (round === 2) return { kind: "retry", cause: new CotalError("unavailable", "second") };
    return { kind: "done" };
  });
  await kept.ended;
  expect([rounds(), restarts()]).toEqual([3, 2]);
  expect(lines.map(({ level, msg, loop }) => [level, msg, loop])).toEqual([
    ["warn", "a loop failed and starts again after a wait", "watch"],
    ["warn", "a loop failed and starts again after a wait", "watch"],
    ["info", "a loop is done", "watch"],
  ]);
  expect(lines[1]).toMatchObject({ failures: 2, err: { message: "second" } });
});

test("its check follows it: failing at first, ok when it says so, failing while it waits, gone when it is done", async () => {
  const seen: string[] = [];
  const state = (health: ReturnType<typeof createHealth>) => {
    const check = health.report().checks.find(({ name }) => name === "loop:watch");
    return check === undefined ? "gone" : `${check.ok} ${check.detail}`;
  };
  const one = keeper(async (loop, round) => {
    // The first run begins before its keeper has been handed back.
    await Promise.resolve();
    seen.push(state(one.health));
    loop.ok("works");
    seen.push(state(one.health));
    loop.failing("limps", "help it");
    seen.push(state(one.health));
    return round === 1 ? { kind: "retry", cause: new Error("broke") } : { kind: "done" };
  });
  await one.kept.ended;
  seen.push(state(one.health));
  expect(seen).toEqual([
    "false nothing is known yet",
    "true works",
    "false limps",
    "false broke",
    "true works",
    "false limps",
    "gone",
  ]);
});

test("a fatal end is handed on, logged, and its check stays failed for whoever looks", async () => {
  const cause = new CotalError("permission-denied", "the credential was revoked", { next: "renew it" });
  const { kept, health, lines, fatal, rounds } = keeper(async () => ({ kind: "fatal", cause }));
  await kept.ended;
  expect([fatal, rounds()]).toEqual([[cause], 1]);
  expect(lines.at(-1)).toMatchObject({ level: "fatal" });
  expect(health.report().checks).toMatchObject([{ ok: false, detail: "the credential was revoked", next: "renew it" }]);
});

describe("stopping", () => {
  test("the loop is told, and the stop waits for it", async () => {
    const { kept, health, rounds } = keeper(untilStopped);
    await Promise.resolve();
    await kept.stop();
    expect(rounds()).toBe(1);
    expect(health.report().checks).toEqual([]);
  });

  test("a wait ends at once", async () => {
    const { kept, rounds } = keeper(async () => ({ kind: "retry", cause: new Error("x") }), 10_000_000);
    await new Promise((turn) => setImmediate(turn));
    await kept.stop();
    expect(rounds()).toBe(1);
  });

  test("an end while stopping is no failure and no restart; a fatal one is still logged", async () => {
    const quiet = keeper(async ({ stopping }) => {
      await new Promise((end) => stopping.addEventListener("abort", end));
      throw new Error("connection closed");
    });
    await Promise.resolve();
    await quiet.kept.stop();
    expect(quiet.lines).toEqual([]);
    const loud = keeper(async ({ stopping }) => {
      await new Promise((end) => stopping.addEventListener("abort", end));
      return { kind: "fatal", cause: new Error("lost data") };
    });
    await Promise.resolve();
    await loud.kept.stop();
    expect(loud.lines).toMatchObject([{ level: "error", err: { message: "lost data" } }]);
    expect(loud.fatal).toEqual([]);
  });

  test("stopping twice, and stopping what has ended, is nothing", async () => {
    const { kept } = keeper(async () => ({ kind: "done" }));
    await kept.ended;
    await Promise.all([kept.stop(), kept.stop()]);
    expect(kept.name).toBe("watch");
  });
});
