/** Random bytes from a pool: one draw from the system serves many tokens. */
import { randomFillSync } from "node:crypto";
import type { RandomBytes } from "../protocol/base/principals.ts";

const POOL_BYTES = 4096;

export function pooledRandom(): RandomBytes {
  const pool = new Uint8Array(POOL_BYTES);
  let used = POOL_BYTES;
  return (count) => {
    if (count > POOL_BYTES) return randomFillSync(new Uint8Array(count));
    if (used + count > POOL_BYTES) {
      randomFillSync(pool);
      used = 0;
    }
    used += count;
    // A copy: the pool is overwritten, and nobody may see what it gave out before.
    return pool.slice(used - count, used);
  };
}
