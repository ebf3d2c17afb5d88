/**
 * How often somebody known may be refused a manager on the public face (§10): a rolling window for each
 * principal and class of request.
 *
 * Invariants
 * 1. The class is whether an instance was named, never which one: names are the asker's to invent.
 * 2. Each class counts its own refusals and leaves the other one open.
 * 3. A full window refuses before anything is selected, also what would have succeeded.
 */
import { LRUCache } from "lru-cache";

export type SelectionClass = "pinned" | "unpinned";

export type WindowSize = {
  /** Refusals that one window holds. */
  readonly refusals: number;
  readonly seconds: number;
};

/** Somebody whose manager starts in a minute may ask every few seconds; a search through names may not. */
export const DEFAULT_WINDOW: WindowSize = { refusals: 20, seconds: 300 };

const MAX_KEYS = 10_000;

export type SelectionWindows = {
  /** Seconds until this class is open again; 0 if it is. */
  readonly wait: (who: string, of: SelectionClass) => number;
  readonly refused: (who: string, of: SelectionClass) => void;
};

/** `clock` in monotonic milliseconds. */
export function createSelectionWindows({ refusals, seconds }: WindowSize, clock: () => number): SelectionWindows {
  /** When each of the last refusals came, oldest first; never more than a window holds. */
  const kept = new LRUCache<string, number[]>({ max: MAX_KEYS });
  const span = seconds * 1000;
  const recent = (key: string): number[] => (kept.get(key) ?? []).filter((at) => clock() - at < span);
  return {
    wait: (who, of) => {
      const times = recent(`${of} ${who}`);
      const [oldest] = times;
      if (oldest === undefined || times.length < refusals) return 0;
      return Math.max(1, Math.ceil((oldest + span - clock()) / 1000));
    },
    refused: (who, of) => {
      const key = `${of} ${who}`;
      kept.set(key, [...recent(key), clock()].slice(-refusals));
    },
  };
}
