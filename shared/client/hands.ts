/**
 * Channel messages in hand: given to the reader and not yet handled, whatever path brought them (§4, §8).
 *
 * One message may come live, from history and as a durable copy. It is shown once, and its durable copy is
 * acknowledged when it was handled: never because another copy of it was merely on its way to the reader.
 *
 * Invariants
 * 1. What is in hand is not shown again; a durable copy that comes meanwhile joins it.
 * 2. Handled is remembered. What was given back or pushed out unread is forgotten where a durable copy is owed,
 *    so that the copy shows it; elsewhere it is gone, for there is no other (§4).
 */
import type { Hold } from "./holds.ts";
import type { Seen } from "./seen.ts";

/** What an item in hand is settled with. */
export type Settling = Pick<Hold, "deliveries" | "ack" | "nak">;

export type Hands = {
  /** `undefined`: it is in hand, or was handled. `isOwed` is asked when it is given back. */
  readonly take: (key: string, isOwed: () => boolean, hold?: Hold) => Settling | undefined;
  /** Adds a durable copy to what is in hand; false if that is not. */
  readonly attach: (key: string, hold: Hold) => boolean;
};

type InHand = { readonly holds: Hold[] };

export function createHands(seen: Seen): Hands {
  const inHand = new Map<string, InHand>();
  return {
    take: (key, isOwed, hold) => {
      if (inHand.has(key) || seen.has(key)) return undefined;
      const mine: InHand = { holds: hold === undefined ? [] : [hold] };
      inHand.set(key, mine);
      const settle = (run: (hold: Hold) => void, isHandled: boolean): void => {
        if (inHand.get(key) !== mine) return;
        inHand.delete(key);
        if (isHandled || (mine.holds.length === 0 && !isOwed())) seen.add(key);
        for (const each of mine.holds) run(each);
      };
      return {
        deliveries: () => mine.holds.reduce((most, each) => Math.max(most, each.deliveries()), 1),
        ack: () => settle((each) => each.ack(), true),
        nak: (delayMs) => settle((each) => each.nak(delayMs), false),
      };
    },
    attach: (key, hold) => {
      const mine = inHand.get(key);
      mine?.holds.push(hold);
      return mine !== undefined;
    },
  };
}
