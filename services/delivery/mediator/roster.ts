/** Presence records, a page at a time, as they are stored (§6): who reads them applies the rules. */
import type { z } from "zod";
import type { RosterAnswer, RosterArgs } from "../../../shared/protocol/endpoint/reads-shapes.ts";
import type { Mediator } from "./mediator.ts";
import { snapshot } from "./snapshot.ts";

const DEFAULT_LIMIT = 500;

export async function roster(
  mediator: Mediator,
  { limit = DEFAULT_LIMIT, cursor }: z.infer<typeof RosterArgs>,
): Promise<z.infer<typeof RosterAnswer>> {
  const page = await snapshot(mediator, mediator.names.bucket.presence, {
    limit,
    ...(cursor === undefined ? {} : { cursor }),
  });
  const records = page.rows.map(({ key, value }) => ({ key, value }));
  return { records, ...(page.cursor === undefined ? {} : { cursor: page.cursor }) };
}
