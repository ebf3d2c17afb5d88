/**
 * How a delivery is shown: one object with the wire's own field names, or a line for a person.
 *
 * Invariant: `kind` is §4's (`channel`, `dm`, `anycast`), taken from the delivering subject; `from.id`
 * is the authenticated sender, `from.name` what the sender says.
 */
import type { InboxItem } from "../shared/client/item.ts";
import { MessageKind } from "../shared/protocol/chat/message.ts";
import type { Item, Output } from "./output.ts";
import { indented, oneLine } from "./text.ts";

const KIND = { chat: MessageKind.Channel, dm: MessageKind.Dm, ask: MessageKind.Anycast } as const;

export function printMessage(out: Output, item: InboxItem): void {
  out.item(asItem(item), line(out, item));
}

function asItem(item: InboxItem): Item {
  const { id, from, historical, parts, ts, mentions, replyTo, contextId, receivedSeq } = item;
  return {
    kind: KIND[item.kind],
    id,
    from,
    ...(item.kind === "chat" ? { channel: item.channel } : {}),
    ...(item.kind === "ask" ? { role: item.role } : {}),
    ...(item.kind === "dm" && item.notice !== undefined ? { notice: item.notice } : {}),
    historical,
    parts,
    ts,
    ...(mentions.length === 0 ? {} : { mentions }),
    ...(replyTo === undefined ? {} : { replyTo }),
    ...(contextId === undefined ? {} : { contextId }),
    ...(receivedSeq === undefined ? {} : { seq: receivedSeq }),
  };
}

function line(out: Output, item: InboxItem): string {
  const where =
    item.kind === "chat" ? `#${oneLine(item.channel)}` : item.kind === "dm" ? "dm" : `ask ${oneLine(item.role)}`;
  const body = indented(textOf(item), 2);
  const head = `${clock(item.ts)} ${out.style("cyan", where)} ${out.style("bold", oneLine(item.from.name))}:`;
  return item.historical ? `${head} ${body} ${out.style("dim", "(earlier)")}` : `${head} ${body}`;
}

/** Parts that are no text are named, not hidden. */
function textOf({ parts, text }: InboxItem): string {
  const others = parts.filter(({ kind }) => kind !== "text").map(({ kind }) => `[${kind}]`);
  return [text, ...others].filter((part) => part !== "").join(" ");
}

/** A sender's clock may say anything. */
function clock(ts: number): string {
  const date = new Date(ts);
  return Number.isNaN(date.getTime()) ? "--:--:--" : date.toTimeString().slice(0, 8);
}
