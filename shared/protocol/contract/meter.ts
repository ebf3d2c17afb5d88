/**
 * Budgets of time, kept from inside: work says how much it has done, and from time to time the meter
 * reads the clock.
 *
 * The clock counts the processor time of this thread, not the hours: a busy machine refuses nobody. It is
 * the only clock of `shared/protocol/`, and a parameter of everything that uses it.
 *
 * Invariant: work between two readings is bounded, so a budget is overrun by one such piece at most.
 */

/** Milliseconds of processor time that this thread has used. */
export type CpuClock = () => number;

export const threadCpuMs: CpuClock = () => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
};

/** Thrown through whatever runs; the one who began the budget catches it. */
export class OverBudget extends Error {
  override readonly name = "OverBudget";
}

export type Meter = {
  /** Starts a budget: it counts from the first reading on. */
  begin(budgetMs: number): void;
  /** Throws `OverBudget` once the budget is used up. */
  spend(units: number): void;
};

/** `interval`: units between two readings. */
export function createMeter(cpuMs: CpuClock, interval: number): Meter {
  let left = interval;
  let budget = 0;
  let end: number | undefined;
  return {
    begin(budgetMs) {
      left = interval;
      budget = budgetMs;
      end = undefined;
    },
    spend(units) {
      left -= units;
      if (left > 0) return;
      left = interval;
      const now = cpuMs();
      end ??= now + budget;
      if (now > end) throw new OverBudget();
    },
  };
}
