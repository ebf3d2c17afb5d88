/**
 * Token buckets by key: how often something may happen for one actor, one owner, one address, or how much of it.
 *
 * Invariants
 * 1. A refusal costs nothing: who waits as long as they were told is let in, however often they asked.
 * 2. At most `keys` buckets are kept. The one that was used longest ago goes first; it was the fullest,
 *    or nearly so.
 * 3. The clock is monotonic and comes from outside.
 */
import { LRUCache } from "lru-cache";

export type Rate = {
  /** How many at once. */
  readonly burst: number;
  /** How many a minute after that. */
  readonly perMinute: number;
};

type Bucket = { level: number; at: number };

export type Buckets = {
  /** Seconds to wait until one more (or `amount`, at most the burst) is allowed; 0 if it is now. Takes nothing. */
  readonly wait: (key: string, amount?: number) => number;
  /** Takes one, or `amount`, if it is there. */
  readonly take: (key: string, amount?: number) => void;
  readonly size: () => number;
};

export function createBuckets(rate: Rate, keys: number, now: () => number): Buckets {
  const kept = new LRUCache<string, Bucket>({ max: keys });
  const perMs = rate.perMinute / 60_000;

  function level(key: string): number {
    const bucket = kept.get(key);
    return bucket === undefined ? rate.burst : Math.min(rate.burst, bucket.level + (now() - bucket.at) * perMs);
  }

  return {
    wait: (key, amount = 1) => {
      const missing = amount - level(key);
      return missing <= 0 ? 0 : Math.max(1, Math.ceil(missing / perMs / 1000));
    },
    take: (key, amount = 1) => {
      const left = level(key) - amount;
      if (left >= 0) kept.set(key, { level: left, at: now() });
    },
    size: () => kept.size,
  };
}
