/**
 * Copies in hand: delivered by a durable, not yet handled (§8).
 *
 * Invariants
 * 1. Acknowledged only when handled. What is given back is nakked, never dropped after an ack.
 * 2. A copy in hand is renewed (`+WPI`) while its ack wait can't have run out since the last
 *    renewal; after that it is left alone, because another delivery of it may be under way (§8).
 * 3. A redelivery of what is in hand joins it: it is shown once and all its copies are settled. A
 *    bare sequence proves nothing: a stream that was made anew counts from one again.
 */
import { AckBody, type AckInfo, nakBody } from "../protocol/base/broker-subjects.ts";

export type Hold = {
  /** Stream sequence of the first copy. */
  readonly seq: number;
  /** How often the broker has delivered it. */
  readonly deliveries: () => number;
  readonly ack: () => void;
  readonly nak: (delayMs: number) => void;
  readonly settled: () => boolean;
};

export type HoldsOptions = {
  readonly publish: (subject: string, body: string) => void;
  readonly ackWaitMs: number;
  /** Nothing is renewed while the connection is down, whatever the library buffers. */
  readonly isUp: () => boolean;
  /** Monotonic milliseconds. */
  readonly now: () => number;
  /** Called once a hold is settled, and whether it was acknowledged. */
  readonly onSettled: (identity: Identity, acked: boolean) => void;
  /** A copy that may be delivered again although it is in hand. */
  readonly onLapsed: (label: string) => void;
};

/** A copy's ack subject, and what it says. */
export type AckSubject = { readonly subject: string; readonly info: AckInfo };

/**
 * What makes two copies one message: its key (`seenKey`), or, without an id, sequence and content.
 * Two of one identity are never in hand as two.
 */
export type Identity = { readonly key: string | undefined; readonly same: string };

export type Holds = {
  readonly take: (identity: Identity, receipt: AckSubject, label: string) => Hold;
  /** Adds a redelivered copy to the one in hand; false if there is none. */
  readonly join: (identity: Identity, receipt: AckSubject) => boolean;
  readonly size: () => number;
  /** Gives everything back at once: nobody will handle it here. */
  readonly giveBack: () => void;
  /** Stops renewing. */
  readonly stop: () => void;
};

type Copy = {
  readonly identity: Identity;
  readonly label: string;
  /** Ack subject by stream sequence; a later delivery replaces an earlier one. */
  readonly replies: Map<number, string>;
  deliveries: number;
  renewedAt: number;
  lapsed: boolean;
  settled: boolean;
};

/** Renewals per ack wait: two may be lost. */
const RENEWALS = 3;

export function createHolds(options: HoldsOptions): Holds {
  const copies = new Set<Copy>();
  const byIdentity = new Map<string, Copy>();
  const every = options.ackWaitMs / RENEWALS;

  const settle = (copy: Copy, body: string, acked: boolean): void => {
    if (copy.settled) return;
    copy.settled = true;
    copies.delete(copy);
    byIdentity.delete(copy.identity.same);
    for (const reply of copy.replies.values()) options.publish(reply, body);
    options.onSettled(copy.identity, acked);
  };
  const renew = (): void => {
    const time = options.now();
    for (const copy of copies) {
      if (copy.lapsed || time - copy.renewedAt < every) continue;
      if (time - copy.renewedAt >= options.ackWaitMs) {
        copy.lapsed = true;
        options.onLapsed(copy.label);
        continue;
      }
      if (!options.isUp()) continue;
      copy.renewedAt = time;
      for (const reply of copy.replies.values()) options.publish(reply, AckBody.Progress);
    }
  };
  const timer = setInterval(renew, every / 2);
  timer.unref();

  const add = (copy: Copy, { subject, info }: AckSubject): void => {
    const seq = info.streamSequence;
    copy.replies.set(seq, subject);
    copy.deliveries = Math.max(copy.deliveries, info.deliveryCount);
    copy.renewedAt = options.now();
    copy.lapsed = false;
  };

  return {
    take: (identity, receipt, label) => {
      const copy: Copy = {
        identity,
        label,
        replies: new Map(),
        deliveries: 1,
        renewedAt: 0,
        lapsed: false,
        settled: false,
      };
      add(copy, receipt);
      copies.add(copy);
      byIdentity.set(identity.same, copy);
      return {
        seq: receipt.info.streamSequence,
        deliveries: () => copy.deliveries,
        ack: () => settle(copy, AckBody.Ack, true),
        nak: (delayMs) => settle(copy, nakBody(delayMs), false),
        settled: () => copy.settled,
      };
    },
    join: (identity, receipt) => {
      const copy = byIdentity.get(identity.same);
      if (copy === undefined) return false;
      add(copy, receipt);
      return true;
    },
    size: () => copies.size,
    giveBack: () => {
      for (const copy of copies) settle(copy, nakBody(0), false);
    },
    stop: () => clearInterval(timer),
  };
}
