/**
 * How far joins may read back (decision 45). A group has one loop: while it reads what lies between a join's cursor and
 * its own position, nobody of that group gets a copy.
 *
 * Invariants
 * 1. A join with a frontier that was read just now costs what was posted since, and that is next to nothing. Whoever is
 *    refused reads the frontier again and is served.
 * 2. It is counted for each lifecycle and for its owner, who may have many of them: for each loop, which is what it spares.
 */
import { type Rate, createBuckets } from "../../../shared/serve/buckets.ts";
import type { Lifecycle } from "../../../shared/protocol/ledger/member-rows.ts";

/** How far behind the frontier a cursor may lie: a join reads back that much and no more. */
export const MAX_BEHIND = 10_000;

/** Posts. A loop reads 7,000 to 100,000 a second, by how deep their channels are. */
const OF_A_LIFECYCLE: Rate = { burst: 2 * MAX_BEHIND, perMinute: MAX_BEHIND };
const OF_AN_OWNER: Rate = { burst: 6 * MAX_BEHIND, perMinute: 3 * MAX_BEHIND };
const KEPT = 10_000;

export type ReadingBack = {
  /** Takes so many posts; false, and nothing taken, where they are too many by now. */
  readonly take: (lifecycle: Lifecycle, posts: number) => boolean;
};

/** `now`: monotonic, in milliseconds. */
export function createReadingBack(now: () => number): ReadingBack {
  const lifecycles = createBuckets(OF_A_LIFECYCLE, KEPT, now);
  const owners = createBuckets(OF_AN_OWNER, KEPT, now);
  return {
    take: ({ key, principal: { owner } }, posts) => {
      if (posts <= 0) return true;
      if (lifecycles.wait(key, posts) > 0 || owners.wait(owner, posts) > 0) return false;
      lifecycles.take(key, posts);
      owners.take(owner, posts);
      return true;
    },
  };
}
