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

export function createHands(seen: Seen): Hands {
  const inHand = new Map<string, InHand>();
  return {
    take: (key, isOwed, hold) => {
      if (inHand.has(key) || seen.has(key)) return undefined;
      const mine = new InHand({ key, isOwed, inHand, seen }, hold);
      inHand.set(key, mine);
      return mine;
    },
    attach: (key, hold) => {
      const mine = inHand.get(key);
      mine?.holds.push(hold);
      return mine !== undefined;
    },
  };
}

type Keeping = {
  readonly key: string;
  readonly isOwed: () => boolean;
  readonly inHand: Map<string, InHand>;
  readonly seen: Seen;
};

/** A class for the same reason as a hold is (`holds.ts`). */
class InHand implements Settling {
  readonly holds: Hold[];
  readonly #keeping: Keeping;

  constructor(keeping: Keeping, hold: Hold | undefined) {
    this.#keeping = keeping;
    this.holds = hold === undefined ? [] : [hold];
  }
  deliveries(): number {
    return this.holds.reduce((most, each) => Math.max(most, each.deliveries()), 1);
  }
  ack(): void {
    if (this.#isOver(true)) for (const each of this.holds) each.ack();
  }
  nak(delayMs: number): void {
    if (this.#isOver(false)) for (const each of this.holds) each.nak(delayMs);
  }
  /** Lets go of it; false if that was done before. */
  #isOver(isHandled: boolean): boolean {
    const { key, isOwed, inHand, seen } = this.#keeping;
    if (inHand.get(key) !== this) return false;
    inHand.delete(key);
    if (isHandled || (this.holds.length === 0 && !isOwed())) seen.add(key);
    return true;
  }
}
