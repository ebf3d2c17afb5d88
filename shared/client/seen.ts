/**
 * Which messages were surfaced already: a bounded memory of (kind, sender, id) (§4, decision H63).
 *
 * Invariants: the empty id is never a key; another sender's same id is another message; a message
 * is remembered once it is surfaced (live) or handled (durable), never before.
 */
import { digestOf } from "../protocol/base/canonical.ts";
import type { Delivery } from "../protocol/chat/message.ts";

/** At least so many of the last ones are remembered, and at most twice as many. */
const KEPT = 16_384;
/** A longer id is kept as its digest: what a sender writes must not cost memory here. */
const LONGEST_ID = 200;

export type Seen = {
  readonly has: (key: string) => boolean;
  readonly add: (key: string) => void;
  readonly forget: (key: string) => void;
};

/**
 * Two generations: what was not used while a whole one was filled goes with the older one. Every message comes
 * through here, and a list in order of use costs four times as much (measured).
 */
export function createSeen(kept = KEPT): Seen {
  let young = new Set<string>();
  let old = new Set<string>();
  const add = (key: string): void => {
    young.add(key);
    if (young.size < kept) return;
    old = young;
    young = new Set();
  };
  return {
    has: (key) => {
      if (young.has(key)) return true;
      if (!old.has(key)) return false;
      add(key);
      return true;
    },
    add,
    forget: (key) => {
      young.delete(key);
      old.delete(key);
    },
  };
}

/** The key of a delivery, or `undefined` where it has none. */
export function seenKey({ kind, from, message: { id } }: Delivery): string | undefined {
  if (id === "") return undefined;
  return `${kind} ${from} ${id.length > LONGEST_ID ? digestOf(new TextEncoder().encode(id)) : id}`;
}
