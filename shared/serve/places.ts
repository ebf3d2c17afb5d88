/**
 * What may run at once: in all, for one caller, and for all callers of one owner, who may make many of them.
 *
 * A refusal takes no place: else a burst of one caller's refusals would fill the place of others.
 */
import { type Principal, dotForm } from "../protocol/base/principals.ts";
import { createShare } from "./share.ts";

/** Of all places, those that one owner may take: with two callers of his own he would have the rest too. */
const OWNER_SHARE = 0.75;

export type Places = {
  /** Takes a place, if there is one. */
  readonly take: (caller: Principal) => boolean;
  readonly give: (caller: Principal) => void;
};

export function createPlaces(inAll: number, perCaller: number): Places {
  const callers = createShare(perCaller);
  const owners = createShare(Math.max(perCaller, Math.floor(inAll * OWNER_SHARE)));
  let taken = 0;
  return {
    take: (caller) => {
      const from = dotForm(caller);
      if (taken >= inAll || !callers.take(from)) return false;
      if (!owners.take(caller.owner)) {
        callers.give(from);
        return false;
      }
      taken += 1;
      return true;
    },
    give: (caller) => {
      taken -= 1;
      callers.give(dotForm(caller));
      owners.give(caller.owner);
    },
  };
}
