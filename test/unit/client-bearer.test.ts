/** The bearer of a session, on a clock of the test's own: when it is asked for, and when it is not. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type BearerSource, createBearerSource } from "../../shared/client/bearer-source.ts";
import { type Exchanged, refusalOf } from "../../shared/client/exchange.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { failure, refusal } from "../support/refusal.ts";
import { type VirtualClock, virtualClock } from "../support/virtual-clock.ts";

const UID = "a".repeat(26);
const OWNER = `u_${"b".repeat(26)}`;

const living = (lifeMs: number, uid = UID): Exchanged => ({
  bearer: "h.b.s",
  sentinel: "h.s.s",
  expiresAt: 1,
  owner: OWNER,
  actor: "alice",
  lifecycleUid: uid,
  lifeMs,
});

const away = new CotalError(ErrorCode.Unavailable, "away");
const revoked = new CotalError(ErrorCode.PermissionDenied, "the actor is revoked");
const limited = (seconds: number): CotalError =>
  refusalOf(429, null, { code: "RATE_LIMITED", retryAfterSeconds: seconds, limit: "actor", error: "" }, []);

type Answer = Exchanged | CotalError | "never";

type Rig = {
  readonly clock: VirtualClock;
  readonly source: BearerSource;
  /** When the exchange was asked, milliseconds from the start. */
  readonly asked: number[];
  readonly most: () => number;
  answer: (at: number) => Answer;
};

function rigOf(answer: (at: number) => Answer, random: () => number = () => 0.5): Rig {
  const clock = virtualClock();
  const asked: number[] = [];
  let [flying, most] = [0, 0];
  const rig: Rig = {
    clock,
    asked,
    answer,
    most: () => most,
    source: createBearerSource({
      clock,
      random,
      fetch: (signal) => {
        asked.push(clock.now());
        flying += 1;
        most = Math.max(most, flying);
        const given = rig.answer(clock.now());
        const land = (): void => {
          flying -= 1;
        };
        if (given === "never") {
          signal.addEventListener("abort", land);
          return new Promise(() => undefined);
        }
        land();
        return given instanceof CotalError ? Promise.reject(given) : Promise.resolve(given);
      },
    }),
  };
  return rig;
}

/** Fetches the first bearer. */
async function expectReady({ source, clock }: Rig): Promise<void> {
  const ready = source.ready();
  await clock.to(clock.now());
  await ready;
  expect(source.isReady()).toBe(true);
}

const lives = fc.integer({ min: 20_000, max: 600_000 });
/** One draw after the other from the list, again and again. */
const draws = fc.array(fc.double({ min: 0, max: 0.999, noNaN: true }), { minLength: 1, maxLength: 20 });
const drawing = (values: readonly number[]): (() => number) => {
  let at = 0;
  return () => values[(at += 1) % values.length] ?? 0;
};

describe("renewal", () => {
  test.each([
    ["refuses at once", (): Answer => away],
    ["refuses for good", (): Answer => revoked],
    ["never answers", (): Answer => "never"],
  ])(
    "of every life from 20 s to 10 min, an exchange that %s is asked at least twice before it ends",
    async (_, bad) => {
      await fc.assert(
        fc.asyncProperty(lives, draws, async (life, values) => {
          const rig = rigOf(() => living(life), drawing(values));
          await expectReady(rig);
          rig.answer = bad;
          await rig.clock.to(life);
          const inWindow = rig.asked.filter((at) => at >= life * 0.6 && at < life);
          expect(inWindow.length).toBeGreaterThanOrEqual(2);
          // And no storm: growing waits, never under a second.
          expect(inWindow.length).toBeLessThanOrEqual(20);
          expect(rig.asked.slice(1).filter((at) => at < life)).toEqual(inWindow);
          expect(rig.most()).toBe(1);
          rig.source.close();
        }),
        { numRuns: 60 },
      );
    },
  );

  test("is spread over 60 to 75 % of a life, and a session that renews in time always has a bearer", async () => {
    await fc.assert(
      fc.asyncProperty(lives, draws, async (life, values) => {
        const rig = rigOf(() => living(life), drawing(values));
        await expectReady(rig);
        for (let step = 1; step <= 40; step += 1) {
          await rig.clock.to((step * life) / 10);
          expect(rig.source.isReady()).toBe(true);
        }
        const gaps = rig.asked.slice(1).map((at, n) => (at - (rig.asked[n] ?? 0)) / life);
        expect(gaps.length).toBeGreaterThanOrEqual(4);
        expect(gaps.every((gap) => gap >= 0.599 && gap <= 0.751)).toBe(true);
        rig.source.close();
      }),
      { numRuns: 40 },
    );
  });

  test("a machine that slept over the end asks at once when it wakes, and presents nothing meanwhile", async () => {
    const rig = rigOf(() => living(600_000));
    await expectReady(rig);
    rig.clock.sleep(3_600_000);
    expect(rig.source.isReady()).toBe(false);
    await rig.clock.to(rig.clock.now());
    expect(rig.asked).toHaveLength(2);
    expect(rig.source.isReady()).toBe(true);
  });

  test("without anybody who looks, it asks within seconds of waking", async () => {
    const rig = rigOf(() => living(600_000));
    await expectReady(rig);
    rig.clock.sleep(3_600_000);
    await rig.clock.to(16_000);
    expect(rig.asked).toHaveLength(2);
  });

  test("a refused renewal is told, the bearer lives on, and a grant that comes back is taken up", async () => {
    const rig = rigOf((at) => (at > 60_000 && at < 90_000 ? revoked : living(100_000)));
    const told: boolean[] = [];
    rig.source.watch(({ isFinal }) => told.push(isFinal));
    await expectReady(rig);
    await rig.clock.to(100_000);
    expect(told.length).toBeGreaterThan(0);
    expect(told).not.toContain(true);
    expect(rig.source.isReady()).toBe(true);
  });
});

describe("what is dead", () => {
  test("a bearer is not presented after its end, and not by a clock that was set back either", async () => {
    const rig = rigOf((at) => (at === 0 ? living(20_000) : away));
    await expectReady(rig);
    await rig.clock.to(19_999);
    expect(rig.source.current().bearer).toBe("h.b.s");
    rig.clock.sleep(-3_600_000);
    await rig.clock.to(20_000);
    expect(rig.source.isReady()).toBe(false);
    expect(refusal(() => rig.source.current()).code).toBe(ErrorCode.Unavailable);
  });

  test("a revoked actor ends in a named state at the bearer's end, and nothing is asked after it", async () => {
    const rig = rigOf((at) => (at === 0 ? living(60_000) : revoked));
    const told: CotalError[] = [];
    rig.source.watch(({ isFinal, error }) => void (isFinal && told.push(error)));
    await expectReady(rig);
    await rig.clock.to(120_000);
    expect(told).toEqual([revoked]);
    expect(rig.source.ended()).toBe(revoked);
    const before = rig.asked.length;
    await rig.clock.to(7_200_000);
    expect(rig.asked).toHaveLength(before);
    expect(rig.clock.timers()).toBe(0);
    await expect(rig.source.ready()).rejects.toBe(revoked);
  });

  test("a bearer that is over when it comes is none, and is asked for again with growing waits", async () => {
    const rig = rigOf(() => living(0));
    void rig.source.ready().catch(() => undefined);
    await rig.clock.to(600_000);
    expect(rig.source.isReady()).toBe(false);
    expect(rig.asked.length).toBeLessThanOrEqual(40);
    rig.source.close();
  });

  test("a bearer that lives for a second is renewed every few seconds and not faster", async () => {
    const rig = rigOf(() => living(1000));
    await expectReady(rig);
    for (let at = 0; at < 60_000; at += 100) {
      await rig.clock.to(at);
      rig.source.isReady();
    }
    expect(rig.asked.length).toBeLessThanOrEqual(13);
  });

  test("an exchange that is away for ten minutes is asked by a hundred sessions with growing, spread waits", async () => {
    const out = { from: 30_000, to: 630_000 };
    const rigs = Array.from({ length: 100 }, (_, n) =>
      rigOf(
        (at) => (at >= out.from && at < out.to ? away : living(60_000)),
        drawing([n / 100, ((n * 37) % 100) / 100]),
      ),
    );
    for (const rig of rigs) {
      await expectReady(rig);
      await rig.clock.to(700_000);
    }
    const minutes = Array.from({ length: 10 }, (_, n) => out.from + n * 60_000);
    const perMinute = rigs.map(({ asked }) =>
      minutes.map((m) => asked.filter((at) => at >= m && at < m + 60_000).length),
    );
    // Near the end of a life it is asked a little faster; then at the cap, never more than 4 in a minute.
    expect(Math.max(...perMinute.flatMap((counts) => counts.slice(2)))).toBeLessThanOrEqual(4);
    expect(Math.max(...perMinute.flat())).toBeLessThanOrEqual(8);
    // All are back within two caps of the return.
    expect(rigs.every(({ asked }) => asked.some((at) => at >= out.to && at <= out.to + 60_000))).toBe(true);
    expect(rigs.every(({ source }) => source.isReady())).toBe(true);
    const back = rigs.map(({ asked }) => asked.find((at) => at >= out.to) ?? 0);
    expect(new Set(back.map((at) => Math.floor(at / 1000))).size).toBeGreaterThan(10);
    for (const { source } of rigs) source.close();
  });
});

describe("a refusal of the broker", () => {
  test("the reason is asked for before anything is presented again; a good answer is presented", async () => {
    const rig = rigOf(() => living(600_000));
    await expectReady(rig);
    rig.source.refused();
    expect(rig.source.isReady()).toBe(false);
    expect(refusal(() => rig.source.current()).code).toBe(ErrorCode.Unavailable);
    await rig.clock.to(rig.clock.now());
    expect(rig.asked).toHaveLength(2);
    expect(rig.source.isReady()).toBe(true);
  });

  test("the exchange's refusal is the named end, though the old bearer would live on", async () => {
    const rig = rigOf((at) => (at < 1000 ? living(600_000) : revoked));
    await expectReady(rig);
    await rig.clock.to(2000);
    rig.source.refused();
    await rig.clock.to(2000);
    expect(rig.source.ended()).toBe(revoked);
  });

  test("a broker that refuses what the exchange keeps giving is asked about at a growing pace", async () => {
    const rig = rigOf(() => living(600_000));
    await expectReady(rig);
    for (let at = 0; at < 600_000; at += 100) {
      await rig.clock.to(at);
      if (rig.source.isReady()) rig.source.refused();
    }
    const gaps = rig.asked.slice(1).map((at, n) => at - (rig.asked[n] ?? 0));
    expect(rig.asked.length).toBeLessThanOrEqual(35);
    expect(Math.max(...gaps.slice(-5))).toBeLessThanOrEqual(31_000);
    expect(Math.min(...gaps.slice(-5))).toBeGreaterThanOrEqual(15_000);
  });

  test("a connection that stood for a while makes the next refusal the first again", async () => {
    const rig = rigOf(() => living(600_000));
    await expectReady(rig);
    for (const at of [0, 1000, 3000]) {
      await rig.clock.to(at);
      rig.source.refused();
    }
    await rig.clock.to(20_000);
    rig.source.accepted();
    await rig.clock.to(60_000);
    rig.source.refused();
    await rig.clock.to(60_000);
    expect(rig.asked.at(-1)).toBe(60_000);
  });

  test("while the exchange is away after a refusal, nothing is presented", async () => {
    const rig = rigOf((at) => (at < 1000 || at > 100_000 ? living(600_000) : away));
    await expectReady(rig);
    await rig.clock.to(2000);
    rig.source.refused();
    await rig.clock.to(90_000);
    expect(rig.source.isReady()).toBe(false);
    await rig.clock.to(140_000);
    expect(rig.source.isReady()).toBe(true);
  });
});

describe("W10.24: a 429", () => {
  test("nothing is asked and nothing is presented until its seconds have passed", async () => {
    const rig = rigOf((at) => (at < 1000 ? living(60_000) : at < 45_000 ? limited(17) : living(60_000)));
    await expectReady(rig);
    await rig.clock.to(41_000);
    const hit = rig.asked.at(-1) ?? 0;
    expect(rig.asked).toHaveLength(2);
    expect(rig.source.isReady()).toBe(false);
    rig.source.refused();
    await rig.clock.to(hit + 16_999);
    expect(rig.asked).toHaveLength(2);
    await rig.clock.to(hit + 19_000);
    expect(rig.asked).toHaveLength(3);
    expect(rig.source.isReady()).toBe(true);
  });

  test("before the first bearer it is the error, with the seconds, and the next attempt keeps to them", async () => {
    const rig = rigOf((at) => (at < 30_000 ? limited(30) : living(60_000)));
    const first = failure(rig.source.ready());
    await rig.clock.to(0);
    expect(await first).toMatchObject({
      code: ErrorCode.ResourceExhausted,
      message: expect.stringContaining("30 s") as string,
    });
    expect(rig.source.waitMs()).toBeGreaterThanOrEqual(30_000);
    const second = rig.source.ready();
    await rig.clock.to(29_999);
    expect(rig.asked).toHaveLength(1);
    await rig.clock.to(32_000);
    await second;
  });
});

describe("who asks", () => {
  test("many who wait share one request", async () => {
    const rig = rigOf(() => living(60_000));
    const all = Promise.all([rig.source.ready(), rig.source.ready(), rig.source.ready()]);
    await rig.clock.to(0);
    await all;
    expect(rig.asked).toHaveLength(1);
  });

  test("a source that never answers is given up, and asked again one at a time", async () => {
    const rig = rigOf(() => "never");
    const first = failure(rig.source.ready());
    await rig.clock.to(10_000);
    expect((await first).code).toBe(ErrorCode.Unavailable);
    await rig.clock.to(120_000);
    expect(rig.most()).toBe(1);
    rig.source.close();
    expect(rig.clock.timers()).toBe(0);
  });

  test("a wait ends when it is told to; the source goes on", async () => {
    const rig = rigOf(() => away);
    const stop = new AbortController();
    const first = failure(rig.source.ready());
    await rig.clock.to(0);
    await first;
    const second = failure(rig.source.ready(stop.signal));
    stop.abort();
    expect((await second).code).toBe(ErrorCode.Cancelled);
    rig.source.close();
  });

  test("W2.06: a bearer of another incarnation ends the session: its inbox and durables are the first one's", async () => {
    const rig = rigOf((at) => living(60_000, at === 0 ? UID : "c".repeat(26)));
    await expectReady(rig);
    await rig.clock.to(60_000);
    expect(rig.source.ended()).toMatchObject({ code: ErrorCode.FailedPrecondition, next: "open a new session" });
  });

  test("closed: no timer is left, nothing is asked, and it is told to nobody", async () => {
    const rig = rigOf(() => living(60_000));
    const told: unknown[] = [];
    rig.source.watch((trouble) => told.push(trouble));
    await expectReady(rig);
    rig.source.close();
    await rig.clock.to(600_000);
    expect([rig.asked.length, rig.clock.timers(), told.length]).toEqual([1, 0, 0]);
  });
});
