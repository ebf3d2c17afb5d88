/**
 * Records of the kinds that every member may read (supplement B, D), a page at a time and as they are stored. The
 * kinds that daemons keep for themselves are no arguments of this read.
 */
import type { z } from "zod";
import type { RecordsAnswer, RecordsArgs } from "../../../shared/protocol/endpoint/reads-shapes.ts";
import type { Mediator } from "./mediator.ts";
import { snapshot } from "./snapshot.ts";

const PAGE = 500;

export async function records(
  mediator: Mediator,
  { kind, cursor }: z.infer<typeof RecordsArgs>,
): Promise<z.infer<typeof RecordsAnswer>> {
  const { rows, ...next } = await snapshot(mediator, mediator.names.bucket.records, {
    filter: `${kind}.>`,
    limit: PAGE,
    ...(cursor === undefined ? {} : { cursor }),
  });
  return { records: [...rows], ...next };
}
