/**
 * The markers of the member groups as they are stored, and how many groups are in force (`delivery.md` 3).
 *
 * Invariants
 * 1. The number in force is what the first group's marker says: every number has that group, and all markers of
 *    another number are written with it in one batch. The setting is what is wanted.
 * 2. Versions that could not change the number wrote markers that say none: there are as many groups as such
 *    markers. Without any marker the setting says it, and the first group's marker is the first that is written.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { spaceNames } from "../protocol/base/names.ts";
import { spaceSubjects } from "../protocol/base/subjects.ts";
import { MAX_GROUPS, MarkerRow } from "../protocol/ledger/member-rows.ts";
import { parseJson } from "../protocol/base/json.ts";
import { leaderLast } from "./reads.ts";

export type MarkerPlace = { readonly space: string; readonly group: number };

/** A marker that may not be there yet: at sequence 0 then. */
export type StoredMarker = { readonly row: MarkerRow | undefined; readonly seq: number };

/** The setting, asked for only where no marker says the number. */
export type Setting = () => Promise<number>;

/** What stands there, by a leader read. */
export async function readMarker(nc: NatsConnection, { space, group }: MarkerPlace): Promise<StoredMarker> {
  const { dlv } = spaceNames(space);
  const entry = await leaderLast(nc, dlv, spaceSubjects(space).dlvMarker(group));
  if (entry === undefined) return { row: undefined, seq: 0 };
  const row = MarkerRow.safeParse(parseJson(entry.data)).data;
  if (row !== undefined) return { row, seq: entry.seq };
  throw new CotalError(ErrorCode.FailedPrecondition, `the marker of group ${group} does not parse`, {
    outcome: Outcome.NotExecuted,
    next: "a newer version may have written it: run that version",
  });
}

/** How many member groups there are now. */
export async function groupsInForce(nc: NatsConnection, space: string, setting: Setting): Promise<number> {
  for (let group = 0; group < MAX_GROUPS; group += 1) {
    const { row } = await readMarker(nc, { space, group });
    if (row === undefined) return group === 0 ? setting() : group;
    if (row.of !== undefined) return row.of;
  }
  return MAX_GROUPS;
}

/** Each change of the number is one batch, so a second look finds all of one. */
const LOOKS = 8;

/** The markers of all groups in force, in their order; they are all of one number. Throws `unavailable` if they are not. */
export async function markersInForce(
  nc: NatsConnection,
  space: string,
  setting: Setting,
): Promise<readonly StoredMarker[]> {
  for (let look = 1; look <= LOOKS; look += 1) {
    const groups = await groupsInForce(nc, space, setting);
    const found = await Promise.all(Array.from({ length: groups }, (_, group) => readMarker(nc, { space, group })));
    if (found.every(({ row }) => row === undefined || isOf(row, groups))) return found;
  }
  throw new CotalError(ErrorCode.Unavailable, "the number of member groups is being changed", {
    outcome: Outcome.NotExecuted,
    next: "ask again in a moment",
  });
}

/** May this marker be one of so many groups? */
export function isOf({ of, state }: MarkerRow, groups: number): boolean {
  return (of === undefined || of === groups) && state !== "retired";
}

/** Are these the groups that are wanted, and is none sealed? */
export function isDrained(found: readonly StoredMarker[], wanted: number): boolean {
  return found.length === wanted && found.every(({ row }) => row?.state === undefined);
}

/**
 * May and must the groups be brought to the number that is wanted? Not before each has a marker that says its number:
 * until then somebody may be about to write the first one of it.
 */
export function isRegroupDue(found: readonly StoredMarker[], wanted: number): boolean {
  if (!found.every(({ row }) => row?.of !== undefined)) return false;
  return !isDrained(found, wanted);
}
