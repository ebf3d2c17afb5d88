/**
 * Chat sessions over HTTP (§10): what is asked, what is answered.
 *
 * Requests are closed: an owner, an actor, a UID, a scope, a view or a profile is the service's to say, and
 * a request that names one is refused. Answers are loose: a later service may say more.
 */
import { z } from "zod";
import { CHAT_ACTOR, DERIVED_OWNER_TOKEN, HOLDER_HASH, HOLDER_SECRET, LIFECYCLE_UID } from "../base/grammar.ts";
import { actorLists } from "../ledger/actor-rows.ts";

export const ChatSessionPath = {
  Open: "/chat-session/open",
  Bearer: "/chat-session/bearer",
  Retire: "/chat-session/retire",
} as const;
export type ChatSessionPath = (typeof ChatSessionPath)[keyof typeof ChatSessionPath];

const common = {
  space: z.string(),
  /** Secret. */
  idToken: z.string().min(1),
} as const;

const { allowSubscribe, allowPublish } = actorLists;

/** What is left out is the parent's: its lists, and 8 hours. */
export const ChatOpenRequest = z.strictObject({
  ...common,
  /** SHA-256 of the holder's secret, in hex. */
  holderHash: z.string().regex(HOLDER_HASH),
  name: z.string().optional(),
  allowSubscribe: allowSubscribe.optional(),
  allowPublish: allowPublish.optional(),
  lifeSeconds: z.int().min(60).optional(),
});
export type ChatOpenRequest = z.infer<typeof ChatOpenRequest>;

/** Of a bearer, and of a retirement. */
export const ChatHolderRequest = z.strictObject({
  ...common,
  /** Secret. */
  holderSecret: z.string().regex(HOLDER_SECRET),
});
export type ChatHolderRequest = z.infer<typeof ChatHolderRequest>;

const session = {
  owner: z.string().regex(DERIVED_OWNER_TOKEN),
  actor: z.string().regex(CHAT_ACTOR),
  lifecycleUid: z.string().regex(LIFECYCLE_UID),
} as const;

export const ChatOpenAnswer = z.looseObject({
  ...session,
  name: z.string(),
  /** Unix seconds: the session's end. */
  expiresAt: z.int().positive(),
  allowSubscribe: z.array(z.string()),
  allowPublish: z.array(z.string()),
});
export type ChatOpenAnswer = z.infer<typeof ChatOpenAnswer>;

export const ChatRetireAnswer = z.looseObject({
  ...session,
  /** Its slot is free again. */
  settled: z.boolean(),
  /** What has to happen first, in words; the service sees to it. */
  remains: z.string().optional(),
});
export type ChatRetireAnswer = z.infer<typeof ChatRetireAnswer>;
