/**
 * The bucket of the membership feed as it is, and what has to change in it.
 *
 * Invariants
 * 1. Only what differs is written, pinned to what was read; a key that nothing is said of any more leaves without a
 *    marker. So the bucket holds a row for each principal that hears something, and nothing of the past.
 * 2. Whatever somebody else has written there is found by the next pass and put right.
 * 3. A pass that failed, by a lost compare-and-set or otherwise, knows nothing: the next one reads everything anew.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { atOnce } from "../../../shared/broker/at-once.ts";
import { deleteMessage } from "../../../shared/broker/delete.ts";
import { streamState } from "../../../shared/broker/ensure.ts";
import { parseJson } from "../../../shared/protocol/base/json.ts";
import { allRows } from "../../../shared/broker/reads.ts";
import type { Writer } from "../../../shared/broker/write.ts";
import { kvKey } from "../../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../../shared/protocol/base/names.ts";
import {
  FEED_VIEW_KEY,
  type FeedEntry,
  FeedRow,
  type FeedView,
  feedRow,
} from "../../../shared/protocol/chat/membership-feed.ts";

export type FeedPass = { readonly rows: number; readonly written: number; readonly removed: number };

export type FeedBucket = {
  /** Makes the bucket say this. Throws `conflict` where somebody else writes it. */
  readonly put: (entries: ReadonlyMap<string, FeedEntry>, view: FeedView) => Promise<FeedPass>;
};

/** What stands at a key: `undefined` for what is no entry, and is written over. */
type Stored = { readonly seq: number; readonly entry: string | undefined };

/** Writes that are under way at once. */
const AT_ONCE = 64;
const PAGE = 500;

export function createFeedBucket(nc: NatsConnection, space: string, writer: Writer): FeedBucket {
  const bucket = spaceNames(space).bucket.membership;
  const stream = bucketStream(bucket);
  const stored = new Map<string, Stored>();
  /** Is `stored` what the bucket had at `lastSeq`? */
  let isKnown = false;
  let lastSeq = 0;

  const refresh = async (): Promise<void> => {
    const state = await streamState(nc, stream);
    if (isKnown && state.lastSeq === lastSeq && state.messages === stored.size) return;
    stored.clear();
    for await (const { key, seq, kind, data } of allRows(nc, bucket, { limit: PAGE })) {
      stored.set(key, { seq, entry: kind === "marker" ? undefined : entryOf(data) });
    }
    lastSeq = state.lastSeq;
    isKnown = true;
  };

  const write = async (key: string, value: FeedRow | FeedView, entry: string | undefined): Promise<void> => {
    const before = stored.get(key);
    const data = new TextEncoder().encode(JSON.stringify(value));
    const subject = kvKey(bucket, key);
    const seq =
      before === undefined
        ? await writer.create(stream, subject, data)
        : await writer.cas(stream, subject, data, before.seq);
    stored.set(key, { seq, entry });
    lastSeq = Math.max(lastSeq, seq);
  };

  const remove = async (key: string, { seq }: Stored): Promise<void> => {
    await writer.effect(() => deleteMessage(nc, stream, seq));
    stored.delete(key);
  };

  return {
    put: async (entries, view) => {
      try {
        await refresh();
        const changed = [...entries].flatMap(([key, entry]) => {
          const text = JSON.stringify(entry);
          return stored.get(key)?.entry === text ? [] : [() => write(key, feedRow(entry, view.at), text)];
        });
        const gone = [...stored].filter(([key]) => key !== FEED_VIEW_KEY && !entries.has(key));
        await atOnce(changed, AT_ONCE, (change) => change());
        await atOnce(gone, AT_ONCE, ([key, one]) => remove(key, one));
        await write(FEED_VIEW_KEY, view, undefined);
        return { rows: entries.size, written: changed.length, removed: gone.length };
      } catch (error) {
        isKnown = false;
        throw error;
      }
    },
  };
}

/** In the spelling in which entries are compared. */
function entryOf(data: Uint8Array): string | undefined {
  const row = FeedRow.safeParse(parseJson(data)).data;
  if (row === undefined) return undefined;
  const { live, durable, omitted } = row;
  return JSON.stringify({ live, durable, omitted } satisfies FeedEntry);
}
