/**
 * The fan-out writer of one group: reads CHAT in order and writes each member its copies (§4, §8, `delivery.md`).
 *
 * Siblings: `batching.ts` the batch and its fence, `copies.ts` who gets what, `membership.ts` joins and leaves,
 * `sweep.ts` narrowed lists, `posts.ts` the reading, `view.ts` what is decided by.
 *
 * Invariants
 * 1. One thing at a time, in one loop: a sweep, a round of membership changes, a batch. Each begins once the
 *    one before is stored, with a view that is no older than that.
 * 2. Everything at or below the position has its copies. The position that counts is the marker's; what passed
 *    without copies since is read again after a death, and gives none again.
 * 3. Any failure ends it. The next one claims the marker and goes on from there: nothing is missed, nothing is
 *    written twice, and memory holds rows and two pages, never a backlog.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { streamState } from "../../../shared/broker/ensure.ts";
import type { StoredEntry } from "../../../shared/broker/reads.ts";
import type { Writer } from "../../../shared/broker/write.ts";
import { CopyKind } from "../../../shared/protocol/base/headers.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import type { MarkerRow } from "../../../shared/protocol/ledger/member-rows.ts";
import { createBatching } from "./batching.ts";
import type { Bell } from "./bell.ts";
import { type Post, type Target, copyHeaders, isOwed, readPost, targetsOf } from "./copies.ts";
import { createStamp } from "./limit.ts";
import { readMarker, writeMarker } from "./marker.ts";
import { type MembershipParts, changeMemberships, hasChanges } from "./membership.ts";
import { createRowWriter } from "./member-store.ts";
import { mentioned } from "./mentions.ts";
import { readPosts } from "./posts.ts";
import type { Requests } from "./requests.ts";
import { type SweepParts, sweep } from "./sweep.ts";
import { type View, createView } from "./view.ts";

/** What happened, for logs and metrics. */
export type FanoutEvent =
  | { readonly type: "claimed"; readonly position: number; readonly members: number }
  | { readonly type: "copies"; readonly count: number }
  | { readonly type: "position"; readonly position: number }
  /** Posts that had left CHAT before they were read (`delivery.md` 7). */
  | { readonly type: "gap"; readonly from: number; readonly count: number }
  /** A post that nobody could show, or no copy could carry. */
  | { readonly type: "unreadable"; readonly sequence: number }
  | { readonly type: "unresolved" }
  | { readonly type: "swept"; readonly count: number };

export type GroupWriterOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly group: number;
  readonly groups: number;
  readonly instanceId: string;
  readonly writer: Writer;
  readonly bell: Bell;
  readonly requests: Requests;
  readonly tell: (event: FanoutEvent) => void;
};

/** Posts passed without copies after which the marker is written all the same. */
const MARK_EVERY = 5000;
const QUIET_MS = 100;
const MAX_CACHED_CHANNELS = 10_000;

/** Writes until the signal, or until it fails: then it was overtaken, or the broker is away. */
export async function writeGroup(options: GroupWriterOptions, stopping: AbortSignal): Promise<void> {
  const { nc, space, writer, bell, requests, tell } = options;
  const claimed = await claim(options);
  const { view } = claimed;
  let position = claimed.marker.row.sequence;
  let part = claimed.marker.row.part;
  let sweptAcl = claimed.marker.row.acl;
  const stamp = createStamp(nc, space);
  const rows = createRowWriter(space, writer, view);
  const batching = createBatching(
    { nc, writer, place: options, onWritten: (count) => tell({ type: "copies", count }) },
    claimed.marker,
  );
  const row = (more: Pick<MarkerRow, "part" | "joins"> = {}): MarkerRow => ({
    v: 1,
    sequence: position,
    acl: sweptAcl,
    by: options.instanceId,
    ...more,
  });
  const commit = async (more?: Pick<MarkerRow, "part" | "joins">): Promise<void> => {
    await batching.commit(row(more));
    tell({ type: "position", position });
  };
  const sweeping: SweepParts = {
    nc,
    space,
    writer,
    view,
    rows,
    onSwept: (count) => tell({ type: "swept", count }),
  };
  const changing: MembershipParts = {
    nc,
    space,
    view,
    rows,
    requests,
    batching,
    stamp,
    position: () => position,
    commit: (joins) => commit({ joins: [...joins] }),
  };

  /** What comes before the next batch; never in the middle of a post. */
  const settle = async (): Promise<void> => {
    if (part !== undefined) return;
    const seen = view.aclSeq();
    if (view.toSweep.size > 0) await sweep(sweeping, position);
    sweptAcl = seen;
    if (hasChanges(changing)) await changeMemberships(changing);
    // Whoever narrowed a list waits for this word. Not before: it names no join that is under way.
    if (view.listsSeq() > batching.marker().row.acl) await commit();
  };
  const targets = cachedTargets(options, view);
  const flush = async (more?: Pick<MarkerRow, "part">): Promise<void> => {
    part = more?.part;
    await Promise.all([commit(more), requests.before(view.refresh)]);
    await settle();
  };

  const deliverPost = async (post: Post): Promise<void> => {
    const { seq } = post.entry;
    for (;;) {
      const after = part?.sequence === seq ? part.after : undefined;
      const { kind, found } = await targets(post);
      const headers = found.length === 0 ? {} : copyHeaders(post, kind, await stamp());
      let last: string | undefined;
      for (const target of found) {
        if (after !== undefined && target.lifecycle <= after) continue;
        if (kind === CopyKind.Durable && !isOwed(target, seq)) continue;
        batching.add({ subject: target.subject, data: post.entry.data, headers });
        if (!batching.isFull()) continue;
        last = target.lifecycle;
        break;
      }
      if (last === undefined) return;
      // The view may be another afterwards: who is left is found anew.
      await flush({ part: { sequence: seq, after: last } });
    }
  };
  const deliver = async (page: readonly StoredEntry[]): Promise<void> => {
    // What was being written in parts has left CHAT, if it does not come first.
    if (part !== undefined && part.sequence !== page[0]?.seq) part = undefined;
    for (const entry of page) {
      const missing = entry.seq - position - 1;
      if (missing > 0) tell({ type: "gap", from: position + 1, count: missing });
      const post = readPost(nc, entry);
      if (post === undefined) tell({ type: "unreadable", sequence: entry.seq });
      else await deliverPost(post);
      part = undefined;
      position = entry.seq;
    }
    if (batching.size() > 0 || position - batching.marker().row.sequence >= MARK_EVERY) await flush();
  };

  let lastPostAt = Number.NEGATIVE_INFINITY;
  const posts = readPosts(nc, space, position);
  while (!stopping.aborted) {
    const [page] = await Promise.all([posts.next(), requests.before(view.refresh)]);
    if (part === undefined || page[0]?.seq !== part.sequence) {
      part = undefined;
      await settle();
    }
    await deliver(page);
    if (page.length > 0) {
      lastPostAt = performance.now();
      continue;
    }
    // What brought no copies has passed all the same, and the marker says so once it is quiet.
    const isBehind = position > batching.marker().row.sequence;
    if (isBehind && performance.now() - lastPostAt > QUIET_MS) await flush();
    await bell.wait();
  }
}

type Claimed = { readonly view: View; readonly marker: Awaited<ReturnType<typeof writeMarker>> };

/** Takes the marker over, and only then reads what there is to decide by. */
async function claim(options: GroupWriterOptions): Promise<Claimed> {
  const { nc, space, group, groups, writer, instanceId, tell } = options;
  const found = await readMarker(nc, options);
  const view = createView({ nc, space, group, groups, sweptAcl: found.row?.acl ?? 0 });
  const row = found.row ?? (await firstRow(options, view));
  const marker = await writeMarker(writer, options, { ...row, by: instanceId }, found.seq);
  await view.refresh();
  tell({ type: "claimed", position: row.sequence, members: view.cover.size() });
  return { view, marker };
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

type Found = { readonly kind: CopyKind; readonly found: readonly Target[] };

/** Targets by channel, found once for as long as nothing changes. */
function cachedTargets(options: GroupWriterOptions, view: View): (post: Post) => Promise<Found> {
  const { tell } = options;
  const cache = new Map<string, Found>();
  let version = -1;
  const parts = { ...options, view, onUnresolved: () => tell({ type: "unresolved" }) };
  const none: Found = { kind: CopyKind.Mention, found: [] };
  return async (post) => {
    const { channel, message } = post;
    if (view.classOf(channel) === "live") {
      if (message.mentions === undefined || message.mentions.length === 0) return none;
      return { kind: CopyKind.Mention, found: await mentioned(parts, post) };
    }
    if (version !== view.version() || cache.size >= MAX_CACHED_CHANNELS) {
      cache.clear();
      version = view.version();
    }
    const known = cache.get(channel);
    if (known !== undefined) return known;
    const found = { kind: CopyKind.Durable, found: targetsOf(view, options.space, channel) };
    cache.set(channel, found);
    return found;
  };
}
