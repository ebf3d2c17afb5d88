/**
 * Shapes of what the endpoint `delivery` serves: durable membership (§7), what became of a request to a role
 * (§8.1), who of a principal is connected, and ending that (§13.1).
 */
import { z } from "zod";
import { groupCount } from "../ledger/member-rows.ts";
import { LIFECYCLE_UID, PRINCIPAL_TOKEN } from "../base/grammar.ts";
import { isChannelPattern } from "../base/channels.ts";
import { isMembershipPattern } from "../ledger/member-rows.ts";

const token = z.string().regex(PRINCIPAL_TOKEN);
const count = z.int().nonnegative();
const membership = z.string().refine(isMembershipPattern, "one channel, or a family such as team.>");

/** Longest id that a question about a request may carry. */
const MAX_PINNED_ID = 4096;

/** Principals of one question. */
const MAX_PRINCIPALS = 64;

/** Whoever asks waits this long at least: a proof begins only when no login from before can still come in. */
export const ORACLE_DEADLINE_MS = 15_000;

export const PrincipalsArgs = z.strictObject({
  principals: z
    .array(z.strictObject({ owner: token, actor: token }))
    .min(1)
    .max(MAX_PRINCIPALS),
});
export type PrincipalsArgs = z.infer<typeof PrincipalsArgs>;

/**
 * `gone` is proved: every server there is listed every connection, late enough, and none is of it. `live`:
 * connections were there at the last look. Everything else is `unknown`, and `why` says what is missing.
 */
export const PrincipalState = z.enum(["gone", "live", "unknown"]);
export type PrincipalState = z.infer<typeof PrincipalState>;

export const PrincipalVerdict = z.looseObject({
  owner: token,
  actor: token,
  state: PrincipalState,
  /** Connections that were seen, each once. */
  found: count,
  /** How many of them the broker has ended at our word. */
  closed: count,
  /** Of an eviction after which somebody is `live`: how many that were to end are still there. Left out: not known. */
  survived: count.optional(),
  why: z.string().optional(),
});
export type PrincipalVerdict = z.infer<typeof PrincipalVerdict>;

/** In the order of the question. */
export const PrincipalsAnswer = z.looseObject({ principals: z.array(PrincipalVerdict) });
export type PrincipalsAnswer = z.infer<typeof PrincipalsAnswer>;

/** One's own request to a role, by what its publish was acknowledged with; `id` pins it to that request (§8.1). */
export const AnycastArgs = z.strictObject({
  seq: z.int().min(1).max(Number.MAX_SAFE_INTEGER),
  id: z.string().min(1).max(MAX_PINNED_ID).optional(),
});
export type AnycastArgs = z.infer<typeof AnycastArgs>;

export const AnycastTakesArgs = z.strictObject({});

/**
 * Takes are served. `epoch` is the creation time of the role queue, which a take has to carry: no client may
 * ask the broker for it (decision H60), so the daemon tells it.
 */
export const AnycastTakesAnswer = z.looseObject({ takes: z.literal(true), epoch: z.string().min(1) });
export type AnycastTakesAnswer = z.infer<typeof AnycastTakesAnswer>;
/** A durable membership of the caller's own (§7): `channel` is one concrete channel, or a family such as `team.>`. */
export const DurableJoinArgs = z.looseObject({
  channel: membership,
  /** The CHAT frontier that was read before the live subscription (§7): what is above it is owed. */
  cursor: count,
});
export type DurableJoinArgs = z.infer<typeof DurableJoinArgs>;

export const Membership = z.looseObject({
  channel: z.string(),
  state: z.enum(["joining", "joined", "leaving", "left"]),
  /** Copies are owed of what lies above it, */
  join: count,
  /** and at or below this, once it was left. */
  leave: count.optional(),
});
export type Membership = z.infer<typeof Membership>;

export const DurableLeaveArgs = z.looseObject({ channel: membership });
export type DurableLeaveArgs = z.infer<typeof DurableLeaveArgs>;

/** No membership: there was none to leave. */
export const DurableLeaveAnswer = z.looseObject({ membership: Membership.optional() });
export type DurableLeaveAnswer = z.infer<typeof DurableLeaveAnswer>;

export const DurableListArgs = z.looseObject({ cursor: count.optional() });
export type DurableListArgs = z.infer<typeof DurableListArgs>;
export const DurableListAnswer = z.looseObject({
  memberships: z.array(Membership),
  /** Where the next page begins; left out at the end. */
  cursor: count.optional(),
});
export type DurableListAnswer = z.infer<typeof DurableListAnswer>;

/** A read list of a lifecycle, as the store's sequence of its row names it. */
export const AclSweptArgs = z.strictObject({
  owner: token,
  actor: token,
  uid: z.string().regex(LIFECYCLE_UID),
  revision: z.int().positive(),
});
export type AclSweptArgs = z.infer<typeof AclSweptArgs>;

/** No: whoever writes the copies of this member has not come so far yet; it is asked again, or is done anyway. */
export const AclSweptAnswer = z.looseObject({ swept: z.boolean() });
export type AclSweptAnswer = z.infer<typeof AclSweptAnswer>;

/** How long an answer waits for the sweep. */
export const SWEEP_PATIENCE_MS = 3000;

/** Kind of the detail of a refusal that names the instance which writes the caller's group: `{ instanceId }`. */
export const WRITER_DETAIL = "ai.cotal.delivery.writer";

/**
 * Of who only looks: who `hears` a channel, or any of a pattern (§8); or whom a mention `reaches` there, because the
 * read list covers it, joined or not (§4).
 */
export const MembersArgs = z.strictObject({
  of: z.enum(["hears", "reaches"]).default("hears"),
  channel: z.string().refine(isChannelPattern, "a channel, or a pattern such as team.>"),
  cursor: count.optional(),
});
export type MembersArgs = z.infer<typeof MembersArgs>;

/** Of one principal: the patterns by which it hears the channel, at most `MAX_SHOWN_PATTERNS` on each side. */
export const FeedMember = z.looseObject({
  id: z.string(),
  /** What its connections have subscribed to. */
  live: z.array(z.string()),
  /** What is kept for it while it is away. */
  durable: z.array(z.string()),
  /** Subscriptions that are too many to be shown: whether one of them is of this channel is not known. */
  omitted: count,
  /** When it was first seen to be so, in epoch milliseconds. */
  observedAt: z.number(),
});
export type FeedMember = z.infer<typeof FeedMember>;

export const MAX_SHOWN_PATTERNS = 4;

/** How old the whole view is, by the broker's clock, and what it does not cover; `none`: nobody has looked yet. */
export const FeedAge = z.discriminatedUnion("state", [
  z.looseObject({ state: z.literal("none") }),
  z.looseObject({ state: z.literal("seen"), ageMs: z.number().nonnegative(), gap: z.string().nullable() }),
]);
export type FeedAge = z.infer<typeof FeedAge>;

export const MembersAnswer = z.looseObject({
  view: FeedAge,
  members: z.array(FeedMember),
  /** Rows of this page that can't be read. */
  unreadable: count,
  /** Where the next page begins; left out at the end. A principal that is met twice is as it was met last. */
  cursor: count.optional(),
});
export type MembersAnswer = z.infer<typeof MembersAnswer>;

/** Whom a mention reaches there by its read list, as the rows are now: `by` are entries, at most `MAX_SHOWN_PATTERNS`. */
export const ReachedMember = z.looseObject({ id: z.string(), name: z.string(), by: z.array(z.string()) });
export type ReachedMember = z.infer<typeof ReachedMember>;

/** Pages as of `MembersAnswer`. */
export const ReachedAnswer = z.looseObject({
  reached: z.array(ReachedMember),
  unreadable: count,
  cursor: count.optional(),
});
export type ReachedAnswer = z.infer<typeof ReachedAnswer>;

export const ReloadCredsArgs = z.strictObject({});

/** Each credential that comes in a file: whether it was taken up anew, and when the one in use ends (Unix seconds). */
export const ReloadCredsAnswer = z.looseObject({
  credentials: z.array(z.looseObject({ profile: z.string(), taken: z.boolean(), expires: z.number().nullable() })),
});
export type ReloadCredsAnswer = z.infer<typeof ReloadCredsAnswer>;

export const GroupsShowArgs = z.strictObject({});
/** Member groups of the space. `changing`: the service has not made the wanted number yet, or makes it now. */
export const GroupsShowAnswer = z.looseObject({
  wanted: groupCount,
  inForce: groupCount,
  state: z.enum(["changed", "changing"]),
});
