/** The small parts of a daemon: back-off, releasers, the drain's phases, exit codes. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createBackoff } from "../../shared/daemon/backoff.ts";
import { drainPhases } from "../../shared/daemon/drain.ts";
import { EXIT_CODES, ExitCode, exitCodeOf } from "../../shared/daemon/exit-codes.ts";
import { createLog } from "../../shared/daemon/log.ts";
import { createReleasers, within } from "../../shared/daemon/releasers.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { refusal } from "../support/refusal.ts";

describe("back-off", () => {
  const almostOne = () => 0.999999;

  test("the ceiling doubles up to the cap, and the wait is anything below it", () => {
    const backoff = createBackoff({ baseMs: 100, capMs: 1000, random: almostOne });
    expect(Array.from({ length: 6 }, () => backoff.next())).toEqual([99, 199, 399, 799, 999, 999]);
    expect(createBackoff({ random: () => 0 }).next()).toBe(0);
    expect(backoff.failures()).toBe(6);
  });

  test("any number of failures keeps it finite and below the cap", () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), { maxLength: 200 }),
        (draws) => {
          let at = 0;
          const backoff = createBackoff({
            baseMs: 250,
            capMs: 30_000,
            random: () => draws[(at += 1) % draws.length] ?? 0,
          });
          const waits = draws.map(() => backoff.next());
          expect(waits.filter((wait) => !(Number.isInteger(wait) && wait >= 0 && wait < 30_000))).toEqual([]);
        },
      ),
    );
  });

  test("it starts over only after the minimum uptime", () => {
    let now = 0;
    const backoff = createBackoff({ baseMs: 100, capMs: 9000, minUptimeMs: 1000, random: almostOne, now: () => now });
    backoff.next();
    backoff.next();
    backoff.up();
    now = 999;
    expect(backoff.next()).toBe(399);
    backoff.up();
    now = 1500;
    backoff.up();
    // The uptime began at the first word, not at the last.
    now = 1999;
    expect(backoff.next()).toBe(99);
    // A failure that was never up is one more.
    now = 99_999;
    expect(backoff.next()).toBe(199);
  });
});

describe("releasers", () => {
  test("last in, first out, one after the other; what fails or hangs keeps no other from it", async () => {
    const releasers = createReleasers();
    const order: string[] = [];
    const taken = (name: string, act: () => unknown) => releasers.push(name, () => (order.push(name), act()), 50);
    taken("a", () => undefined);
    taken("b", () => Promise.reject(new Error("b failed")));
    taken("c", () => new Promise(() => undefined));
    taken("d", () => {
      throw new Error("d failed");
    });
    const report = await releasers.releaseAll();
    expect(order).toEqual(["d", "c", "b", "a"]);
    expect(report.released).toEqual(["a"]);
    expect(report.failed.map(({ name }) => name)).toEqual(["d", "c", "b"]);
    expect(report.failed[1]?.cause).toMatchObject({ code: "deadline-exceeded" });
  });

  test("it runs once: everybody gets the same report", async () => {
    const releasers = createReleasers();
    let count = 0;
    releasers.push("a", () => (count += 1));
    const [one, two] = await Promise.all([releasers.releaseAll(), releasers.releaseAll()]);
    expect(one).toBe(two);
    expect(count).toBe(1);
  });

  test("what is acquired while all is released is released too; afterwards it is refused", async () => {
    const releasers = createReleasers();
    const order: string[] = [];
    releasers.push("slow", () => {
      order.push("slow");
      releasers.push("late", () => order.push("late"));
    });
    await releasers.releaseAll();
    expect(order).toEqual(["slow", "late"]);
    expect(refusal(() => releasers.push("too late", () => undefined)).code).toBe("failed-precondition");
  });
});

describe("within a bound", () => {
  test("a result in time is handed on, a failure too", async () => {
    expect(await within(1000, "x", () => 5)).toBe(5);
    await expect(within(1000, "x", () => Promise.reject(new Error("own")))).rejects.toThrow("own");
    await expect(
      within(1000, "x", () => {
        throw new Error("at once");
      }),
    ).rejects.toThrow("at once");
  });

  test("out of time is deadline-exceeded, and the signal says so; a late failure has no taker", async () => {
    let given: AbortSignal | undefined;
    const late = within(10, "the thing", async (giveUp) => {
      given = giveUp;
      await new Promise((end) => giveUp.addEventListener("abort", end));
      throw new Error("nobody hears this");
    });
    await expect(late).rejects.toMatchObject({
      code: "deadline-exceeded",
      message: expect.stringContaining("the thing") as string,
    });
    expect(given?.aborted).toBe(true);
    await expect(within(-5, "x", () => new Promise(() => undefined))).rejects.toMatchObject({
      code: "deadline-exceeded",
    });
  });
});

describe("the phases of a drain", () => {
  const log = createLog({ service: "test", level: "silent" });

  test("each runs in order, whatever became of the one before", async () => {
    const ran: string[] = [];
    const phase = (name: string, act: () => unknown) => ({
      name,
      until: "work" as const,
      run: () => (ran.push(name), act()),
    });
    const failures = await drainPhases(
      [
        phase("intake", () => Promise.reject(new Error("x"))),
        phase("work", () => undefined),
        phase("end", () => undefined),
      ],
      { drainMs: 1000, now: () => performance.now(), log },
    );
    expect(ran).toEqual(["intake", "work", "end"]);
    expect(failures.map(({ phase: name }) => name)).toEqual(["intake"]);
  });

  test("work that hangs leaves a reserve for the connections", async () => {
    let closed = false;
    const failures = await drainPhases(
      [
        { name: "work", until: "work", run: () => new Promise(() => undefined) },
        {
          name: "connections",
          until: "end",
          run: async (giveUp) => {
            await new Promise((turn) => setImmediate(turn));
            closed = !giveUp.aborted;
          },
        },
      ],
      { drainMs: 500, now: () => performance.now(), log },
    );
    expect(failures).toMatchObject([{ phase: "work", cause: { code: "deadline-exceeded" } }]);
    expect(closed).toBe(true);
  });

  test("a phase that begins after the deadline still begins", async () => {
    let begun = false;
    let now = 0;
    await drainPhases(
      [
        { name: "a", until: "end", run: () => void (now = 5000) },
        { name: "b", until: "end", run: () => void (begun = true) },
      ],
      { drainMs: 100, now: () => now, log },
    );
    expect(begun).toBe(true);
  });
});

describe("A.02 exit codes", () => {
  test("every error code leads to one, and each one has a meaning and an advice", () => {
    for (const code of Object.values(ErrorCode)) {
      const exit = exitCodeOf(new CotalError(code, "x"));
      expect(EXIT_CODES[exit].meaning.length * EXIT_CODES[exit].next.length).toBeGreaterThan(0);
      expect(exit).not.toBe(ExitCode.Clean);
    }
    expect(Object.keys(EXIT_CODES).map(Number)).toEqual([0, 1, 2, 3, 4, 70]);
  });

  test("what is no error of ours is a fault of the program", () => {
    expect([new Error("x"), undefined, "text", {}].map(exitCodeOf)).toEqual([70, 70, 70, 70]);
    expect(exitCodeOf(new CotalError("bad-request", "x"))).toBe(2);
    expect(exitCodeOf(new CotalError("unavailable", "x"))).toBe(3);
    expect(exitCodeOf(new CotalError("permission-denied", "x"))).toBe(1);
  });
});
