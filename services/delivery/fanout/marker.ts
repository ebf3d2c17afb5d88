/**
 * Writing the marker of a group: how far it has come, and the fence of everything that it writes (`delivery.md` 1).
 *
 * Invariants
 * 1. Whoever begins to write claims the marker first: it writes it anew, over the sequence that it read. A batch
 *    of an earlier writer that is still on its way names the sequence before, and aborts.
 * 2. The marker has no age (`Nats-TTL: never`), whatever limit the operator sets.
 */
import type { BatchMessage } from "../../../shared/broker/batch.ts";
import type { MarkerPlace } from "../../../shared/broker/markers.ts";
import type { Writer } from "../../../shared/broker/write.ts";
import { Header } from "../../../shared/protocol/base/headers.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../../shared/protocol/base/subjects.ts";
import type { MarkerRow } from "../../../shared/protocol/ledger/member-rows.ts";

export type Marker = { readonly row: MarkerRow; readonly seq: number };

const NO_AGE = { [Header.Ttl]: "never" } as const;

/** Writes it alone: a claim, or progress without copies. */
export async function writeMarker(
  writer: Writer,
  { space, group }: MarkerPlace,
  row: MarkerRow,
  expectedSeq: number,
): Promise<Marker> {
  const { dlv } = spaceNames(space);
  const subject = spaceSubjects(space).dlvMarker(group);
  const data = encodeMarker(row);
  const seq =
    expectedSeq === 0
      ? await writer.create(dlv, subject, data, { headers: NO_AGE })
      : await writer.cas(dlv, subject, data, expectedSeq, { headers: NO_AGE });
  return { row, seq };
}

/** The same as the last message of a batch of copies. */
export function markerMessage({ space, group }: MarkerPlace, row: MarkerRow, expectedSeq: number): BatchMessage {
  return {
    subject: spaceSubjects(space).dlvMarker(group),
    data: encodeMarker(row),
    headers: NO_AGE,
    expectedSeq,
  };
}

const encodeMarker = (row: MarkerRow): Uint8Array => new TextEncoder().encode(JSON.stringify(row));
