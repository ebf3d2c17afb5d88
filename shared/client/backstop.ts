/**
 * Reads the session's own backstop (§8): copies of durable channels, and of mentions, that were kept for it.
 *
 * Invariants
 * 1. A copy is shown as the message it is a copy of: its source subject, which only the space's delivery service
 *    writes, is checked as the subject of a live message is (§5).
 * 2. It is acknowledged once that message was handled here, by whichever copy (`hands.ts`).
 * 3. Copies that the limit may have removed are told (§8).
 */
import type { Msg } from "@nats-io/transport-node";
import type { AckInfo } from "../protocol/base/broker-subjects.ts";
import { Header, isProvenance } from "../protocol/base/headers.ts";
import { type Delivery, type ReadResult, RejectReason, readDelivery } from "../protocol/chat/message.ts";
import type { Events } from "./events.ts";
import type { Hands } from "./hands.ts";
import type { Hold } from "./holds.ts";
import { type InboxItem, makeItem } from "./item.ts";
import { seenKey } from "./seen.ts";
import { headersOf } from "./wire.ts";

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
  /** True if it brought something new. */
  readonly receive: (delivery: Delivery, hold: Hold, message: Msg, ack: AckInfo) => boolean;
};

/** What a copy without a stamp was written under (§8). */
const UNSTAMPED = "1000";
const OWED = (): boolean => true;

export function createBackstop(options: BackstopOptions): Backstop {
  const { events, hands } = options;
  let isTold = false;
  /** Of the message that was read last: it is received next. */
  let last: Said | undefined;

  const warn = (stamp: string, { pending }: AckInfo): void => {
    const isNear = /^\d{1,15}$/.test(stamp) && pending >= Number(stamp) - 1;
    if (isNear && !isTold) events.tell({ type: "shortfall", subject: options.subject, message: EVICTED });
    isTold = isNear;
  };

  return {
    read: (message) => {
      const { source, stored } = (last = said(message));
      if (source === undefined || message.subject !== options.subject) {
        return { ok: false, reason: RejectReason.MalformedSubject, detail: "no copy of a channel message" };
      }
      return readDelivery(source, message.data, stored);
    },
    receive: (delivery, hold, message, ack) => {
      const { limit, sequence } = last?.of === message ? last : said(message);
      last = undefined;
      warn(limit ?? UNSTAMPED, ack);
      if (delivery.from === options.hidden) {
        hold.ack();
        return false;
      }
      const seq = Number(sequence ?? hold.seq);
      const key = seenKey(delivery);
      if (key === undefined) {
        events.received("chat");
        options.deliver(makeItem(delivery, { hold, seq }));
        return true;
      }
      if (hands.attach(key, hold)) {
        events.count("duplicates");
        return false;
      }
      const settling = hands.take(key, OWED, hold);
      if (settling === undefined) {
        hold.ack();
        return false;
      }
      events.received("chat");
      options.deliver(makeItem(delivery, { hold: settling, seq }));
      return true;
    },
  };
}

const EVICTED =
  "more copies waited than are kept for one member: earlier ones may have been dropped; history may still have them";

const NONE: readonly string[] = [];

/** What the headers of a copy say. */
type Said = {
  readonly of: Msg;
  readonly source: string | undefined;
  readonly sequence: string | undefined;
  readonly limit: string | undefined;
  /** Names that the broker writes on a copy of a stored message. */
  readonly stored: readonly string[];
};

/** In one pass: every copy comes through here, and a look for each name costs as much as reading the message. */
function said(message: Msg): Said {
  const found: { -readonly [Field in keyof Said]: Said[Field] } = {
    of: message,
    source: undefined,
    sequence: undefined,
    limit: undefined,
    stored: NONE,
  };
  const headers = headersOf(message);
  if (headers === undefined || headers === "unreadable") return found;
  for (const [name, [value]] of headers) {
    if (name === Header.SourceSubject) found.source = value;
    else if (name === Header.SourceSequence) found.sequence = value;
    else if (name === Header.DeliveryLimit) found.limit = value;
    else if (isProvenance(name)) found.stored = [...found.stored, name];
  }
  return found;
}
