/**
 * What may run at once, in all and for one caller.
 *
 * A refusal takes no place: else a burst of one caller's refusals would fill the place of others.
 */
export type Places = {
  /** Takes a place, if there is one. */
  readonly take: (from: string) => boolean;
  readonly give: (from: string) => void;
};

/** A caller with nothing running takes no memory. */
export function createPlaces(inAll: number, perCaller: number): Places {
  const counts = new Map<string, number>();
  let taken = 0;
  return {
    take: (from) => {
      const count = counts.get(from) ?? 0;
      if (taken >= inAll || count >= perCaller) return false;
      counts.set(from, count + 1);
      taken += 1;
      return true;
    },
    give: (from) => {
      const count = (counts.get(from) ?? 1) - 1;
      taken -= 1;
      if (count === 0) counts.delete(from);
      else counts.set(from, count);
    },
  };
}
