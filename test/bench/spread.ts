/** How millions of times are spread, kept as counts: steps of two hundredths, from a microsecond to minutes. */

export type Spread = number[];

const STEP = Math.log(1.02);
const LEAST_MS = 0.001;

export const emptySpread = (): Spread => [];

export function note(spread: Spread, ms: number): void {
  const at = Math.max(0, Math.round(Math.log(Math.max(ms, LEAST_MS) / LEAST_MS) / STEP));
  spread[at] = (spread[at] ?? 0) + 1;
}

export function merged(spreads: readonly Spread[]): Spread {
  const all: Spread = [];
  for (const spread of spreads) {
    for (const [at, count] of spread.entries()) if (count) all[at] = (all[at] ?? 0) + count;
  }
  return all;
}

export const countOf = (spread: Spread): number => spread.reduce((sum, count) => sum + count, 0);

/** The time that this share of all doesn't exceed, milliseconds. */
export function shareOf(spread: Spread, share: number): number {
  const wanted = Math.max(1, Math.ceil(share * countOf(spread)));
  let seen = 0;
  for (const [at, count] of spread.entries()) {
    seen += count ?? 0;
    if (seen >= wanted) return LEAST_MS * Math.exp(at * STEP);
  }
  throw new Error("a share of nothing");
}
