/**
 * Pages over the rows of a bucket: each key once, with its last value, in the order of their writes.
 *
 * Buckets keep one value per key (history 1), so a walk along sequences meets every key once. A row
 * written during the walk moves behind the cursor and is met again with its newer value: a reader that
 * keeps the last one it met for a key is right, and none is missed. `multi_last` is no way to do this:
 * above 1,024 keys it fails whole (413).
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { kvKey, kvKeyOf } from "../protocol/base/broker-subjects.ts";
import { bucketStream } from "../protocol/base/names.ts";
import { type StoredEntry, leaderNext } from "./leader.ts";
import { type Page, directPage } from "./pages.ts";
import { isMarker } from "./stored-headers.ts";

export type BucketRow = {
  readonly key: string;
  readonly seq: number;
  readonly timeMs: number;
  /** A marker stands where a row was deleted or expired; its data says nothing. */
  readonly kind: "value" | "marker";
  readonly data: Uint8Array;
};

export type RowPageRequest = {
  /** A key or key pattern; all keys if left out. */
  readonly filter?: string;
  /** What the page before gave. */
  readonly cursor?: number;
  readonly limit: number;
  /** "leader" for a bucket without direct gets, or when the walk decides something (§13.9). */
  readonly via?: "direct" | "leader";
};

/** No `cursor` in the answer: there was nothing more. */
export type RowPage = { readonly rows: readonly BucketRow[]; readonly cursor?: number };

export async function rowPage(nc: NatsConnection, bucket: string, request: RowPageRequest): Promise<RowPage> {
  const stream = bucketStream(bucket);
  const filter = kvKey(bucket, request.filter ?? ">");
  const fromSeq = request.cursor ?? 1;
  const page =
    request.via === "leader"
      ? await leaderPage(nc, stream, filter, fromSeq, request.limit)
      : await directPage(nc, stream, { filter, fromSeq, batch: request.limit });
  const rows = page.messages.flatMap((entry) => rowOf(bucket, entry));
  return page.nextSeq === undefined ? { rows } : { rows, cursor: page.nextSeq };
}

/** Every row of a bucket, a page in memory at a time. */
export async function* allRows(
  nc: NatsConnection,
  bucket: string,
  request: RowPageRequest,
): AsyncGenerator<BucketRow, void, undefined> {
  let cursor = request.cursor;
  do {
    const page = await rowPage(nc, bucket, { ...request, ...(cursor === undefined ? {} : { cursor }) });
    yield* page.rows;
    ({ cursor } = page);
  } while (cursor !== undefined);
}

async function leaderPage(
  nc: NatsConnection,
  stream: string,
  filter: string,
  fromSeq: number,
  limit: number,
): Promise<Page> {
  const messages: StoredEntry[] = [];
  let nextSeq = fromSeq;
  while (messages.length < Math.max(1, limit)) {
    const entry = await leaderNext(nc, stream, filter, nextSeq);
    if (entry === undefined) return { messages, done: true };
    messages.push(entry);
    nextSeq = entry.seq + 1;
  }
  return { messages, done: false, nextSeq };
}

function rowOf(bucket: string, { subject, seq, timeMs, headers, data }: StoredEntry): BucketRow[] {
  const key = kvKeyOf(bucket, subject);
  return key === undefined ? [] : [{ key, seq, timeMs, kind: isMarker(headers) ? "marker" : "value", data }];
}
