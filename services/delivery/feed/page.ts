/**
 * One page of a command that shows the rows of a bucket.
 *
 * It is bounded in rows read and in bytes answered, whatever stands in the bucket; the first item is always shown, so
 * that whoever pages gets on. A row that can't be read is counted, never shown.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { type BucketRow, type RowPageRequest, rowPage } from "../../../shared/broker/reads.ts";

/** Patterns of 4,096 characters, four on each side: 5 such members are the most that one answer carries. */
const MAX_BYTES = 160_000;
const PAGE = 200;

type Asked = Pick<RowPageRequest, "via"> & { readonly cursor: number | undefined };

/** Where the next page begins is said while there is one. */
type Shown<T> = { readonly shown: T[]; readonly unreadable: number; readonly cursor?: number };

/** What `show` makes of each row that is no marker: an item, `undefined` for what is not shown, or that it can't be read. */
export async function shownPage<T extends object>(
  nc: NatsConnection,
  bucket: string,
  { cursor, ...more }: Asked,
  show: (row: BucketRow) => T | "unreadable" | undefined,
): Promise<Shown<T>> {
  const page = await rowPage(nc, bucket, { limit: PAGE, ...more, ...(cursor === undefined ? {} : { cursor }) });
  const shown: T[] = [];
  let unreadable = 0;
  let bytes = 0;
  for (const row of page.rows) {
    const item = row.kind === "marker" ? undefined : show(row);
    if (item === undefined) continue;
    if (item === "unreadable") unreadable += 1;
    else {
      bytes += JSON.stringify(item).length;
      if (bytes > MAX_BYTES && shown.length > 0) return { shown, unreadable, cursor: row.seq };
      shown.push(item);
    }
  }
  return page.cursor === undefined ? { shown, unreadable } : { shown, unreadable, cursor: page.cursor };
}
