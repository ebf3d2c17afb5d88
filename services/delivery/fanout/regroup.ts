/**
 * Another number of member groups: the old ones are drained, and the new ones begin where those ended
 * (`delivery.md` 3).
 *
 * Four steps. Each old marker is sealed. Each old group is brought to one common sequence, by the writer itself.
 * All markers of the new number are written there, in one batch over what was read. Then their writers begin.
 *
 * Invariants
 * 1. Every step is a compare-and-set on what it read, and is decided by what is stored: after a death, or beside
 *    another process that does the same, it goes on from there. One of two wins.
 * 2. Whoever writes for the old number can't write once its marker is sealed: a batch of his names the sequence
 *    before, and a claim finds the seal.
 * 3. The batch writes the markers of both numbers. A group that is gone is retired: who was about to go on with it
 *    aborts too, and its marker never counts again.
 * 4. A join that was begun and has no copies yet is finished by its new group. One whose copies the marker names is
 *    finished before, so that none come twice.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { publishBatch } from "../../../shared/broker/batch.ts";
import { type StoredMarker, isRegroupDue, markersInForce, readMarker } from "../../../shared/broker/markers.ts";
import type { Writer } from "../../../shared/broker/write.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import type { MarkerRow } from "../../../shared/protocol/ledger/member-rows.ts";
import type { Bell } from "./bell.ts";
import { type Marker, markerMessage, writeMarker } from "./marker.ts";
import { createRequests } from "./requests.ts";
import { type FanoutEvent, levelGroup } from "./writer.ts";

export type RegroupOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly instanceId: string;
  /** The setting, read anew. */
  readonly wanted: () => Promise<number>;
  readonly writer: Writer;
  readonly bell: Bell;
  readonly tell: (group: number, event: FanoutEvent) => void;
};

/** Returns the number that was made, or `undefined` where there is nothing to do. Throws `conflict` to who lost. */
export async function regroup(options: RegroupOptions, stopping: AbortSignal): Promise<number | undefined> {
  const { nc, space, wanted } = options;
  const found = await markersInForce(nc, space, wanted);
  if (!isRegroupDue(found, await wanted())) return undefined;
  const sealed = await seal(options, stored(found));
  await level(options, sealed, stopping);
  stopping.throwIfAborted();
  return begin(options, found.length);
}

/** The first one first: it tells everybody. */
async function seal(
  { space, instanceId, writer }: RegroupOptions,
  found: readonly Marker[],
): Promise<readonly Marker[]> {
  const sealed: Marker[] = [];
  for (const [group, { row, seq }] of found.entries()) {
    const next: MarkerRow = { ...row, state: "sealed", by: instanceId };
    sealed.push(row.state === "sealed" ? { row, seq } : await writeMarker(writer, { space, group }, next, seq));
  }
  return sealed;
}

async function level(options: RegroupOptions, sealed: readonly Marker[], stopping: AbortSignal): Promise<void> {
  const { nc, space, instanceId, writer, bell, tell } = options;
  const end = endOf(sealed);
  for (const [group, marker] of sealed.entries()) {
    if (isLevel(marker, end)) continue;
    const requests = createRequests(bell.ring);
    const place = { nc, space, group, groups: sealed.length, instanceId };
    await levelGroup({ ...place, writer, bell, requests, tell: (event) => tell(group, event) }, end, stopping);
  }
}

/** What stands there now is looked at once more: nothing is believed that was read before. */
async function begin(options: RegroupOptions, old: number): Promise<number | undefined> {
  const { nc, space, instanceId, wanted, writer } = options;
  const found = stored(await markersInForce(nc, space, wanted));
  const sequence = endOf(found);
  const isReady = found.every((marker) => marker.row.state === "sealed" && isLevel(marker, sequence));
  if (found.length !== old || !isReady) return undefined;
  const of = await wanted();
  // Lists that one group has swept for and another has not are swept for again.
  const acl = Math.min(...found.map(({ row }) => row.acl));
  const before: StoredMarker[] = [...found];
  for (let group = old; group < of; group += 1) before.push(await readMarker(nc, { space, group }));
  const messages = before.map(({ row, seq }, group) => {
    const next: MarkerRow =
      group < of || row === undefined
        ? { v: 1, sequence, acl, of, by: instanceId }
        : { ...row, state: "retired", by: instanceId };
    return markerMessage({ space, group }, next, seq);
  });
  await writer.effect(() => publishBatch(nc, spaceNames(space).dlv, messages));
  return of;
}

/** What any of them has written copies of, be it in parts. */
const endOf = (markers: readonly Marker[]): number =>
  Math.max(...markers.map(({ row }) => row.part?.sequence ?? row.sequence));

function isLevel({ row }: Marker, end: number): boolean {
  return row.sequence === end && row.part === undefined && row.joins === undefined;
}

const stored = (found: readonly StoredMarker[]): Marker[] =>
  found.flatMap(({ row, seq }) => (row === undefined ? [] : [{ row, seq }]));
