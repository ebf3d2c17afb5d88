/**
 * Random choices that can be made again: everything drawn comes from one seed, which is printed.
 * `COTAL_TEST_SEED` repeats a run.
 */
export type Draw = {
  readonly seed: number;
  /** A whole number from `low` to `high`, both included. */
  readonly int: (low: number, high: number) => number;
  readonly chance: (share: number) => boolean;
  readonly pick: <T>(list: readonly T[]) => T;
};

/** The seed of this run, printed under `what`. */
export function drawFor(what: string): Draw {
  const given = Number(process.env["COTAL_TEST_SEED"] ?? "");
  const seed = Number.isSafeInteger(given) && given > 0 ? given : Math.floor(Math.random() * 2 ** 31) + 1;
  console.log(`${what}: COTAL_TEST_SEED=${seed}`);
  return seeded(seed);
}

export function seeded(seed: number): Draw {
  let state = seed >>> 0;
  /** mulberry32: small, and good enough to choose with. */
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const int = (low: number, high: number): number => low + Math.floor(next() * (high - low + 1));
  return {
    seed,
    int,
    chance: (share) => next() < share,
    pick: <T>(list: readonly T[]): T => {
      const found = list[int(0, list.length - 1)];
      if (found === undefined) throw new Error("nothing to pick from");
      return found;
    },
  };
}
