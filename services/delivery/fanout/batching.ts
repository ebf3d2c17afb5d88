/**
 * Copies on their way into one atomic batch with the group's marker (`delivery.md` 1 and 2).
 *
 * Invariants
 * 1. The marker is the last message of every batch, over the sequence of the one before: whoever was overtaken
 *    stores nothing.
 * 2. A batch is full at 999 copies, or at a bound of bytes. What was added is written or, if the batch fails,
 *    known to nobody: the writer ends, and the next one begins at the marker.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { type BatchMessage, MAX_BATCH_MESSAGES, publishBatch } from "../../../shared/broker/batch.ts";
import type { MarkerPlace } from "../../../shared/broker/markers.ts";
import type { Writer } from "../../../shared/broker/write.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import type { MarkerRow } from "../../../shared/protocol/ledger/member-rows.ts";
import { type Marker, markerMessage, writeMarker } from "./marker.ts";

/** A batch waits in the broker's memory until its last message: megabytes, not the whole backlog. */
const MAX_BYTES = 4 * 1024 * 1024;

export type Batching = {
  readonly add: (copy: BatchMessage) => void;
  readonly isFull: () => boolean;
  readonly size: () => number;
  /** Writes what was added, and the marker; the marker alone if nothing was. */
  readonly commit: (row: MarkerRow) => Promise<void>;
  readonly marker: () => Marker;
};

export type BatchingParts = {
  readonly nc: NatsConnection;
  readonly writer: Writer;
  readonly place: MarkerPlace;
  readonly onWritten: (copies: number) => void;
};

export function createBatching({ nc, writer, place, onWritten }: BatchingParts, claimed: Marker): Batching {
  const { dlv } = spaceNames(place.space);
  let marker = claimed;
  let copies: BatchMessage[] = [];
  let bytes = 0;
  return {
    add: (copy) => {
      copies.push(copy);
      bytes += copy.data.length + copy.subject.length;
    },
    isFull: () => copies.length >= MAX_BATCH_MESSAGES - 1 || bytes >= MAX_BYTES,
    size: () => copies.length,
    commit: async (row) => {
      const going = copies;
      copies = [];
      bytes = 0;
      if (going.length === 0) {
        marker = await writeMarker(writer, place, row, marker.seq);
        return;
      }
      const messages = [...going, markerMessage(place, row, marker.seq)];
      const { lastSeq } = await writer.effect(() => publishBatch(nc, dlv, messages));
      marker = { row, seq: lastSeq };
      onWritten(going.length);
    },
    marker: () => marker,
  };
}
