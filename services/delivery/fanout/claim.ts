/**
 * Taking a group's marker over: the fence of whoever writes its copies (`marker.ts`).
 *
 * Invariants
 * 1. The marker is claimed before anything is read that is decided by.
 * 2. A marker of another number of groups, or in another state than is wanted, is nobody's to go on with.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { streamState } from "../../../shared/broker/ensure.ts";
import { type StoredMarker, isOf, readMarker } from "../../../shared/broker/markers.ts";
import { CotalError, ErrorCode, Outcome } from "../../../shared/protocol/base/errors.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import type { MarkerRow } from "../../../shared/protocol/ledger/member-rows.ts";
import { writeMarker } from "./marker.ts";
import { type View, createView } from "./view.ts";
import type { GroupWriterOptions } from "./writer.ts";

export type Run = { readonly state: "open" | "sealed"; readonly upTo: number };

/** How soon another group's first marker is looked for again. */
const FIRST_MS = 50;

export type Claimed = { readonly view: View; readonly marker: Awaited<ReturnType<typeof writeMarker>> };

/** Of how many groups it is, whose it is, and in which state. */
export function numbered(
  { groups, instanceId }: GroupWriterOptions,
  { state }: Run,
): Pick<MarkerRow, "of" | "by" | "state"> {
  return { of: groups, by: instanceId, ...(state === "open" ? {} : { state }) };
}

/** Takes the marker over, and only then reads what there is to decide by. */
export async function claim(options: GroupWriterOptions, run: Run, stopping: AbortSignal): Promise<Claimed> {
  const { nc, space, group, groups, writer, tell } = options;
  const found = await findMarker(options, stopping);
  const view = createView({ nc, space, group, groups, sweptAcl: found.row?.acl ?? 0 });
  const row = found.row ?? (await firstRow(options, view));
  if (!isOf(row, groups) || (row.state ?? "open") !== run.state) throw otherNumber(options);
  const marker = await writeMarker(writer, options, { ...row, ...numbered(options, run) }, found.seq);
  await view.refresh();
  tell({ type: "claimed", position: row.sequence, members: view.cover.size() });
  return { view, marker };
}

/**
 * The marker of the group. Where it has none yet, the first group's must say this number: while one is missing the
 * number is not changed, so none is ever begun of a number that is not in force.
 */
async function findMarker(options: GroupWriterOptions, stopping: AbortSignal): Promise<StoredMarker> {
  const { nc, space, group, groups } = options;
  const found = await readMarker(nc, options);
  if (found.row !== undefined || group === 0) return found;
  for (;;) {
    stopping.throwIfAborted();
    const { row } = await readMarker(nc, { space, group: 0 });
    if (row !== undefined && !isOf(row, groups)) throw otherNumber(options);
    if (row?.of !== undefined) return found;
    await sleep(FIRST_MS, undefined, { signal: stopping });
  }
}

function otherNumber({ group, groups }: GroupWriterOptions): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `group ${group} is not one of ${groups} any more`, {
    outcome: Outcome.NotExecuted,
    next: "the number of member groups is being changed: the service goes on with the new one by itself",
  });
}

/** A group begins with what is posted from now on; one whose marker was lost, with what its members are owed. */
async function firstRow({ nc, space, instanceId }: GroupWriterOptions, view: View): Promise<MarkerRow> {
  const { lastSeq } = await streamState(nc, spaceNames(space).chat);
  await view.refresh();
  const owed = [...view.cover.all()].map(({ row }) => row.join);
  // Nothing is stored yet that a list could fail to cover.
  for (const lifecycle of view.toSweep) view.swept(lifecycle);
  const sequence = owed.reduce((least, join) => Math.min(least, join), lastSeq);
  return { v: 1, sequence, acl: view.aclSeq(), by: instanceId };
}
