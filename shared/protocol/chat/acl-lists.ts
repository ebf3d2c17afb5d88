/**
 * The three channel lists of an agent (§9) and their defaults.
 *
 * `subscribe` is what it joins at start, `allowSubscribe` what it may read, `allowPublish` what it
 * may post to. Invariant: each entry of `subscribe` lies within one entry of `allowSubscribe`.
 */
import { badRequest } from "../base/errors.ts";
import { channelPattern, containedIn } from "../base/channels.ts";

export type ChannelLists = {
  readonly subscribe: readonly string[];
  readonly allowSubscribe: readonly string[];
  readonly allowPublish: readonly string[];
};

/** Resolves the lists: the read ACL defaults to `subscribe`, the post ACL to nothing. */
export function channelLists(given: {
  readonly subscribe?: readonly string[] | undefined;
  readonly allowSubscribe?: readonly string[] | undefined;
  readonly allowPublish?: readonly string[] | undefined;
}): ChannelLists {
  const subscribe = unique(given.subscribe ?? []);
  const allowSubscribe = given.allowSubscribe === undefined ? subscribe : unique(given.allowSubscribe);
  const outside = subscribe.find((entry) => containedIn(allowSubscribe, entry) === undefined);
  if (outside !== undefined) {
    throw badRequest(
      `${outside} is not within one entry of the read list (${allowSubscribe.join(", ") || "empty"})`,
      "widen the read list, or leave that channel out",
    );
  }
  return { subscribe, allowSubscribe, allowPublish: unique(given.allowPublish ?? []) };
}

function unique(list: readonly string[]): string[] {
  return [...new Set(list.map(channelPattern))];
}
