/** A clock that a test moves: timers fire in order, and promises settle in between. */
import type { Clock } from "../../shared/client/bearer-source.ts";

export type VirtualClock = Clock & {
  /** Runs to that moment, milliseconds from the start. */
  readonly to: (at: number) => Promise<void>;
  /** The machine sleeps: the time of day goes on, everything else stands still. */
  readonly sleep: (ms: number) => void;
  readonly timers: () => number;
};

/** Far from zero, as the time of day is. */
const START_OF_DAY = 1_700_000_000_000;

export function virtualClock(): VirtualClock {
  let now = 0;
  let asleep = 0;
  let drawn = 0;
  const timers = new Map<number, { readonly at: number; readonly run: () => void }>();
  const settle = async (): Promise<void> => {
    // A round of the event loop: every promise that can settle has settled.
    await new Promise((resolve) => setImmediate(resolve));
  };
  return {
    now: () => now,
    wall: () => START_OF_DAY + now + asleep,
    after: (ms, run) => {
      const id = (drawn += 1);
      timers.set(id, { at: now + Math.max(0, ms), run });
      return () => void timers.delete(id);
    },
    to: async (end) => {
      await settle();
      for (;;) {
        const due = [...timers].filter(([, { at }]) => at <= end).toSorted(([a, x], [b, y]) => x.at - y.at || a - b)[0];
        if (due === undefined) break;
        const [id, { at, run }] = due;
        timers.delete(id);
        now = Math.max(now, at);
        run();
        await settle();
      }
      now = Math.max(now, end);
    },
    sleep: (ms) => {
      asleep += ms;
    },
    timers: () => timers.size,
  };
}
