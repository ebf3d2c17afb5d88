/**
 * The copies that joins are owed: what lies above a join's cursor and at or below the group's position (§7). The loop
 * brings the rest.
 *
 * What another row of the same lifecycle has brought already is not written again, nor what the marker names: after a
 * death none comes twice.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { type StoredEntry, directPage, leaderNext } from "../../../shared/broker/reads.ts";
import { CopyKind } from "../../../shared/protocol/base/headers.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../../shared/protocol/base/subjects.ts";
import type { Batching } from "./batching.ts";
import { copyHeaders, readPost, targetOf } from "./copies.ts";
import { type Member, includes } from "./cover.ts";
import type { View } from "./view.ts";

const PAGE = 500;

export type CopyParts = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly view: View;
  readonly batching: Batching;
  readonly stamp: () => Promise<string>;
  /** Everything at or below it has its copies. */
  readonly position: () => number;
  /** Writes what was added, and the marker with these joins. */
  readonly commit: (joins: readonly [number, number][]) => Promise<void>;
};

/** Writes them, or leaves the last of them for the commit that follows. Returns what the marker says of each join. */
export async function copyJoined(parts: CopyParts, open: readonly Member[]): Promise<[number, number][]> {
  const { view, batching } = parts;
  const written = new Map(batching.row().joins ?? []);
  const joining = open.filter(({ row }) => row.state === "joining");
  // Those whose copies are there already come first: what follows sees them as members.
  joining.sort((a, b) => Number(written.has(b.revision)) - Number(written.has(a.revision)));
  const joins: [number, number][] = [];
  const members = new Map<string, Member[]>();
  for (const member of joining) {
    const { lifecycle, row, revision } = member;
    const others = [...view.cover.of(lifecycle.key), ...(members.get(lifecycle.key) ?? [])];
    if (view.mayJoin(lifecycle.key, row.pattern)) {
      await copyOne(parts, member, written.get(revision) ?? row.join, others, joins);
    }
    joins.push([revision, parts.position()]);
    const asJoined: Member = { ...member, row: { v: 1, pattern: row.pattern, state: "joined", join: row.join } };
    members.set(lifecycle.key, [...(members.get(lifecycle.key) ?? []), asJoined]);
  }
  return joins;
}

async function copyOne(
  parts: CopyParts,
  member: Member,
  from: number,
  others: readonly Member[],
  joins: readonly [number, number][],
): Promise<void> {
  const { space, view, batching, position, stamp, commit } = parts;
  const { subject } = targetOf(space, member.lifecycle.key);
  for await (const entry of between(parts, member.row.pattern, from, position())) {
    const post = readPost(parts.nc, entry);
    if (post === undefined || view.classOf(post.channel) !== "durable") continue;
    if (!view.reads(member.lifecycle.key, post.channel)) continue;
    if (others.some((other) => matchesRow(other, post.channel) && includes(other, entry.seq))) continue;
    batching.add({ subject, data: entry.data, headers: copyHeaders(post, CopyKind.Durable, await stamp()) });
    if (batching.isFull()) await commit([...joins, [member.revision, entry.seq]]);
  }
}

function matchesRow({ row: { pattern } }: Member, channel: string): boolean {
  return pattern === channel || (pattern.endsWith(".>") && channel.startsWith(pattern.slice(0, -1)));
}

/** Posts of a pattern above `from` and at or below `upTo`; a leader read says that there are no more. */
async function* between(
  { nc, space }: CopyParts,
  pattern: string,
  from: number,
  upTo: number,
): AsyncGenerator<StoredEntry> {
  const { chat } = spaceNames(space);
  const filter = spaceSubjects(space).chatRead(pattern);
  for (let fromSeq = from + 1; fromSeq <= upTo;) {
    const page = await directPage(nc, chat, { filter, fromSeq, upToSeq: upTo, batch: PAGE });
    let last = page.messages.at(-1);
    yield* page.messages;
    if (last === undefined) {
      last = await leaderNext(nc, chat, filter, fromSeq);
      if (last === undefined || last.seq > upTo) return;
      yield last;
    }
    fromSeq = last.seq + 1;
  }
}
