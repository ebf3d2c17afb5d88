/** Registrations without a pace, for tests of everything else. */
import { type Buckets, createBuckets } from "../../shared/serve/buckets.ts";

export const unpaced: Buckets = createBuckets({ burst: 1_000_000, perMinute: 1_000_000 }, 100, () => performance.now());
