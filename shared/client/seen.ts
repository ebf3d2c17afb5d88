/**
 * Which messages were surfaced already: a bounded memory of (kind, sender, id) (§4, decision H63).
 *
 * Invariants: the empty id is never a key; another sender's same id is another message; a message
 * is remembered once it is surfaced (live) or handled (durable), never before.
 */
import { LRUCache } from "lru-cache";
import { digestOf } from "../protocol/base/canonical.ts";
import type { Delivery } from "../protocol/chat/message.ts";

const KEPT = 16_384;
/** A longer id is kept as its digest: what a sender writes must not cost memory here. */
const LONGEST_ID = 200;

export type Seen = {
  readonly has: (key: string) => boolean;
  readonly add: (key: string) => void;
  readonly forget: (key: string) => void;
};

export function createSeen(max = KEPT): Seen {
  const cache = new LRUCache<string, true>({ max });
  return {
    // What is new, nearly always, costs no more than a look; what is not was used again.
    has: (key) => cache.has(key) && cache.get(key) === true,
    add: (key) => void cache.set(key, true),
    forget: (key) => void cache.delete(key),
  };
}

/** The key of a delivery, or `undefined` where it has none. */
export function seenKey({ kind, from, message: { id } }: Delivery): string | undefined {
  if (id === "") return undefined;
  return `${kind} ${from} ${id.length > LONGEST_ID ? digestOf(new TextEncoder().encode(id)) : id}`;
}
