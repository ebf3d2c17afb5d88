/**
 * A page of a bucket as it is stored, for whoever applies the rules of its rows himself.
 *
 * Invariant: a row is somebody else's bytes. One that is no JSON, nests too deep to be written again, or fits in no
 * answer is given as `null`; and a page is measured as it goes out, not as it lies in the store.
 */
import { parseJson } from "../../../shared/protocol/base/json.ts";
import { type RowPageRequest, rowPage } from "../../../shared/broker/reads.ts";
import { isBounded } from "../../../shared/protocol/base/canonical.ts";
import type { Mediator } from "./mediator.ts";
import { SNAPSHOT_BYTES, answerRoom } from "./room.ts";

export type SnapshotRow = { readonly key: string; readonly revision: number; readonly value: unknown };

export type Snapshot = {
  readonly rows: readonly SnapshotRow[];
  /** Where the next page begins; absent on the last. */
  readonly cursor?: number;
};

export async function snapshot(
  mediator: Pick<Mediator, "store">,
  bucket: string,
  request: RowPageRequest,
): Promise<Snapshot> {
  const page = await rowPage(mediator.store, bucket, request);
  const room = answerRoom(mediator, SNAPSHOT_BYTES);
  const rows: SnapshotRow[] = [];
  let bytes = 0;
  for (const { key, seq, kind, data } of page.rows) {
    if (kind !== "value") continue;
    const row = { key, revision: seq, value: writable(parseJson(data)) };
    const size = Buffer.byteLength(JSON.stringify(row));
    // The cursor is a sequence: the next page begins at the row that did not fit.
    if (bytes + size > room && rows.length > 0) return { rows, cursor: seq };
    bytes += size;
    rows.push(size > room ? { ...row, value: null } : row);
  }
  return { rows, ...(page.cursor === undefined ? {} : { cursor: page.cursor }) };
}

const writable = (value: unknown): unknown => (value !== undefined && isBounded(value) ? value : null);
