/**
 * The record of one request to a role (§8.1), and the table by which a take is decided against it.
 *
 * Invariants
 * 1. A row is made once and changed by compare-and-set only, so of a take and a cancel that race one wins.
 * 2. Each transition that the sender is told of stands in `owed` until its notice is published.
 * 3. What senders and holders choose is bounded here: a row never outgrows its bucket.
 */
import { z } from "zod";
import { digestOf } from "../../../shared/protocol/base/canonical.ts";
import type { AnycastStatus, TakeCode } from "../../../shared/protocol/chat/anycast.ts";

const Party = z.strictObject({ id: z.string(), name: z.string() });
export type Party = z.infer<typeof Party>;

const counter = z.int().min(1);

export const OwedNotice = z.strictObject({
  rev: counter,
  /** When it came about, so that it reads the same whoever publishes it. */
  at: z.number(),
  event: z.enum(["taken", "redelivered"]),
  taker: Party,
  previous: Party.optional(),
  /** The last message on its subject before it was owed: if it was published, it lies behind this. */
  after: z.int().min(0).default(0),
});
export type OwedNotice = z.infer<typeof OwedNotice>;

const base = {
  v: z.literal(1),
  /** As `keptId` makes it of the request's id. */
  id: z.string(),
  role: z.string(),
  /** Dot-form of who asked. */
  sender: z.string(),
  /** Counts the transitions that a notice is owed for. */
  rev: z.int().min(0),
  owed: z.array(OwedNotice),
  /** Epoch milliseconds of the take or the cancel. */
  at: z.number(),
  /** When the request was first found off the queue. */
  offAt: z.number().optional(),
} as const;

export const TakenRow = z.strictObject({
  ...base,
  state: z.literal("taken"),
  taker: Party,
  count: counter,
  previous: Party.optional(),
});
export type TakenRow = z.infer<typeof TakenRow>;

export const Removal = z.enum(["pending", "deleted", "already-gone"]);
export const CancelledRow = z.strictObject({ ...base, state: z.literal("cancelled"), removal: Removal });
export type CancelledRow = z.infer<typeof CancelledRow>;

export const AnycastRow = z.discriminatedUnion("state", [TakenRow, CancelledRow]);
export type AnycastRow = z.infer<typeof AnycastRow>;

/** Notices that a row may owe at once; while it owes so many, nothing more is decided. */
export const MAX_OWED = 32;

const LONGEST_ID = 512;

/** A request's id as a row keeps it: a sender may write one as long as a message. */
export function keptId(id: string): string {
  return id.length > LONGEST_ID ? digestOf(new TextEncoder().encode(id)) : id;
}

/** A request as the queue stores it. */
export type StoredRequest = {
  readonly role: string;
  readonly sender: string;
  /** `undefined` where it breaks the contract, so that no holder can show it. */
  readonly id: string | undefined;
};

export type Take = { readonly holder: Party; readonly count: number };

export type Decision =
  /** It has won before; nothing is written. */
  | { readonly kind: "held" }
  | { readonly kind: "write"; readonly row: TakenRow }
  | { readonly kind: "refused"; readonly code: TakeCode };

/** The table of §8.1 "Record". */
export function decideTake(
  found: AnycastRow | undefined,
  request: StoredRequest & { readonly id: string },
  { holder, count }: Take,
  now: number,
): Decision {
  if (found === undefined) {
    const { role, sender } = request;
    const owed: OwedNotice[] = [{ rev: 1, at: now, event: "taken", taker: holder, after: 0 }];
    const id = keptId(request.id);
    return {
      kind: "write",
      row: { v: 1, id, role, sender, state: "taken", taker: holder, count, at: now, rev: 1, owed },
    };
  }
  if (found.state === "cancelled") return { kind: "refused", code: "cancelled" };
  const isSame = found.taker.id === holder.id;
  if (isSame && count === found.count) return { kind: "held" };
  if (count <= found.count) return { kind: "refused", code: "taken" };
  if (isSame) return { kind: "write", row: { ...found, taker: holder, count, at: now } };
  if (found.owed.length >= MAX_OWED) return { kind: "refused", code: "busy" };
  const rev = found.rev + 1;
  const previous = found.taker;
  const owed: OwedNotice[] = [...found.owed, { rev, at: now, event: "redelivered", taker: holder, previous, after: 0 }];
  return { kind: "write", row: { ...found, taker: holder, previous, count, at: now, rev, owed } };
}

/** The row with the fence of the notice that its transition owes, if it owes a new one. */
export function fenced(row: TakenRow, before: AnycastRow | undefined, after: number): TakenRow {
  const known = before?.rev ?? 0;
  return { ...row, owed: row.owed.map((notice) => (notice.rev > known ? { ...notice, after } : notice)) };
}

export function cancelledRow(request: StoredRequest, now: number): CancelledRow {
  const { role, sender, id } = request;
  const kept = id === undefined ? "" : keptId(id);
  return { v: 1, id: kept, role, sender, state: "cancelled", removal: "pending", at: now, rev: 0, owed: [] };
}

/** What the sender reads of a row (§8.1 "Status and cancel"). */
export function statusOf(seq: number, row: AnycastRow, isCurrent: boolean): AnycastStatus {
  const { role } = row;
  if (row.state === "taken") {
    const { taker, previous, at } = row;
    return { state: "taken", seq, role, taker, ...(previous === undefined ? {} : { previous }), at };
  }
  // The stream it was in is gone, and the request with it, whoever finishes the row.
  const removal = row.removal === "pending" && !isCurrent ? "already-gone" : row.removal;
  return { state: "cancelled", seq, role, removal };
}
