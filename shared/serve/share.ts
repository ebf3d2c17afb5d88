/**
 * A share for each of those who ask: how much of what one has may run at once, so that nobody takes the
 * others' place.
 *
 * Invariant: a name with nothing running takes no memory.
 */
export type Share = {
  /** True if one more of this name may run now; it is given back when it has. */
  readonly take: (name: string) => boolean;
  readonly give: (name: string) => void;
};

export function createShare(most: number): Share {
  const counts = new Map<string, number>();
  return {
    take: (name) => {
      const count = counts.get(name) ?? 0;
      if (count >= most) return false;
      counts.set(name, count + 1);
      return true;
    },
    give: (name) => {
      const count = (counts.get(name) ?? 1) - 1;
      if (count === 0) counts.delete(name);
      else counts.set(name, count);
    },
  };
}
