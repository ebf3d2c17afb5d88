/**
 * What one door of a face works on at once: so much in all, and a quarter of it for one person.
 *
 * Whoever has a good proof could otherwise keep everybody else out by asking for much at once: some answers
 * take seconds. The person is known once the proof holds; until then only the whole counts.
 *
 * Invariant: what was taken is given back, however it ended.
 */
import { createShare } from "../../../shared/serve/share.ts";
import { type Answer, tooMany } from "./refusals.ts";

export type TooMuch = { readonly answer: Answer; readonly result: "busy" | "busy-with-you" };

export type InFlight = {
  readonly whole: <T>(run: () => Promise<T>) => Promise<T | TooMuch>;
  readonly ofOwner: <T>(owner: string, run: () => Promise<T>) => Promise<T | TooMuch>;
};

const SHARE = 1 / 4;

const refused = (result: TooMuch["result"]): TooMuch => ({ answer: tooMany(1, result), result });
const BUSY = refused("busy");
const BUSY_WITH_YOU = refused("busy-with-you");

export function createInFlight(most: number): InFlight {
  let running = 0;
  const share = createShare(Math.max(1, Math.floor(most * SHARE)));
  return {
    whole: async (run) => {
      if (running >= most) return BUSY;
      running += 1;
      try {
        return await run();
      } finally {
        running -= 1;
      }
    },
    ofOwner: async (owner, run) => {
      if (!share.take(owner)) return BUSY_WITH_YOU;
      try {
        return await run();
      } finally {
        share.give(owner);
      }
    },
  };
}
