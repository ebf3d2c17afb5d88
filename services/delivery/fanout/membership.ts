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
 */
import { isCode } from "../../../shared/broker/errors.ts";
import { streamState } from "../../../shared/broker/ensure.ts";
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import { ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import type { Member } from "./cover.ts";
import { type CopyParts, copyJoined } from "./joined-copies.ts";
import { type StepParts, joinStep, leaveStep, mayNot, membershipOf } from "./membership-steps.ts";
import type { Request } from "./requests.ts";
import type { View } from "./view.ts";

/** Changes of one round: the marker names them. */
const MAX_ROUND = 256;

export type MembershipParts = StepParts & CopyParts;

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
