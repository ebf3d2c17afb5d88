/**
 * Rows of durable membership (`cotal_members_<s>`, §7, decision H55) and the marker of a member group (`dlvpos`).
 *
 * Invariants
 * 1. A row belongs to one lifecycle and one channel or family. Its cursors are CHAT sequences: it covers what
 *    lies above `join` and at or below `leave`.
 * 2. `joining` and `leaving` are steps of one change, finished by whoever holds the group's marker: nobody is a
 *    member before `joined`, and a leave has its cursor at `left`.
 * 3. The marker says how far a group has come. It is written with the copies it speaks of, in one batch.
 * 4. A marker says of how many groups it is one. Whoever writes for another number finds that it is not his.
 */
import { z } from "zod";
import { canonicalDigest, digestHex } from "../base/canonical.ts";
import { isChannel, isFamily } from "../base/channels.ts";
import { LIFECYCLE_UID } from "../base/grammar.ts";
import { type Principal, parseDotForm } from "../base/principals.ts";

const count = z.number().int().nonnegative().max(Number.MAX_SAFE_INTEGER);

/** Member groups of a space (decision H25). */
export const MAX_GROUPS = 64;
export const groupCount = z.number().int().min(1).max(MAX_GROUPS);

/** One concrete channel or one family (§7): no `*`, and not the root. */
export const isMembershipPattern = (text: string): boolean => isChannel(text) || isFamily(text);

const base = { v: z.literal(1), pattern: z.string().refine(isMembershipPattern), join: count };

export const MemberRow = z.union([
  z.strictObject({ ...base, state: z.enum(["joining", "joined", "leaving"]) }),
  z.strictObject({ ...base, state: z.literal("left"), leave: count }),
]);
export type MemberRow = z.infer<typeof MemberRow>;

export const MarkerRow = z.strictObject({
  v: z.literal(1),
  /** Everything of CHAT at or below it has its copies in this group. */
  sequence: count,
  /** The post that follows has its copies for members up to this key, in their order. */
  part: z.strictObject({ sequence: count, after: z.string() }).optional(),
  /** Every read list at or below this sequence of its bucket has been swept for. */
  acl: count,
  /** Joins whose copies are written up to a sequence: the row's revision, and that sequence. */
  joins: z.array(z.tuple([count, count])).optional(),
  /** Of how many groups this is one; left out by versions in which nobody could change the number. */
  of: groupCount.optional(),
  /**
   * `sealed`: the number is being changed, and nobody goes on with this one. `retired`: there is no such group any
   * more. Left out while its writer goes on.
   */
  state: z.enum(["sealed", "retired"]).optional(),
  /** The instance that wrote it, for people. */
  by: z.string(),
});
export type MarkerRow = z.infer<typeof MarkerRow>;

/** A member lifecycle: `owner.actor.uid`, which is also its key among the read lists. */
export type Lifecycle = { readonly key: string; readonly principal: Principal; readonly uid: string };

/** Reads `owner.actor.uid`; `undefined` for anything else. */
export function parseLifecycle(key: string): Lifecycle | undefined {
  const at = key.lastIndexOf(".");
  const principal = parseDotForm(key.slice(0, Math.max(0, at)));
  const uid = key.slice(at + 1);
  return principal === undefined || !LIFECYCLE_UID.test(uid) ? undefined : { key, principal, uid };
}

/** Reads the key of a membership row; what is behind the last dot is the digest of its pattern. */
export function memberOf(rowKey: string): Lifecycle | undefined {
  return parseLifecycle(rowKey.slice(0, Math.max(0, rowKey.lastIndexOf("."))));
}

/** The group that a lifecycle belongs to (decision H25). */
export function groupOf(lifecycle: string, groups: number): number {
  return groups === 1 ? 0 : Number.parseInt(digestHex(canonicalDigest(lifecycle)).slice(0, 8), 16) % groups;
}
