/** A channel's history as the items a reader gets. */
import { concreteChannel } from "../protocol/base/channels.ts";
import type { Events } from "./events.ts";
import { type StoredDelivery, lastOf, readHistory } from "./history.ts";
import { type InboxItem, makeItem } from "./item.ts";
import type { Reads } from "./reads.ts";
import { seenKey } from "./seen.ts";
import type { HistoryOptions } from "./session-types.ts";

type HistorySource = { readonly reads: Reads; readonly events: Events; readonly space: string };

/** History of one channel as items, oldest first; an id that comes twice is shown once. */
export async function historyItems(
  { reads, events, space }: HistorySource,
  given: string,
  { limit, sinceMs, fromSeq }: HistoryOptions = {},
): Promise<InboxItem[]> {
  const channel = concreteChannel(given);
  const shown = new Set<string>();
  const items: InboxItem[] = [];
  const show = ({ delivery, seq }: StoredDelivery): void => {
    const key = seenKey(delivery);
    if (key !== undefined && shown.has(key)) return;
    if (key !== undefined) shown.add(key);
    items.push(makeItem(delivery, { historical: true, seq }));
  };
  if (limit !== undefined && sinceMs === undefined && fromSeq === undefined) {
    for (const stored of await lastOf(reads, events, space, channel, limit)) show(stored);
    return items;
  }
  const range = {
    ...(sinceMs === undefined ? {} : { sinceMs }),
    ...(fromSeq === undefined ? {} : { fromSeq }),
    ...(limit === undefined ? {} : { limit }),
  };
  for await (const stored of readHistory(reads, events, space, channel, range)) show(stored);
  return items;
}
