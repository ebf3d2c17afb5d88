/** Presence as it is stored, page by page (§6): the reader applies the rules of presence itself. */
import type { z } from "zod";
import { rowPage } from "../../shared/broker/reads.ts";
import type { RosterArgs } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import type { SpaceContext } from "./context.ts";
import { parseJson } from "./rows.ts";

const DEFAULT_LIMIT = 500;
const MAX_BYTES = 400_000;

export async function roster(context: SpaceContext, args: z.infer<typeof RosterArgs>) {
  const { bucket } = context.names;
  const page = await rowPage(context.store, bucket.presence, {
    limit: args.limit ?? DEFAULT_LIMIT,
    ...(args.cursor === undefined ? {} : { cursor: args.cursor }),
  });
  const records: { key: string; value: unknown }[] = [];
  let bytes = 0;
  for (const row of page.rows) {
    if (row.kind !== "value") continue;
    bytes += row.data.length;
    // The cursor is a sequence: the next page begins at the row that did not fit.
    if (bytes > MAX_BYTES && records.length > 0) return { records, cursor: row.seq };
    records.push({ key: row.key, value: parseJson(row.data) ?? null });
  }
  return { records, ...(page.cursor === undefined ? {} : { cursor: page.cursor }) };
}
