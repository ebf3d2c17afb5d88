/** How long the next dial waits, with a clock and dice of the test's. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createPace } from "../../shared/broker/pace.ts";

describe("the pace of dials", () => {
  test("doubles to its cap, is drawn once per failure, and starts over only after a stable time", () => {
    let clock = 0;
    const pace = createPace({ baseMs: 100, capMs: 1000, stableMs: 5000, random: () => 0.999_999, now: () => clock });
    const waits = Array.from({ length: 6 }, () => {
      pace.failed();
      return pace.waitMs();
    });
    expect(waits).toEqual([200, 400, 800, 1000, 1000, 1000]);
    expect([pace.waitMs(), pace.waitMs()]).toEqual([1000, 1000]);
    pace.up();
    clock += 4999;
    pace.down();
    expect(pace.waitMs()).toBe(1000);
    pace.up();
    clock += 5000;
    pace.down();
    expect(pace.waitMs()).toBe(100);
    expect(pace.failures()).toBe(0);
  });

  test("spreads between a half and the whole of the ceiling, never at once, whatever the dice", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 5000 }),
        fc.double({ min: 0, max: 0.999_999, noNaN: true }),
        (failures, dice) => {
          const pace = createPace({ baseMs: 100, capMs: 10_000, random: () => dice });
          for (let n = 0; n < failures; n += 1) pace.failed();
          const ceiling = Math.min(10_000, 100 * 2 ** Math.min(failures, 16));
          expect(pace.waitMs()).toBeGreaterThanOrEqual(Math.floor(ceiling / 2));
          expect(pace.waitMs()).toBeLessThanOrEqual(ceiling);
        },
      ),
      { numRuns: 100 },
    );
  });
});
