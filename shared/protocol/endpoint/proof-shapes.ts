/**
 * Shapes of proof of delivery: what waits for whom, and where a message of one's own is.
 *
 * Invariants
 * 1. No answer carries content: numbers, times, names and channels.
 * 2. Every time is the broker's clock, in epoch milliseconds; so is `asOf`: nothing in an answer was read before it.
 * 3. What is not known is said as a state of its own, and never as a number.
 */
import { z } from "zod";
import { PRINCIPAL_TOKEN } from "../base/grammar.ts";
import { AnycastStatus } from "../chat/anycast.ts";

const token = z.string().regex(PRINCIPAL_TOKEN);
const count = z.int().nonnegative();
const sequence = z.int().min(1).max(Number.MAX_SAFE_INTEGER);
const time = z.number();

/** Where something waits for a member: its direct messages, its copies of channels, its role's queue (shared). */
export const Tier = z.enum(["dm", "durable", "role"]);
export type Tier = z.infer<typeof Tier>;

export const TierPending = z.union([
  z.looseObject({
    tier: Tier,
    /** Of the tier `role`: whose queue. All its holders share it, and each is told the whole of it. */
    role: z.string().optional(),
    state: z.literal("known"),
    /** Stored, and handed to nobody yet. */
    waiting: count,
    /** Handed out, and confirmed by nobody. */
    handed: count,
    /** Of `handed`, those that were handed out more than once. */
    redelivered: count,
    /** When the oldest that is not confirmed was stored; left out if there is none. */
    oldestAt: time.optional(),
    /** The last hand-over, and the last ack; left out where there was none since the broker began to serve it. */
    deliveredAt: time.optional(),
    settledAt: time.optional(),
  }),
  /** There is no such durable: what is stored there, nobody can fetch. */
  z.looseObject({ tier: Tier, role: z.string().optional(), state: z.literal("missing"), stored: count }),
]);
export type TierPending = z.infer<typeof TierPending>;

/** One lifecycle that has an inbox. */
export const MemberPending = z.looseObject({
  owner: token,
  actor: token,
  uid: z.string(),
  name: z.string(),
  tiers: z.array(TierPending),
});
export type MemberPending = z.infer<typeof MemberPending>;

/** How far the copies of channels are: posts above `copied` are stored, and have no copies yet. */
export const FanoutState = z.looseObject({ stored: count, copied: count });
export type FanoutState = z.infer<typeof FanoutState>;

export const RolesLeft = z.looseObject({ roles: count, whole: z.boolean() });
export type RolesLeft = z.infer<typeof RolesLeft>;

/** Of one principal, or of all; pages in the order in which read lists were written. */
export const PendingArgs = z.strictObject({
  of: z.strictObject({ owner: token, actor: token }).optional(),
  cursor: count.optional(),
});
export type PendingArgs = z.infer<typeof PendingArgs>;
export const PendingAnswer = z.looseObject({
  asOf: time,
  fanout: FanoutState,
  members: z.array(MemberPending),
  /** With the first page of all: each role that requests are stored for, whether anybody holds it or not. */
  queues: z.array(TierPending).optional(),
  /** With `queues`: roles beyond these that requests are stored for. Not `whole`: there are more than the broker counts. */
  rolesLeft: RolesLeft.optional(),
  /** Where the next page begins; left out at the end. */
  cursor: count.optional(),
});
export type PendingAnswer = z.infer<typeof PendingAnswer>;

export const SentKind = z.enum(["chat", "dm", "ask"]);
export type SentKind = z.infer<typeof SentKind>;

/** Longest id that is looked for. */
const MAX_ID = 4096;

/**
 * What a member may know: what waits for itself, or where a message of its own is. With its place the message is
 * read there; without it the newest of the caller's own are looked through. `after` goes on behind a recipient.
 */
export const ProofArgs = z.union([
  z.strictObject({ about: z.literal("inbox") }),
  z.strictObject({ about: z.literal("message"), id: z.string().min(1).max(MAX_ID) }),
  z.strictObject({
    about: z.literal("message"),
    id: z.string().min(1).max(MAX_ID),
    kind: SentKind,
    seq: sequence,
    after: z.string().max(256).optional(),
  }),
]);
export type ProofArgs = z.infer<typeof ProofArgs>;

/**
 * Of one recipient lifecycle.
 * `copying`: stored, and not copied for it yet. `waiting`: stored for it, and handed to nobody. `handed`: handed
 * out, and not confirmed. `unsettled`: handed out, and the broker's counts do not say whether it was confirmed.
 * `confirmed`: the broker has its ack, or its word that it will never show it. `gone`: nothing is stored for it;
 * it left by the limit or with a narrowed list, or was never owed. `ended`: its lifecycle is over. `later`: its
 * lifecycle began after the message, so it never gets it. `unknown`: not found within what one answer looks at.
 */
export const RecipientState = z.enum([
  "copying",
  "waiting",
  "handed",
  "unsettled",
  "confirmed",
  "gone",
  "ended",
  "later",
  "unknown",
]);
export type RecipientState = z.infer<typeof RecipientState>;

export const Recipient = z.looseObject({
  /** `owner.actor.uid`. */
  lifecycle: z.string(),
  name: z.string().optional(),
  state: RecipientState,
  /** Why it gets a copy: it is a member, or was mentioned. Left out for a direct message. */
  why: z.enum(["durable", "mention"]).optional(),
  /** When its copy was written. */
  copiedAt: time.optional(),
  /** Of its whole inbox, not of this message: the last hand-over and the last ack. */
  deliveredAt: time.optional(),
  settledAt: time.optional(),
});
export type Recipient = z.infer<typeof Recipient>;

const place = { seq: sequence, stream: z.string(), storedAt: time };

export const TracedMessage = z.union([
  z.looseObject({
    kind: z.literal("chat"),
    ...place,
    channel: z.string(),
    /** As it is now. A `live` channel keeps copies for those it mentions alone, and knows of no other reader. */
    deliveryClass: z.enum(["live", "durable"]),
    fanout: FanoutState,
    /**
     * Who may not read the channel is told how many, and not who. Not `whole`: there are more than one answer looks
     * at. `after`: the next page goes on behind it.
     */
    recipients: z.union([
      z.looseObject({
        shown: z.literal(true),
        list: z.array(Recipient),
        whole: z.boolean(),
        after: z.string().optional(),
      }),
      z.looseObject({ shown: z.literal(false), count }),
    ]),
  }),
  z.looseObject({ kind: z.literal("dm"), ...place, to: z.string(), recipients: z.array(Recipient) }),
  z.looseObject({
    kind: z.literal("ask"),
    seq: sequence,
    stream: z.string(),
    /** Left out where it is off the queue: what is known then is its record alone. */
    storedAt: time.optional(),
    role: z.string(),
    /** Its record (§8.1). */
    request: AnycastStatus,
    /** `off`: acknowledged by a holder, or cancelled. `missing`: the role has no queue; nobody can fetch it. */
    queue: z.enum(["waiting", "handed", "off", "missing"]),
  }),
]);
export type TracedMessage = z.infer<typeof TracedMessage>;

/** What was looked through: the caller's own messages of that kind down to `fromSeq`, or all that are stored. */
export const Looked = z.looseObject({ kind: SentKind, messages: count, fromSeq: count, whole: z.boolean() });
export type Looked = z.infer<typeof Looked>;

export const ProofAnswer = z.union([
  z.looseObject({ about: z.literal("inbox"), asOf: time, fanout: FanoutState, member: MemberPending }),
  z.looseObject({
    about: z.literal("message"),
    asOf: time,
    /** Newest first of each kind: a sender may have used an id twice. */
    found: z.array(TracedMessage),
    looked: z.array(Looked),
  }),
]);
export type ProofAnswer = z.infer<typeof ProofAnswer>;
