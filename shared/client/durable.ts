/**
 * Reads one durable of the session's own: the DM inbox, the role queue or the backstop (§8).
 *
 * Invariants
 * 1. A permanent anomaly is terminated with its reason, counted, and never shown (§4, H19).
 * 2. What was handled before is acknowledged and not shown again; a copy of what is in hand joins
 *    it. The key is (kind, sender, id), and an empty id is none (§4).
 * 3. Room is counted in copies in hand, so nothing is pulled that can't be held.
 */
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { AckBody, jsApi, parseAck } from "../protocol/base/broker-subjects.ts";
import { digestOf } from "../protocol/base/canonical.ts";
import { type Delivery, RejectReason } from "../protocol/chat/message.ts";
import type { DeliveryKind } from "../protocol/base/subjects.ts";
import type { Backstop } from "./backstop.ts";
import { createBatched } from "./batched.ts";
import type { Events } from "./events.ts";
import { type AckSubject, type Hold, type Identity, createHolds } from "./holds.ts";
import { type InboxItem, makeItem } from "./item.ts";
import { type PullState, createPullLoop } from "./pull.ts";
import { type Seen, seenKey } from "./seen.ts";
import { readWire } from "./wire.ts";

/** The durables of a session: its direct messages, its role's queue, its backstop. */
export type DurableRail = "dm" | "role" | "durable";

export type DurableOptions = {
  readonly nc: NatsConnection;
  readonly rail: DurableRail;
  readonly stream: string;
  readonly durable: string;
  readonly replyLead: string;
  /** What a delivery of this durable must be: its space, its kind, and its target where that is fixed. */
  readonly expected: { readonly space: string; readonly kind: DeliveryKind; readonly target?: string };
  readonly capacity: number;
  readonly maxOutstanding: number;
  readonly expiresMs: number;
  readonly ackWaitMs: number;
  readonly seen: Seen;
  readonly events: Events;
  readonly isUp: () => boolean;
  /** A copy has to be asked for before it is shown; when it came, the stream was made at `epoch` (§8.1). */
  readonly asked?: { readonly epoch: () => string | undefined };
  /** `hold` is what the item's `ack` and `nak` settle. */
  readonly deliver: (item: InboxItem, hold: Hold) => void;
  /** How copies of other messages are read and shown (`backstop.ts`). */
  readonly copies?: Backstop;
  readonly onState: (state: PullState, before: PullState) => void;
  readonly now: () => number;
};

export type DurableReader = {
  readonly kick: () => void;
  readonly reconnected: () => void;
  readonly held: () => number;
  readonly state: () => PullState;
  /** Stops pulling; what still comes is given back. */
  readonly stopPulling: () => Promise<void>;
  /** Gives back what is still in hand. */
  readonly giveBack: () => void;
  readonly stop: () => void;
};

export function createDurableReader(options: DurableOptions): DurableReader {
  const { nc, events, seen, rail } = options;
  let stopping = false;
  const { publish, pull, flush } = createBatched(nc, {
    subject: jsApi.next(options.stream, options.durable),
    body: JSON.stringify({ batch: 1, expires: options.expiresMs * 1_000_000 }),
  });
  const holds = createHolds({
    publish,
    publishNow: (subject, body) => {
      publish(subject, body);
      flush();
    },
    ackWaitMs: options.ackWaitMs,
    isUp: options.isUp,
    now: options.now,
    onLapsed: (id) => events.tell({ type: "lapsed", rail, id }),
    onSettled: ({ key }, acked) => {
      if (acked) {
        events.count("acked");
        // Of a channel's message `hands.ts` has remembered it.
        if (key !== undefined && options.copies === undefined) seen.add(key);
      }
      loop.kick();
    },
  });

  /** How many more wait, where this brought nothing new. */
  const receive = (message: Msg): number | undefined => {
    const { reply } = message;
    const ack = parseAck(reply);
    if (reply === undefined || ack?.stream !== options.stream || ack.consumer !== options.durable) {
      // Not a copy of this durable; there is nothing to terminate.
      events.rejected(rail, RejectReason.StoredCopy, "not delivered by the own durable");
      return undefined;
    }
    if (ack.deliveryCount > 1) events.count("redelivered");
    const read = options.copies?.read(message) ?? readWire(message);
    if (!read.ok) return terminate(reply, read.reason, read.detail);
    if (!isExpected(read.delivery, options.expected)) {
      return terminate(reply, RejectReason.MalformedSubject, "addressed to somebody else");
    }
    const identity = identityOf(read.delivery, ack.streamSequence);
    const { key } = identity;
    const receipt: AckSubject = { subject: reply, info: ack, epoch: options.asked?.epoch() };
    if (holds.join(identity, receipt)) {
      events.count("duplicates");
      return undefined;
    }
    if (key !== undefined && seen.has(key)) {
      events.count("duplicates");
      publish(reply, AckBody.Ack);
      return ack.pending;
    }
    const hold = holds.take(identity, receipt, read.delivery.message.id, { asked: options.asked !== undefined });
    // Pulled before the stop and delivered after it: nobody will handle it here.
    if (stopping) {
      hold.nak(0);
      return undefined;
    }
    if (options.copies !== undefined) {
      return options.copies.receive(read.delivery, hold, message, ack) ? undefined : ack.pending;
    }
    if (rail !== "durable") events.received(rail);
    options.deliver(makeItem(read.delivery, { hold }), hold);
    return undefined;
  };
  const terminate = (reply: string, reason: RejectReason, detail: string): undefined => {
    publish(reply, `${AckBody.Term} ${reason}`);
    events.rejected(rail, reason, detail);
  };

  const loop = createPullLoop({
    nc,
    pull,
    replyLead: options.replyLead,
    expiresMs: options.expiresMs,
    maxOutstanding: options.maxOutstanding,
    room: () => options.capacity - holds.size(),
    isUp: options.isUp,
    onMessage: receive,
    onState: options.onState,
    onLost: (count) => events.count("pullsLost", count),
    now: options.now,
  });
  loop.kick();

  return {
    kick: loop.kick,
    reconnected: loop.reconnected,
    held: holds.size,
    state: loop.state,
    stopPulling: () => {
      stopping = true;
      return loop.stop();
    },
    giveBack: () => {
      holds.giveBack();
      flush();
    },
    stop: () => {
      holds.stop();
      flush();
    },
  };
}

/** Without an id, only a redelivery of the same stored message is the same. */
function identityOf(delivery: Delivery, seq: number): Identity {
  const key = seenKey(delivery);
  const { from, message } = delivery;
  return { key, same: key ?? digestOf(encoder.encode(JSON.stringify([seq, from, message.ts, message.parts]))) };
}

const encoder = new TextEncoder();

function isExpected({ subject }: Delivery, expected: DurableOptions["expected"]): boolean {
  if (subject.space !== expected.space || subject.kind !== expected.kind) return false;
  return expected.target === undefined || subject.rest === expected.target;
}
