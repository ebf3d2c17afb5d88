/**
 * What may run at once: in all, for one caller, and for all callers of one owner, who may make many of them.
 *
 * A refusal takes no place: else a burst of one caller's refusals would fill the place of others.
 */
import { createShare } from "./share.ts";

/** Of all places, those that one owner may take: with two callers of his own he would have the rest too. */
const OWNER_SHARE = 0.75;

export type Places = {
  /** Takes a place, if there is one; `from` is the caller's dot-form. */
  readonly take: (from: string) => boolean;
  readonly give: (from: string) => void;
};

export function createPlaces(inAll: number, perCaller: number): Places {
  const callers = createShare(perCaller);
  const owners = createShare(Math.max(perCaller, Math.floor(inAll * OWNER_SHARE)));
  let taken = 0;
  return {
    take: (from) => {
      if (taken >= inAll || !callers.take(from)) return false;
      if (!owners.take(ownerOf(from))) {
        callers.give(from);
        return false;
      }
      taken += 1;
      return true;
    },
    give: (from) => {
      taken -= 1;
      callers.give(from);
      owners.give(ownerOf(from));
    },
  };
}

const ownerOf = (dotForm: string): string => dotForm.split(".", 1)[0] ?? "";
