/**
 * Presence records, a page at a time, as they are stored (§6): who reads them applies the rules.
 *
 * Invariant: a record is somebody else's bytes. One that nests too deep to be written again is
 * answered as `null`, and a page is measured as it goes out, not as it lies in the store.
 */
import type { z } from "zod";
import { rowPage } from "../../shared/broker/reads.ts";
import { isBounded } from "../../shared/protocol/base/canonical.ts";
import type { RosterArgs } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { type SpaceContext, answerRoom } from "./context.ts";
import { parseJson } from "./rows.ts";

const DEFAULT_LIMIT = 500;
const MAX_BYTES = 400_000;

export async function roster(context: SpaceContext, args: z.infer<typeof RosterArgs>) {
  const { bucket } = context.names;
  const page = await rowPage(context.store, bucket.presence, {
    limit: args.limit ?? DEFAULT_LIMIT,
    ...(args.cursor === undefined ? {} : { cursor: args.cursor }),
  });
  const room = answerRoom(context, MAX_BYTES);
  const records: { key: string; value: unknown }[] = [];
  let bytes = 0;
  for (const row of page.rows) {
    if (row.kind !== "value") continue;
    const record = { key: row.key, value: writable(parseJson(row.data)) };
    const size = Buffer.byteLength(JSON.stringify(record));
    // The cursor is a sequence: the next page begins at the row that did not fit.
    if (bytes + size > room && records.length > 0) return { records, cursor: row.seq };
    bytes += size;
    records.push(size > room ? { key: row.key, value: null } : record);
  }
  return { records, ...(page.cursor === undefined ? {} : { cursor: page.cursor }) };
}

const writable = (value: unknown): unknown => (value !== undefined && isBounded(value) ? value : null);
