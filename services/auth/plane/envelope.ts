/**
 * Delegation envelopes: a child's lists and capabilities lie within its parent's (§9, single-entry
 * containment). One entry of the parent must contain an entry of the child as a whole: two that only
 * contain it together grant something that the parent's own credential could not be split into.
 */
import { containedIn, minimalList } from "../../../shared/protocol/base/channels.ts";
import { containsCapability, sortedCapabilities } from "../../../shared/protocol/endpoint/capabilities.ts";
import type { ActorLists } from "./authority-type.ts";

/** Where the child reaches past the parent, in words; `undefined` if it does not. */
export function beyond(parent: ActorLists, child: ActorLists): string | undefined {
  const reads = child.allowSubscribe.find((entry) => containedIn(parent.allowSubscribe, entry) === undefined);
  if (reads !== undefined) return `it reads ${reads}`;
  const posts = child.allowPublish.find((entry) => containedIn(parent.allowPublish, entry) === undefined);
  if (posts !== undefined) return `it posts to ${posts}`;
  if (child.role !== undefined && child.role !== parent.role) return `it holds the role ${child.role}`;
  const capability = child.capabilities.find(
    (inner) => !parent.capabilities.some((outer) => containsCapability(outer, inner)),
  );
  return capability === undefined ? undefined : `it has the capability ${capability}`;
}

/** One spelling of the same lists, so that equal grants are equal rows. */
export function normalised(lists: ActorLists): {
  allowSubscribe: string[];
  allowPublish: string[];
  role?: string;
  capabilities: string[];
} {
  return {
    allowSubscribe: minimalList(lists.allowSubscribe),
    allowPublish: minimalList(lists.allowPublish),
    ...(lists.role === undefined ? {} : { role: lists.role }),
    capabilities: sortedCapabilities(lists.capabilities),
  };
}

/** What both lists grant, entry by entry: never more than either. */
export function both(one: readonly string[], other: readonly string[]): string[] {
  return minimalList([
    ...one.filter((entry) => containedIn(other, entry) !== undefined),
    ...other.filter((entry) => containedIn(one, entry) !== undefined),
  ]);
}
