/**
 * Joins and leaves, in the loop that writes the copies of their group (§7, `delivery.md` 4).
 *
 * A change is three durable steps: the row says what is under way; the marker is written, with the copies that a
 * join is owed; the row says that it is done. So a publish beside a join or a leave has one order.
 *
 * Invariants
 * 1. Whoever holds the marker finishes every change that it finds, before its next batch. A writer that was
 *    overtaken can't write the marker between the first step and the last: it answers nobody.
 * 2. The marker names the joins whose copies it was written with, so that after a death none comes twice.
 * 3. A join owes what lies above its cursor and at or below the group's position; the loop brings the rest. What
 *    another row of the same lifecycle has brought already is not written again.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { isCode } from "../../../shared/broker/errors.ts";
import { streamState } from "../../../shared/broker/ensure.ts";
import { type StoredEntry, directPage, leaderNext } from "../../../shared/broker/reads.ts";
import { CotalError, ErrorCode, Outcome, badRequest } from "../../../shared/protocol/base/errors.ts";
import { isConcrete } from "../../../shared/protocol/base/channels.ts";
import { CopyKind } from "../../../shared/protocol/base/headers.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../../shared/protocol/base/subjects.ts";
import type { Membership } from "../../../shared/protocol/endpoint/delivery-shapes.ts";
import { ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import type { Batching } from "./batching.ts";
import { copyHeaders, readPost, targetOf } from "./copies.ts";
import { type Member, includes } from "./cover.ts";
import type { RowWriter } from "./member-store.ts";
import { MAX_BEHIND } from "./reading-back.ts";
import { whyNoRoom } from "./row-room.ts";
import type { Change, Request, Requests } from "./requests.ts";
import type { View } from "./view.ts";

/** Changes of one round: the marker names them. */
const MAX_ROUND = 256;
const PAGE = 500;

export type MembershipParts = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly view: View;
  readonly rows: RowWriter;
  readonly requests: Requests;
  readonly batching: Batching;
  readonly stamp: () => Promise<string>;
  /** Everything at or below it has its copies. */
  readonly position: () => number;
  /** Writes what was added, and the marker with these joins. */
  readonly commit: (joins: readonly [number, number][]) => Promise<void>;
};

/** Is there a change to make, or one to finish? */
export function hasChanges({ view, requests }: Pick<MembershipParts, "view" | "requests">): boolean {
  return requests.waiting().length > 0 || view.cover.unfinished().length > 0;
}

/** One round: what is asked for is begun, and everything that was begun is finished. False where that was nothing. */
export async function changeMemberships(parts: MembershipParts): Promise<boolean> {
  const { nc, space, view, batching, position, requests } = parts;
  const asked = requests.waiting();
  const { lastSeq } = await streamState(nc, spaceNames(space).chat);
  const answers = await begin(parts, lastSeq, asked);
  const open = view.cover.unfinished();
  if (open.length === 0) return false;
  const joins = await copyJoined(parts, open);
  await parts.commit(joins);
  // Proved by the marker: until here, no other writer wrote anything for this group.
  const frontier = open.some(({ row }) => row.state === "leaving")
    ? Math.max(position(), (await streamState(nc, spaceNames(space).chat)).lastSeq)
    : position();
  await Promise.all(
    open.map(async (member) => {
      const done = await finish(parts, member, frontier);
      for (const request of answers.get(member.key) ?? []) answer(request, view, done);
    }),
  );
  if (batching.size() > 0) throw new TypeError("copies of a join were left behind");
  return true;
}

function answer(request: Request, view: View, member: Member): void {
  const { change } = request;
  if (change.kind === "join" && member.row.state === "left") return request.refuse(mayNot(view, change));
  request.done(membershipOf(member));
}

/** Last step. A join whose authority is gone meanwhile ends as one that was left at once. */
function finish({ rows, view }: MembershipParts, member: Member, frontier: number): Promise<Member> {
  const { pattern, join, state } = member.row;
  if (state === "joining" && view.mayJoin(member.lifecycle.key, pattern)) {
    return rows.put(member, { v: 1, pattern, state: "joined", join });
  }
  const leave = state === "joining" ? join : Math.max(join, frontier);
  return rows.put(member, { v: 1, pattern, state: "left", join, leave });
}

/** First step, for whatever may begin now. Answers at once what needs no change; the rest waits for the next round. */
async function begin(
  parts: MembershipParts,
  lastSeq: number,
  asked: readonly Request[],
): Promise<Map<string, Request[]>> {
  const begun = new Map<string, Request[]>();
  const steps: Promise<void>[] = [];
  for (const request of asked) {
    if (steps.length >= MAX_ROUND) break;
    const { change } = request;
    const key = ledgerKey.member(change.lifecycle.principal, change.lifecycle.uid, change.pattern);
    const same = begun.get(key);
    if (same !== undefined) {
      // The same asked for twice is one; the opposite waits.
      if (same[0]?.change.kind === change.kind) same.push(request);
      continue;
    }
    const step = change.kind === "join" ? joinStep(parts, change, lastSeq, key) : leaveStep(parts, change, key);
    if (step.kind === "begin") {
      begun.set(key, [request]);
      steps.push(passed(step.run()));
    } else if (step.kind === "done") request.done(step.membership);
    else if (step.kind === "refuse") request.refuse(step.error);
  }
  await Promise.all(steps);
  return begun;
}

/** Somebody else has written the row: the next round looks anew. */
async function passed(step: Promise<unknown>): Promise<void> {
  try {
    await step;
  } catch (error) {
    if (!isCode(error, ErrorCode.Conflict)) throw error;
  }
}

type Step =
  | { readonly kind: "begin"; readonly run: () => Promise<unknown> }
  | { readonly kind: "done"; readonly membership: Membership | undefined }
  | { readonly kind: "refuse"; readonly error: CotalError }
  | { readonly kind: "later" };

function joinStep(
  { view, rows, position, requests }: MembershipParts,
  change: Change & { readonly kind: "join" },
  lastSeq: number,
  key: string,
): Step {
  const { lifecycle, pattern, cursor } = change;
  if (!view.mayJoin(lifecycle.key, pattern)) return { kind: "refuse", error: mayNot(view, change) };
  if (isConcrete(pattern) && view.classOf(pattern) !== "durable") return { kind: "refuse", error: liveOnly(pattern) };
  const member = view.cover.get(key);
  const state = member?.row.state;
  if (member !== undefined && state === "joined") return { kind: "done", membership: membershipOf(member) };
  if (state === "joining" || state === "leaving") return { kind: "later" };
  if (cursor > lastSeq) {
    return { kind: "refuse", error: badRequest("the cursor lies above the frontier", "read the frontier again") };
  }
  const left = member?.row.state === "left" ? member.row.leave : 0;
  // The row that was left still covers posts that have no copy yet.
  if (left > position()) return { kind: "later" };
  const join = Math.max(cursor, left);
  if (join < position() - MAX_BEHIND) return { kind: "refuse", error: tooOld() };
  const noRoom = member === undefined ? whyNoRoom(view.cover.held(lifecycle), pattern) : undefined;
  if (noRoom !== undefined) return { kind: "refuse", error: noRoom };
  if (!requests.readingBack.take(lifecycle, position() - join)) return { kind: "refuse", error: readTooMuch() };
  const row = { v: 1, pattern, state: "joining", join } as const;
  return { kind: "begin", run: () => (member === undefined ? rows.create(lifecycle, row) : rows.put(member, row)) };
}

function leaveStep({ view, rows }: MembershipParts, { pattern }: Change, key: string): Step {
  const member = view.cover.get(key);
  if (member === undefined) return { kind: "done", membership: undefined };
  const { state, join } = member.row;
  if (state === "left") return { kind: "done", membership: membershipOf(member) };
  if (state !== "joined") return { kind: "later" };
  return { kind: "begin", run: () => rows.put(member, { v: 1, pattern, state: "leaving", join }) };
}

/** Second step: the copies that joins are owed. Returns what the marker says of them. */
async function copyJoined(parts: MembershipParts, open: readonly Member[]): Promise<[number, number][]> {
  const { view, batching } = parts;
  const written = new Map(batching.marker().row.joins ?? []);
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
  parts: MembershipParts,
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
  { nc, space }: MembershipParts,
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

export function membershipOf({ row }: Member): Membership {
  const { pattern: channel, state, join } = row;
  return row.state === "left" ? { channel, state, join, leave: row.leave } : { channel, state, join };
}

function mayNot(view: View, { lifecycle, pattern }: Change): CotalError {
  const list = view.list(lifecycle.key);
  if (list !== undefined && !list.durables) {
    return new CotalError(ErrorCode.FailedPrecondition, "this credential has no inbox that copies could go to", {
      outcome: Outcome.NotExecuted,
      next: "use an agent's credential",
    });
  }
  return new CotalError(
    ErrorCode.PermissionDenied,
    `#${pattern.slice(0, 200)} is outside this credential's read list`,
    {
      outcome: Outcome.NotExecuted,
      next: "ask the operator for a credential that reads it; a family must lie within one entry of the list",
    },
  );
}

function liveOnly(pattern: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `#${pattern.slice(0, 200)} is a live channel`, {
    outcome: Outcome.NotExecuted,
    next: "join it live; an operator can make it durable: cotal channel set",
  });
}

function tooOld(): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the cursor lies more than ${MAX_BEHIND} messages back`, {
    outcome: Outcome.NotExecuted,
    next: "read the frontier again, and join with that; history has what lies before",
  });
}

function readTooMuch(): CotalError {
  return new CotalError(
    ErrorCode.ResourceExhausted,
    "joins of this member, or of its owner, have read back too many posts",
    {
      outcome: Outcome.NotExecuted,
      next: "read the frontier again, and join with that; history has what lies before",
    },
  );
}
