/**
 * The fan-out writer of one group: reads CHAT in order and writes each member its copies (§4, §8, `delivery.md`).
 *
 * Siblings: `claim.ts` the taking over, `batching.ts` the batch and its fence, `copies.ts` who gets what, `membership.ts` joins and leaves,
 * `sweep.ts` narrowed lists, `posts.ts` the reading, `view.ts` what is decided by.
 *
 * Invariants
 * 1. One thing at a time, in one loop: a sweep, a round of membership changes, a batch. A sweep and a round begin
 *    once all before is stored. The copies of a batch are decided while the one before is being stored
 *    (`batching.ts`), with a view that was read no earlier than that one was sent.
 * 2. Everything at or below the position has its copies. The position that counts is the marker's; what passed
 *    without copies since is read again after a death, and gives none again.
 * 3. Any failure ends it. The next one claims the marker and goes on from there: nothing is missed, nothing is
 *    written twice, and memory holds rows and two pages, never a backlog.
 * 4. A marker of another number of groups, or one that was sealed, is nobody's to go on with (`regroup.ts`).
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { type StoredEntry, leaderNext } from "../../../shared/broker/reads.ts";
import type { Writer } from "../../../shared/broker/write.ts";
import { CopyKind } from "../../../shared/protocol/base/headers.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../../shared/protocol/base/subjects.ts";
import type { MarkerRow } from "../../../shared/protocol/ledger/member-rows.ts";
import { type Run, claim, numbered } from "./claim.ts";
import { createBatching } from "./batching.ts";
import type { Bell } from "./bell.ts";
import { type Post, type Target, copyHeaders, isOwed, readPost, targetsOf } from "./copies.ts";
import { createStamp } from "./limit.ts";
import { type MembershipParts, changeMemberships, hasChanges } from "./membership.ts";
import { createRowWriter } from "./member-store.ts";
import { type PresenceLook, lookAtPresence, mentioned } from "./mentions.ts";
import { readPosts } from "./posts.ts";
import type { Requests } from "./requests.ts";
import { type SweepParts, sweep } from "./sweep.ts";
import type { View } from "./view.ts";

/** What happened, for logs and metrics. */
export type FanoutEvent =
  | { readonly type: "claimed"; readonly position: number; readonly members: number }
  | { readonly type: "copies"; readonly count: number }
  | { readonly type: "position"; readonly position: number }
  /** When the oldest post was stored that still waits for its copies, epoch ms; none waits where it is left out. */
  | { readonly type: "waiting"; readonly since: number | undefined }
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
export function writeGroup(options: GroupWriterOptions, stopping: AbortSignal): Promise<void> {
  return write(options, { state: "open", upTo: Infinity }, stopping);
}

/**
 * Brings a sealed group to exactly this sequence, with nothing under way: no post in parts, no sweep, no join whose
 * copies the marker names. Safe to run again.
 */
export function levelGroup(options: GroupWriterOptions, upTo: number, stopping: AbortSignal): Promise<void> {
  return write(options, { state: "sealed", upTo }, stopping);
}

async function write(options: GroupWriterOptions, run: Run, stopping: AbortSignal): Promise<void> {
  const { nc, space, writer, bell, requests, tell } = options;
  const claimed = await claim(options, run, stopping);
  const { view } = claimed;
  let position = claimed.marker.row.sequence;
  let part = claimed.marker.row.part;
  let sweptAcl = claimed.marker.row.acl;
  const stamp = createStamp(nc, space);
  const rows = createRowWriter(space, writer, view);
  const batching = createBatching(
    {
      nc,
      writer,
      place: options,
      groups: options.groups,
      onStored: ({ sequence }, count) => {
        if (count > 0) tell({ type: "copies", count });
        tell({ type: "position", position: sequence });
      },
    },
    claimed.marker,
  );
  const row = (more: Pick<MarkerRow, "part" | "joins"> = {}): MarkerRow => ({
    v: 1,
    sequence: position,
    acl: sweptAcl,
    ...numbered(options, run),
    ...more,
  });
  /** Writes what was added, and the marker; and everything before is stored. */
  const commit = async (more?: Pick<MarkerRow, "part" | "joins">): Promise<void> => {
    await batching.send(row(more));
    await batching.stored();
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
    // What was decided before must be stored before it is looked through, or something is decided anew.
    if (view.toSweep.size > 0 || hasChanges(changing)) await batching.stored();
    if (view.toSweep.size > 0) await sweep(sweeping, position);
    sweptAcl = seen;
    // What had to wait for the others of this round comes at once.
    if (hasChanges(changing) && (await changeMemberships(changing)) && hasChanges(changing)) bell.ring();
    // Whoever narrowed a list waits for this word. Not before: it names no join that is under way.
    if (view.listsSeq() > batching.row().acl) await commit();
  };
  const presence = lookAtPresence(nc, space);
  const targets = cachedTargets(options, view, presence);
  const flush = async (more?: Pick<MarkerRow, "part">): Promise<void> => {
    part = more?.part;
    await Promise.all([batching.send(row(more)), requests.before(view.refresh)]);
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
    presence.forget();
    for (const entry of page) {
      const missing = entry.seq - position - 1;
      if (missing > 0) tell({ type: "gap", from: position + 1, count: missing });
      const post = readPost(nc, entry);
      if (post === undefined) tell({ type: "unreadable", sequence: entry.seq });
      else await deliverPost(post);
      part = undefined;
      position = entry.seq;
    }
    if (batching.size() > 0 || position - batching.row().sequence >= MARK_EVERY) await flush();
  };

  /** Is everything up to the end there? Then the marker says so, and nothing else. */
  const isLevel = async (): Promise<boolean> => {
    if (run.upTo === Infinity) return false;
    const next = await leaderNext(nc, spaceNames(space).chat, spaceSubjects(space).chatAll, position + 1);
    if (next !== undefined && next.seq <= run.upTo) return false;
    if (run.upTo > position) tell({ type: "gap", from: position + 1, count: run.upTo - position });
    position = Math.max(position, run.upTo);
    part = undefined;
    while (view.toSweep.size > 0 || hasChanges(changing)) await settle();
    await commit();
    return true;
  };

  let waitingSince: number | undefined;
  const tellWaiting = (since: number | undefined): void => {
    if (since !== waitingSince) tell({ type: "waiting", since });
    waitingSince = since;
  };
  let lastPostAt = Number.NEGATIVE_INFINITY;
  const posts = readPosts(nc, space, position, run.upTo);
  while (!stopping.aborted) {
    const [page] = await Promise.all([posts.next(), requests.before(view.refresh)]);
    if (part === undefined || page[0]?.seq !== part.sequence) {
      part = undefined;
      await settle();
    }
    tellWaiting(page[0]?.timeMs);
    await deliver(page);
    if (page.length > 0) {
      lastPostAt = performance.now();
      continue;
    }
    await batching.stored();
    if (await isLevel()) return;
    // What brought no copies has passed all the same, and the marker says so once it is quiet.
    const isBehind = position > batching.row().sequence;
    if (isBehind && performance.now() - lastPostAt > QUIET_MS) {
      await flush();
      await batching.stored();
    }
    await bell.wait(isBehind || hasChanges(changing) ? QUIET_MS : undefined);
  }
  await batching.stored();
}

type Found = { readonly kind: CopyKind; readonly found: readonly Target[] };

/** Targets by channel, found once for as long as nothing changes. */
function cachedTargets(
  options: GroupWriterOptions,
  view: View,
  presence: PresenceLook,
): (post: Post) => Promise<Found> {
  const { tell } = options;
  const cache = new Map<string, Found>();
  let version = -1;
  const parts = { ...options, view, presence, onUnresolved: () => tell({ type: "unresolved" }) };
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
