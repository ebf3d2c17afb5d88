/**
 * What may run at once, in all and for one caller.
 *
 * A refusal takes no place: else a burst of one caller's refusals would fill the place of others.
 */
import { createShare } from "./share.ts";

export type Places = {
  /** Takes a place, if there is one. */
  readonly take: (from: string) => boolean;
  readonly give: (from: string) => void;
};

export function createPlaces(inAll: number, perCaller: number): Places {
  const share = createShare(perCaller);
  let taken = 0;
  return {
    take: (from) => {
      if (taken >= inAll || !share.take(from)) return false;
      taken += 1;
      return true;
    },
    give: (from) => {
      taken -= 1;
      share.give(from);
    },
  };
}
