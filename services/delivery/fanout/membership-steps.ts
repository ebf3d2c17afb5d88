/**
 * What a join or a leave that is asked for may do now: begin, be answered at once, be refused, or wait (§7).
 *
 * It decides from what the writer holds in memory and writes nothing; the row's own compare-and-set is the fence. What
 * one owner can make grow is bounded (`row-room.ts`), and so is what a join reads back (`reading-back.ts`).
 */
import { CotalError, ErrorCode, Outcome, badRequest } from "../../../shared/protocol/base/errors.ts";
import { isConcrete } from "../../../shared/protocol/base/channels.ts";
import type { Membership } from "../../../shared/protocol/endpoint/delivery-shapes.ts";
import type { Member } from "./cover.ts";
import type { RowWriter } from "./member-store.ts";
import { MAX_BEHIND } from "./reading-back.ts";
import { whyNoRoom } from "./row-room.ts";
import type { Change, Requests } from "./requests.ts";
import type { View } from "./view.ts";

export type StepParts = {
  readonly view: View;
  readonly rows: RowWriter;
  readonly requests: Requests;
  /** Everything at or below it has its copies. */
  readonly position: () => number;
};

export type Step =
  | { readonly kind: "begin"; readonly run: () => Promise<unknown> }
  | { readonly kind: "done"; readonly membership: Membership | undefined }
  | { readonly kind: "refuse"; readonly error: CotalError }
  | { readonly kind: "later" };

export function joinStep(
  { view, rows, position, requests }: StepParts,
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

export function leaveStep({ view, rows }: StepParts, { pattern }: Change, key: string): Step {
  const member = view.cover.get(key);
  if (member === undefined) return { kind: "done", membership: undefined };
  const { state, join } = member.row;
  if (state === "left") return { kind: "done", membership: membershipOf(member) };
  if (state !== "joined") return { kind: "later" };
  return { kind: "begin", run: () => rows.put(member, { v: 1, pattern, state: "leaving", join }) };
}

/** What is told of a row. */
export function membershipOf({ row }: Pick<Member, "row">): Membership {
  const { pattern: channel, state, join } = row;
  return row.state === "left" ? { channel, state, join, leave: row.leave } : { channel, state, join };
}

/** This lifecycle may not join that, whatever the row says. */
export function mayNot(view: View, { lifecycle, pattern }: Change): CotalError {
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
