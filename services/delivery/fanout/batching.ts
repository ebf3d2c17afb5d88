/**
 * Copies on their way into atomic batches with the group's marker (`delivery.md` 1 and 2).
 *
 * While a batch is being stored, the copies of the next one go to the broker already, which holds them: only its
 * marker waits, for the sequence of the one before. So the broker is not idle while copies are made, nor the writer
 * while they are stored.
 *
 * Invariants
 * 1. The marker is the last message of every batch, over the sequence of the one before: whoever was overtaken
 *    stores nothing. One batch is stored after the other, in the order in which they were sent.
 * 2. A batch is full at 999 copies, or at a bound of bytes. What was added is written or, if a batch fails,
 *    known to nobody: no later one is stored, the writer ends, and the next one begins at the marker.
 * 3. At most one is being stored and one waits for it, in the broker's memory: megabytes, not the whole backlog.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { type BatchMessage, MAX_BATCH_MESSAGES, stageBatch } from "../../../shared/broker/batch.ts";
import type { MarkerPlace } from "../../../shared/broker/markers.ts";
import type { Writer } from "../../../shared/broker/write.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import type { MarkerRow } from "../../../shared/protocol/ledger/member-rows.ts";
import { type Marker, markerMessage, writeMarker } from "./marker.ts";

const MAX_BYTES = 4 * 1024 * 1024;
/** The broker holds fifty open batches of a stream: where many groups write, each has one. */
const MAX_AHEAD_GROUPS = 16;

export type Batching = {
  readonly add: (copy: BatchMessage) => void;
  readonly isFull: () => boolean;
  readonly size: () => number;
  /** Sends what was added, and the marker; the marker alone if nothing was. Resolves once the next may be sent. */
  readonly send: (row: MarkerRow) => Promise<void>;
  /** Everything that was sent is stored. */
  readonly stored: () => Promise<void>;
  /** As it was sent last. */
  readonly row: () => MarkerRow;
};

export type BatchingParts = {
  readonly nc: NatsConnection;
  readonly writer: Writer;
  readonly place: MarkerPlace;
  readonly groups: number;
  readonly onStored: (row: MarkerRow, copies: number) => void;
};

export function createBatching(parts: BatchingParts, claimed: Marker): Batching {
  const { nc, writer, place, groups, onStored } = parts;
  const { dlv } = spaceNames(place.space);
  let row = claimed.row;
  let copies: BatchMessage[] = [];
  let bytes = 0;
  let last: Promise<Marker> = Promise.resolve(claimed);

  const storedAfter = async (before: Promise<Marker>, going: readonly BatchMessage[], row: MarkerRow) => {
    const staged = going.length === 0 ? undefined : stageBatch(nc, dlv, going);
    const { seq } = await before;
    let marker: Marker;
    if (staged === undefined) marker = await writeMarker(writer, place, row, seq);
    else marker = { row, seq: (await writer.effect(() => staged.commit(markerMessage(place, row, seq)))).lastSeq };
    onStored(row, going.length);
    return marker;
  };

  return {
    add: (copy) => {
      copies.push(copy);
      bytes += copy.data.length + copy.subject.length;
    },
    isFull: () => copies.length >= MAX_BATCH_MESSAGES - 1 || bytes >= MAX_BYTES,
    size: () => copies.length,
    send: async (next) => {
      const before = last;
      last = storedAfter(before, copies, next);
      // Heard by whoever sends the next one, or asks whether all is stored.
      last.catch(() => undefined);
      row = next;
      copies = [];
      bytes = 0;
      await (groups > MAX_AHEAD_GROUPS ? last : before);
    },
    stored: async () => void (await last),
    row: () => row,
  };
}
