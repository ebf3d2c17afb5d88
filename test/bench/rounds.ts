/** Rounds of two sides in turn: whoever else uses the machine, both sides feel it alike. */

export type Both<T> = { readonly ours: readonly T[]; readonly bare: readonly T[] };

/**
 * Runs each side `rounds` times, one after the other, the first changing from round to round; one
 * round before them is thrown away.
 */
export async function inTurn<T>(rounds: number, ours: () => Promise<T>, bare: () => Promise<T>): Promise<Both<T>> {
  const results = { ours: [] as T[], bare: [] as T[] };
  for (let round = 0; round <= rounds; round += 1) {
    const order = round % 2 === 0 ? (["ours", "bare"] as const) : (["bare", "ours"] as const);
    for (const side of order) {
      const result = await (side === "ours" ? ours() : bare());
      if (round > 0) results[side].push(result);
    }
  }
  return results;
}
