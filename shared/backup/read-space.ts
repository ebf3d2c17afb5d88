/**
 * Takes a backup of a space that goes on working.
 *
 * Nothing is frozen, so what is read first is older than what is read last. The order makes every such difference
 * harmless:
 *
 * ```
 * durables ─▶ memberships ─▶ markers ─▶ DLV ─▶ CHAT ─▶ DM, TASK ─▶ settings, read lists, ledger
 * ```
 *
 * Invariants
 * 1. Positions are older than the copies that they are of: what a member acknowledged meanwhile comes again, and
 *    nothing is passed over.
 * 2. The markers are older than the copies, and both than the posts: what was posted behind a marker is fanned out
 *    after a restore, and no copy is missing that a marker speaks of.
 * 3. The ledger is read last, so that an end that was made meanwhile is known.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { NatsConnection } from "@nats-io/transport-node";
import { type ConsumerState, consumersOf } from "../broker/consumers.ts";
import { numberIn } from "../broker/api.ts";
import { streamState } from "../broker/ensure.ts";
import { isMarker, leaderLast } from "../broker/reads.ts";
import { kvKey } from "../protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { bucketStream, spaceNames } from "../protocol/base/names.ts";
import { type StoredMarker, markersInForce } from "../broker/markers.ts";
import { SPACE_KEY } from "../protocol/chat/channel-config.ts";
import { SpaceSettings } from "../protocol/chat/space-settings.ts";
import { spaceSubjects } from "../protocol/base/subjects.ts";
import { sealFolder } from "./folder.ts";
import {
  CONSUMERS,
  CONTENT,
  type ConsumerLine,
  type Content,
  DEV_PERSON,
  type File,
  type Line,
  MARKERS,
  type Manifest,
  type MarkerLine,
  OWNER_SECRET,
  type Part,
  ROWS,
  type Rows,
  type Store,
  partFile,
  partStream,
  sealed,
} from "./format.ts";
import { digestFile, writeLines } from "./lines.ts";
import { lineOf, patiently, storedMessages } from "./messages.ts";

export type BackupOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  /** Begun (`beginFolder`), with the owner secret in it. */
  readonly folder: string;
  readonly brokerVersion: string;
  readonly now: () => number;
  readonly onPart?: (part: string, lines: number) => void;
};

/** Families of the ledger's store that say who is who; the rest (credentials, sessions, evidence) dies. */
const LEDGER_FAMILIES: ReadonlySet<string> = new Set(["actor", "gate"]);
const RECORD_FAMILIES: ReadonlySet<string> = new Set(["uid", "lifecycle", "frontier"]);

export async function backUp(options: BackupOptions): Promise<Manifest> {
  const { nc, space, folder, now, onPart } = options;
  const began = now();
  const settings = await settingsOf(nc, space);
  const files: File[] = [];
  const stores: Partial<Record<Content, Store>> = {};
  const write = async (name: string, lines: AsyncIterable<object>): Promise<File> => {
    const file = await writeLines(folder, name, lines);
    files.push(file);
    onPart?.(name, file.lines);
    return file;
  };
  await write(CONSUMERS, consumerLines(nc, space));
  const [members, ...rows] = ROWS;
  await write(partFile(members), rowLines(nc, space, members));
  // As many groups as there are; where another number is wanted, it is not made yet.
  const markers = await patiently(() => markersInForce(nc, space, () => Promise.resolve(settings.groups)));
  await write(MARKERS, markerLines(markers));
  for (const part of ["dlv", "chat", "dm", "task"] as const) {
    const state = await patiently(() => streamState(nc, partStream(spaceNames(space), part)));
    const { lines } = await write(partFile(part), contentLines(nc, space, part, state));
    stores[part] = {
      maxAge: numberIn(state.config, "max_age"),
      maxPerSubject: numberIn(state.config, "max_msgs_per_subject"),
      lastSeq: state.lastSeq,
      messages: lines,
    };
  }
  for (const part of rows) await write(partFile(part), rowLines(nc, space, part));
  for (const name of [OWNER_SECRET, DEV_PERSON]) {
    if (name === OWNER_SECRET || existsSync(join(folder, name))) files.push(await digestFile(folder, name));
  }
  const manifest = sealed({
    v: 1,
    space,
    auth: settings.auth,
    replicas: settings.replicas,
    groups: markers.length,
    began,
    ended: now(),
    brokerVersion: options.brokerVersion,
    stores: stores as Record<Content, Store>,
    files,
  });
  await sealFolder(folder, manifest);
  return manifest;
}

async function settingsOf(nc: NatsConnection, space: string) {
  const { channels } = spaceNames(space).bucket;
  const entry = await leaderLast(nc, bucketStream(channels), kvKey(channels, SPACE_KEY));
  const parsed =
    entry === undefined ? undefined : SpaceSettings.safeParse(JSON.parse(Buffer.from(entry.data).toString()));
  if (parsed?.success !== true || parsed.data.auth === "open") {
    throw new CotalError(ErrorCode.FailedPrecondition, `${space} has no settings that a backup could be taken by`, {
      outcome: Outcome.NotExecuted,
      next: "run cotal doctor; an open space has no backup of its own: copy its state folder while it is stopped",
    });
  }
  return { ...parsed.data, auth: parsed.data.auth };
}

async function* consumerLines(nc: NatsConnection, space: string): AsyncGenerator<ConsumerLine> {
  const names = spaceNames(space);
  for (const part of CONTENT) {
    for await (const one of consumersOf(nc, partStream(names, part))) yield consumerLine(part, one);
  }
}

function consumerLine(part: Content, { name, config, ackFloor, pending, out }: ConsumerState): ConsumerLine {
  const start = Number(config["opt_start_seq"] ?? 1);
  return { part, name, next: Math.max(ackFloor + 1, start, 1), owed: pending + out };
}

async function* markerLines(markers: readonly StoredMarker[]): AsyncGenerator<MarkerLine> {
  for (const [group, { row, seq }] of markers.entries()) {
    // Nothing was fanned out in this group yet.
    if (row !== undefined) yield { group, seq, row };
  }
}

async function* contentLines(
  nc: NatsConnection,
  space: string,
  part: Content,
  { firstSeq, lastSeq }: { readonly firstSeq: number; readonly lastSeq: number },
): AsyncGenerator<Line> {
  const stream = partStream(spaceNames(space), part);
  const isMarker = part === "dlv" ? markerSubject(space) : () => false;
  for await (const entry of storedMessages(nc, stream, Math.max(1, firstSeq), lastSeq)) {
    if (!isMarker(entry.subject)) yield lineOf(entry);
  }
}

function markerSubject(space: string): (subject: string) => boolean {
  const lead = spaceSubjects(space).dlvMarkers.slice(0, -1);
  return (subject) => subject.startsWith(lead);
}

async function* rowLines(nc: NatsConnection, space: string, part: Rows): AsyncGenerator<Line> {
  const stream = partStream(spaceNames(space), part);
  const { firstSeq, lastSeq } = await patiently(() => streamState(nc, stream));
  for await (const entry of storedMessages(nc, stream, Math.max(1, firstSeq), lastSeq)) {
    if (!isMarker(entry.headers) && isTaken(part, entry.subject)) yield lineOf(entry);
  }
}

function isTaken(part: Part, subject: string): boolean {
  const families = part === "auth" ? LEDGER_FAMILIES : part === "records" ? RECORD_FAMILIES : undefined;
  return families === undefined || families.has(subject.split(".")[2] ?? "");
}
