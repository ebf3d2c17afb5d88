/**
 * Copies in hand: delivered by a durable, not yet handled (§8).
 *
 * Invariants
 * 1. Acknowledged only when handled. What is given back is nakked, never dropped after an ack.
 * 2. A copy in hand is renewed (`+WPI`) while its ack wait can't have run out since the last
 *    renewal; after that it is left alone, because another delivery of it may be under way (§8).
 * 3. A redelivery of what is in hand joins it: it is shown once and all its copies are settled. A
 *    bare sequence proves nothing: a stream that was made anew counts from one again.
 * 4. A copy that has to be asked for before it is shown (§8.1) is renewed only by who asks, until it is shown. When
 *    its ack wait runs out before, it is forgotten: the broker gives it to whoever pulls.
 */
import { AckBody, type AckInfo, nakBody } from "../protocol/base/broker-subjects.ts";

/** Its functions are called on it, and not by themselves. */
export type Hold = {
  /** Stream sequence of the first copy. */
  readonly seq: number;
  /** How often the broker has delivered it. */
  deliveries(): number;
  ack(): void;
  nak(delayMs: number): void;
  settled(): boolean;
  /** The newest copy of it, as it was delivered. */
  copy(): HeldCopy;
  /** False once its ack wait may have run out. */
  isAlive(): boolean;
  /** Restarts its ack wait, now. */
  renew(): void;
  /** It is shown: it is renewed from here on. */
  shown(): void;
  /** Lets go of it without a word to the broker. */
  forget(): void;
};

export type HeldCopy = {
  readonly seq: number;
  readonly count: number;
  /** The stream's creation time as it was known when the copy came. */
  readonly epoch: string | undefined;
};

export type HoldsOptions = {
  readonly publish: (subject: string, body: string) => void;
  /** The same, ahead of whatever its caller sends next. */
  readonly publishNow: (subject: string, body: string) => void;
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
export type AckSubject = { readonly subject: string; readonly info: AckInfo; readonly epoch?: string | undefined };

/**
 * What makes two copies one message: its key (`seenKey`), or, without an id, sequence and content.
 * Two of one identity are never in hand as two.
 */
export type Identity = { readonly key: string | undefined; readonly same: string };

export type Holds = {
  /** `asked`: it is not renewed before it is shown. */
  readonly take: (identity: Identity, receipt: AckSubject, label: string, how?: { readonly asked: boolean }) => Hold;
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
  /** One ack subject for each stream sequence: a later delivery replaces an earlier one. Nearly always one. */
  readonly replies: Reply[];
  deliveries: number;
  newest: HeldCopy;
  /** Not renewed by itself: it is asked for first. */
  unshown: boolean;
  renewedAt: number;
  lapsed: boolean;
  settled: boolean;
};

type Reply = { readonly seq: number; subject: string };

/** What is done with a copy in hand. */
type Doing = {
  readonly settle: (copy: Copy, body: string, acked: boolean) => void;
  readonly drop: (copy: Copy) => void;
  readonly isAlive: (copy: Copy) => boolean;
  readonly renew: (copy: Copy) => void;
};

/** A class and no record of functions: one of them is made for every message, and nine closures are a kilobyte. */
class HeldHold implements Hold {
  readonly seq: number;
  readonly #copy: Copy;
  readonly #doing: Doing;

  constructor(copy: Copy, doing: Doing) {
    this.seq = copy.newest.seq;
    this.#copy = copy;
    this.#doing = doing;
  }
  deliveries(): number {
    return this.#copy.deliveries;
  }
  ack(): void {
    this.#doing.settle(this.#copy, AckBody.Ack, true);
  }
  nak(delayMs: number): void {
    this.#doing.settle(this.#copy, nakBody(delayMs), false);
  }
  settled(): boolean {
    return this.#copy.settled;
  }
  copy(): HeldCopy {
    return this.#copy.newest;
  }
  isAlive(): boolean {
    return this.#doing.isAlive(this.#copy);
  }
  renew(): void {
    this.#doing.renew(this.#copy);
  }
  shown(): void {
    this.#copy.unshown = false;
  }
  forget(): void {
    this.#doing.drop(this.#copy);
  }
}

/** Renewals per ack wait: two may be lost. */
const RENEWALS = 3;
/** The broker's clock began before ours: only this share of an ack wait is surely left to a copy that came. */
const SURE = 0.9;

export function createHolds(options: HoldsOptions): Holds {
  const copies = new Set<Copy>();
  const byIdentity = new Map<string, Copy>();
  const every = options.ackWaitMs / RENEWALS;

  const settle = (copy: Copy, body: string, acked: boolean): void => {
    if (copy.settled) return;
    copy.settled = true;
    copies.delete(copy);
    byIdentity.delete(copy.identity.same);
    for (const { subject } of copy.replies) options.publish(subject, body);
    options.onSettled(copy.identity, acked);
  };
  const drop = (copy: Copy): void => {
    if (copy.settled) return;
    copy.settled = true;
    copies.delete(copy);
    byIdentity.delete(copy.identity.same);
    options.onSettled(copy.identity, false);
  };
  const isAlive = (copy: Copy): boolean => options.now() - copy.renewedAt < options.ackWaitMs * SURE;
  const lapse = (copy: Copy): void => {
    drop(copy);
    options.onLapsed(copy.label);
  };
  const restart = (copy: Copy, publish = options.publish): void => {
    copy.renewedAt = options.now();
    for (const { subject } of copy.replies) publish(subject, AckBody.Progress);
  };
  const renew = (): void => {
    const time = options.now();
    for (const copy of copies) {
      if (copy.unshown) {
        if (!isAlive(copy)) lapse(copy);
        continue;
      }
      if (copy.lapsed || time - copy.renewedAt < every) continue;
      if (time - copy.renewedAt >= options.ackWaitMs) {
        copy.lapsed = true;
        options.onLapsed(copy.label);
        continue;
      }
      if (options.isUp()) restart(copy);
    }
  };
  const timer = setInterval(renew, every / 2);
  timer.unref();

  const add = (copy: Copy, { subject, info, epoch }: AckSubject): void => {
    const seq = info.streamSequence;
    copy.newest = { seq, count: info.deliveryCount, epoch };
    const known = copy.replies.find((reply) => reply.seq === seq);
    if (known === undefined) copy.replies.push({ seq, subject });
    else known.subject = subject;
    copy.deliveries = Math.max(copy.deliveries, info.deliveryCount);
    copy.renewedAt = options.now();
    copy.lapsed = false;
  };

  const doing: Doing = {
    settle,
    drop,
    isAlive,
    renew: (copy) => restart(copy, options.publishNow),
  };

  return {
    take: (identity, receipt, label, { asked } = { asked: false }) => {
      const copy: Copy = {
        identity,
        label,
        replies: [],
        deliveries: 1,
        newest: { seq: receipt.info.streamSequence, count: receipt.info.deliveryCount, epoch: receipt.epoch },
        unshown: asked,
        renewedAt: 0,
        lapsed: false,
        settled: false,
      };
      add(copy, receipt);
      copies.add(copy);
      byIdentity.set(identity.same, copy);
      return new HeldHold(copy, doing);
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
