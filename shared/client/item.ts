/** What a reader of the inbox gets: one typed item per delivery, whatever path it took. */
import type { Delivery, EndpointRef } from "../protocol/chat/message.ts";
import type { Part } from "../protocol/chat/parts.ts";
import { MessageKind } from "../protocol/chat/message.ts";
import type { AnycastNotice } from "../protocol/chat/anycast.ts";
import type { Settling } from "./hands.ts";
import type { Hold } from "./holds.ts";

export type Notice = AnycastNotice["cotalAnycastNotice"];

type ItemBase = {
  /** The sender's id for it; may be empty, and is unique only per sender. */
  readonly id: string;
  /** `id` is the authenticated principal of the subject; `name` and `role` are what the sender says. */
  readonly from: EndpointRef;
  readonly parts: readonly Part[];
  /** The text parts, joined by line ends. */
  readonly text: string;
  /** When the sender says it was sent, epoch ms. */
  readonly ts: number;
  readonly mentions: readonly string[];
  readonly replyTo?: string;
  readonly contextId?: string;
  /** Read back from history and not live: nothing to be woken by (§7). */
  readonly historical: boolean;
  /** Sequence in its stream, where it is known. */
  readonly receivedSeq?: number;
  /** 1 on the first delivery of a durable copy. */
  readonly deliveries: number;
  /**
   * Says that it is handled. The iterator does so when the next item is asked for, and a handler's
   * return does; call it yourself to do it earlier. Nothing happens the second time.
   */
  readonly ack: () => void;
  /** Gives it back: it is delivered again after the delay. A chat item comes again only as a durable copy. */
  readonly nak: (delayMs?: number) => void;
};

export type ChatItem = ItemBase & { readonly kind: "chat"; readonly channel: string };
export type DmItem = ItemBase & {
  readonly kind: "dm";
  /**
   * The delivery daemon says who has taken a request of one's own (§8.1). Only its own message has this: the same
   * part from anybody else is just a part. It is no question and needs no answer.
   */
  readonly notice?: Notice;
};
export type AskItem = ItemBase & { readonly kind: "ask"; readonly role: string };
export type InboxItem = ChatItem | DmItem | AskItem;

export type ItemSource = {
  readonly historical?: boolean;
  readonly seq?: number;
  readonly hold?: Hold | Settling;
};

/** An item before it is handed out; each kind has its own of the last three. */
type Growing = { -readonly [Field in keyof ItemBase]: ItemBase[Field] } & {
  readonly kind: InboxItem["kind"];
  channel?: string;
  role?: string;
};

const KIND: Readonly<Record<MessageKind, InboxItem["kind"]>> = {
  [MessageKind.Channel]: "chat",
  [MessageKind.Dm]: "dm",
  [MessageKind.Anycast]: "ask",
};

export function makeItem(delivery: Delivery, source: ItemSource): InboxItem {
  const { message, target } = delivery;
  const { hold } = source;
  const { name, role } = message.from;
  const seq = source.seq ?? (hold !== undefined && "seq" in hold ? hold.seq : undefined);
  const item: Growing = {
    kind: KIND[delivery.kind],
    id: message.id,
    from: role === undefined ? { id: delivery.from, name } : { id: delivery.from, name, role },
    parts: message.parts,
    text: textOf(message.parts),
    ts: message.ts,
    mentions: message.mentions ?? [],
    historical: source.historical ?? false,
    deliveries: 1,
    ack: () => hold?.ack(),
    nak: (delayMs = 0) => hold?.nak(delayMs),
  };
  // One by one: to spread what may be absent, or to join two objects, makes as much garbage as the item itself.
  if (message.replyTo !== undefined) item.replyTo = message.replyTo;
  if (message.contextId !== undefined) item.contextId = message.contextId;
  if (seq !== undefined) item.receivedSeq = seq;
  if (item.kind === "chat") item.channel = target;
  if (item.kind === "ask") item.role = target;
  // A copy may be delivered again while it waits to be read. No getter: each object would be of a shape of its own.
  hold?.counts(item);
  return item as InboxItem;
}

function textOf(parts: readonly Part[]): string {
  const texts: string[] = [];
  for (const part of parts) if (part.kind === "text" && "text" in part) texts.push(String(part.text));
  return texts.join("\n");
}
