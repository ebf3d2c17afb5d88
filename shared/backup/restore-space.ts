/**
 * Makes a space of a backup, in accounts that nobody is connected to.
 *
 * Nothing here is served before all of it is proved: the caller publishes the space's keys to its daemons at the end
 * (`services/trust`, command `restored`). So a process that dies anywhere is followed by one that begins again from
 * nothing, and a daemon never sees half a space.
 *
 * Invariants
 * 1. Every file has its digest before the first write.
 * 2. Nobody but this process is connected to the store account when streams are made: no delivery daemon can delete a
 *    request of the new queue by the number that it had in the old one (§8.1).
 * 3. Copies are addressed to who is enrolled; those of lifecycles that are over are left out, as are those behind the
 *    marker of their group, which its writer writes anew.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { ensureConsumer, ensureStreams } from "../broker/ensure.ts";
import { deleteStream, type Restored, recreateStream } from "../broker/recreate.ts";
import { roleConsumer, spaceStreams } from "../broker/resources.ts";
import { type Writer, createWriter } from "../broker/write.ts";
import { brokerLedgerStore } from "../ledger/broker-store.ts";
import { Header } from "../protocol/base/headers.ts";
import { roleDurable, spaceNames } from "../protocol/base/names.ts";
import { type RandomBytes, dotForm, principal } from "../protocol/base/principals.ts";
import { spaceSubjects } from "../protocol/base/subjects.ts";
import { SPACE_KEY } from "../protocol/chat/channel-config.ts";
import { SpaceSettings } from "../protocol/chat/space-settings.ts";
import { type MarkerRow, groupOf, memberOf } from "../protocol/ledger/member-rows.ts";
import { assertAlone } from "./alone.ts";
import { type AuthorityOptions, type WrittenLists, endAll, enrolAll, writeActors, writeLists } from "./authority.ts";
import {
  CONTENT,
  type Content,
  Line,
  MARKERS,
  type Manifest,
  MarkerLine,
  damaged,
  partFile,
  partStream,
} from "./format.ts";
import { readLines } from "./lines.ts";
import { type Written, digesting } from "./written.ts";
import { type Plan, planOf, rowOf, successor } from "./plan.ts";
import { prove } from "./proof.ts";

export type RestoreOptions = {
  readonly nc: NatsConnection;
  readonly folder: string;
  /** Verified (`verifyFolder`). */
  readonly manifest: Manifest;
  /** Owner token of the space's daemons. */
  readonly systemOwner: string;
  readonly replicas: 1 | 3;
  readonly random: RandomBytes;
  readonly now: () => number;
  readonly onStep?: (step: string, count: number) => void;
};

export type RestoreReport = {
  readonly messages: Readonly<Record<Content, number>>;
  /** Copies of lifecycles that are over, and those that are written anew. */
  readonly copiesLeft: number;
  readonly channels: number;
  readonly memberships: number;
  readonly reserved: number;
  readonly enrolled: number;
  readonly actors: number;
  readonly roles: number;
};

/** Restores and proves. Throws with nothing served; it may be run again. */
export async function restoreSpace(options: RestoreOptions): Promise<RestoreReport> {
  const { nc, folder, manifest, replicas, random, now, onStep = () => undefined } = options;
  const { space } = manifest;
  const plan = await planOf(folder, manifest, options.systemOwner, random);
  const specs = spaceStreams(space, { replicas });
  await assertAlone(nc);
  for (const { name } of specs) await deleteStream(nc, name);
  const markers = await markersOf(folder);
  const written = {} as Record<Content, Written>;
  for (const part of CONTENT) {
    const lines = digesting(messagesOf(options, plan, markers, part));
    await recreateStream(
      {
        nc,
        spec: specOf(specs, manifest, part),
        maxPerSubject: manifest.stores[part].maxPerSubject,
        lastSeq: manifest.stores[part].lastSeq,
        hole: holeOf(space, part),
      },
      lines.messages,
    );
    written[part] = lines.written();
    onStep(part, written[part].count);
  }
  await ensureStreams(nc, specs);
  const writer = createWriter({ nc });
  const channels = await writeChannels(writer, options);
  const authority: AuthorityOptions = {
    nc,
    ledger: brokerLedgerStore(nc, writer, space),
    folder,
    manifest,
    plan,
    random,
    now,
  };
  const reserved = await endAll(authority);
  onStep("lifecycles ended", reserved);
  const lists = await writeLists(authority);
  const actors = await writeActors(authority);
  const { count: memberships, revisions } = await writeMembers(writer, options, plan);
  for (const name of plan.roles) await ensureConsumer(nc, roleConsumer(space, roleOf(name)));
  await enrolAll(authority);
  onStep("enrolled anew", plan.enrolled.size);
  for (const { group, row } of markers.values()) {
    await writer.create(
      partStream(spaceNames(space), "dlv"),
      spaceSubjects(space).dlvMarker(group),
      utf8(renewed(plan, lists, revisions, row)),
      {
        headers: { [Header.Ttl]: "never" },
      },
    );
  }
  await prove({ nc, ledger: authority.ledger, manifest, specs, plan, written, memberships, channels });
  const messages = Object.fromEntries(CONTENT.map((part) => [part, written[part].count])) as Record<Content, number>;
  return {
    messages,
    copiesLeft: manifest.stores.dlv.messages - messages.dlv,
    channels,
    memberships,
    reserved,
    enrolled: plan.enrolled.size,
    actors,
    roles: plan.roles.length,
  };
}

function specOf(specs: ReturnType<typeof spaceStreams>, { space }: Manifest, part: Content) {
  const name = partStream(spaceNames(space), part);
  const spec = specs.find((one) => one.name === name);
  if (spec === undefined) throw new TypeError(`no stream ${name}`);
  return spec;
}

async function markersOf(folder: string): Promise<ReadonlyMap<number, MarkerLine>> {
  const markers = new Map<number, MarkerLine>();
  for await (const line of readLines(folder, MARKERS, MarkerLine)) markers.set(line.group, line);
  return markers;
}

async function* messagesOf(
  { folder, manifest }: RestoreOptions,
  plan: Plan,
  markers: ReadonlyMap<number, MarkerLine>,
  part: Content,
): AsyncGenerator<Restored> {
  for await (const line of readLines(folder, partFile(part), Line)) {
    const { seq, headers } = line;
    const subject = part === "dlv" ? readdressed(manifest, plan, markers, line) : line.subject;
    if (subject === undefined) continue;
    const data = Buffer.from(line.data, "base64");
    yield { seq, subject, data, ...(headers === undefined ? {} : { headers }) };
  }
}

/** The subject of a copy's successor; `undefined` for a copy that does not come back. */
function readdressed(
  { space, groups }: Manifest,
  plan: Plan,
  markers: ReadonlyMap<number, MarkerLine>,
  { seq, subject }: Line,
): string | undefined {
  const lead = spaceSubjects(space).dlvAll.slice(0, -1);
  if (!subject.startsWith(lead)) throw damaged(`a copy has the subject ${subject.slice(0, 80)}`);
  const former = subject.slice(lead.length);
  const next = successor(plan, former);
  const marker = markers.get(groupOf(former, groups));
  if (next === undefined || marker === undefined || seq > marker.seq) return undefined;
  return spaceSubjects(space).dlv(next.principal, next.uid);
}

/** A subject of the part that nobody's message has: `restore` is no owner token. */
function holeOf(space: string, part: Content): string {
  const subjects = spaceSubjects(space);
  const nobody = principal("restore", "hole");
  switch (part) {
    case "chat":
      return subjects.chat(nobody, "hole");
    case "dm":
      return subjects.inst(nobody, nobody);
    case "task":
      return subjects.svc("hole", nobody);
    case "dlv":
      return subjects.dlv(nobody, "hole".repeat(7).slice(0, 26));
  }
}

async function writeChannels(writer: Writer, { folder, manifest, replicas }: RestoreOptions): Promise<number> {
  const { bucket } = spaceNames(manifest.space);
  const stream = partStream(spaceNames(manifest.space), "channels");
  let count = 0;
  for await (const line of readLines(folder, partFile("channels"), Line)) {
    const { key, value } = rowOf(bucket.channels, line);
    const isSettings = key === SPACE_KEY;
    const data = isSettings ? utf8({ ...SpaceSettings.parse(value), replicas }) : Buffer.from(line.data, "base64");
    await writer.create(stream, line.subject, data);
    count += 1;
  }
  return count;
}

/** Revisions of joins that were under way, before and after: a marker names them. */
type Revisions = ReadonlyMap<number, number>;

async function writeMembers(writer: Writer, { folder, manifest }: RestoreOptions, plan: Plan) {
  const { bucket } = spaceNames(manifest.space);
  const stream = partStream(spaceNames(manifest.space), "members");
  const revisions = new Map<number, number>();
  let count = 0;
  for await (const line of readLines(folder, partFile("members"), Line)) {
    const { key } = rowOf(bucket.members, line);
    const lifecycle = memberOf(key);
    const next = lifecycle === undefined ? undefined : successor(plan, lifecycle.key);
    if (lifecycle === undefined || next === undefined) continue;
    const anew = line.subject.replace(lifecycle.key, `${dotForm(next.principal)}.${next.uid}`);
    revisions.set(line.seq, await writer.create(stream, anew, Buffer.from(line.data, "base64")));
    count += 1;
  }
  return { count, revisions };
}

/** The marker in the numbers of the new stores. Posts keep theirs. */
function renewed(plan: Plan, lists: WrittenLists, revisions: Revisions, row: MarkerRow): MarkerRow {
  const { part, joins, ...kept } = row;
  const after = part === undefined ? undefined : successor(plan, part.after);
  return {
    ...kept,
    // Every list that was swept for then counts as swept for now, and no later one.
    acl: lists.findLast(({ before }) => before <= row.acl)?.after ?? 0,
    by: "restore",
    ...(part === undefined
      ? {}
      : { part: { ...part, after: after === undefined ? part.after : `${dotForm(after.principal)}.${after.uid}` } }),
    ...(joins === undefined
      ? {}
      : {
          joins: joins.flatMap(([revision, to]) => {
            const now = revisions.get(revision);
            return now === undefined ? [] : [[now, to] as [number, number]];
          }),
        }),
  };
}

const utf8 = (value: object): Uint8Array => new TextEncoder().encode(JSON.stringify(value));

function roleOf(durable: string): string {
  const role = durable.slice(roleDurable("x").length - 1);
  if (roleDurable(role) !== durable) throw damaged(`${durable} is no durable of a role`);
  return role;
}
