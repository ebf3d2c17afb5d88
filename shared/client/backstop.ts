/**
 * Reads the session's own backstop (§8): copies of durable channels, and of mentions, that were kept for it.
 *
 * Invariants
 * 1. A copy is shown as the message it is a copy of: its source subject, which only the space's delivery service
 *    writes, is checked as the subject of a live message is (§5).
 * 2. It is acknowledged once that message was handled here, by whichever copy (`hands.ts`).
 * 3. Copies that the limit may have removed are told (§8).
 */
import type { Msg, MsgHdrs } from "@nats-io/transport-node";
import type { AckInfo } from "../protocol/base/broker-subjects.ts";
import { Header } from "../protocol/base/headers.ts";
import { type Delivery, type ReadResult, RejectReason, readDelivery } from "../protocol/chat/message.ts";
import type { Events } from "./events.ts";
import type { Hands } from "./hands.ts";
import type { Hold } from "./holds.ts";
import { type InboxItem, makeItem } from "./item.ts";
import { seenKey } from "./seen.ts";
import { headerOf, headersOf } from "./wire.ts";

export type BackstopOptions = {
  /** The subject of this lifecycle's copies. */
  readonly subject: string;
  /** Whose posts are not shown, dot-form. */
  readonly hidden: string | undefined;
  readonly events: Events;
  readonly hands: Hands;
  readonly deliver: (item: InboxItem) => void;
};

export type Backstop = {
  readonly read: (message: Msg) => ReadResult;
  readonly receive: (delivery: Delivery, hold: Hold, message: Msg, ack: AckInfo) => void;
};

/** What a copy without a stamp was written under (§8). */
const UNSTAMPED = "1000";
const OWED = (): boolean => true;

export function createBackstop(options: BackstopOptions): Backstop {
  const { events, hands } = options;
  let isTold = false;

  const warn = (stamp: string, { pending }: AckInfo): void => {
    const isNear = /^\d{1,15}$/.test(stamp) && pending >= Number(stamp) - 1;
    if (isNear && !isTold) events.tell({ type: "shortfall", subject: options.subject, message: EVICTED });
    isTold = isNear;
  };

  return {
    read: (message) => {
      const headers = copyHeaders(message);
      const source = headers === undefined ? undefined : headerOf(headers, Header.SourceSubject);
      if (headers === undefined || message.subject !== options.subject || source === undefined) {
        return { ok: false, reason: RejectReason.MalformedSubject, detail: "no copy of a channel message" };
      }
      return readDelivery(source, message.data, headers.keys());
    },
    receive: (delivery, hold, message, ack) => {
      const headers = copyHeaders(message);
      const of = (name: Header): string | undefined => headers && headerOf(headers, name);
      warn(of(Header.DeliveryLimit) ?? UNSTAMPED, ack);
      if (delivery.from === options.hidden) return hold.ack();
      const seq = Number(of(Header.SourceSequence) ?? hold.seq);
      const key = seenKey(delivery);
      if (key === undefined) {
        events.received("chat");
        return options.deliver(makeItem(delivery, { hold, seq }));
      }
      if (hands.attach(key, hold)) return events.count("duplicates");
      const settling = hands.take(key, OWED, hold);
      if (settling === undefined) return hold.ack();
      events.received("chat");
      options.deliver(makeItem(delivery, { hold: settling, seq }));
    },
  };
}

const EVICTED =
  "more copies waited than are kept for one member: earlier ones may have been dropped; history may still have them";

function copyHeaders(message: Msg): MsgHdrs | undefined {
  const headers = headersOf(message);
  return headers === "unreadable" ? undefined : headers;
}
