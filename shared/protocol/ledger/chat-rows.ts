/**
 * Rows of user-mode chat sessions (§10): who holds one, how many an owner has, and what it may do.
 *
 * Invariants
 * 1. Every schema is closed: an unknown field is corruption of an authority row and refuses.
 * 2. No row is ever deleted, and each state is left along the edges of the tables below only. A holder
 *    hash that was retired stays retired: its row is what keeps it out.
 * 3. A holder row binds one actor and one lifecycle for good, and a session row one holder.
 * 4. Only an `active` session row under an `active` holder row authorises anything; `pending` is nothing.
 */
import { z } from "zod";
import {
  CHAT_ACTOR,
  DERIVED_OWNER_TOKEN,
  DIGEST,
  HOLDER_HASH,
  LIFECYCLE_UID,
  MAX_NAME_LENGTH,
  NOT_ONE_LINE,
} from "../base/grammar.ts";
import { actorLists } from "./actor-rows.ts";

/** The actor whose grant bounds a chat session: the person's own (§10). */
export const CHAT_PARENT = "cli";

/** Sessions that one owner may have at once, at the very most. */
export const MAX_CHAT_SLOTS = 64;

const owner = z.string().regex(DERIVED_OWNER_TOKEN);
const actor = z.string().regex(CHAT_ACTOR);
const uid = z.string().regex(LIFECYCLE_UID);
const hash = z.string().regex(HOLDER_HASH);
const count = z.number().int().nonnegative().max(Number.MAX_SAFE_INTEGER);

const held = {
  v: z.literal(1),
  owner,
  /** SHA-256 of the holder's secret. */
  holderHash: hash,
  actor,
  lifecycleUid: uid,
  /** Of everything that was asked for: a retry that asks for something else is a conflict. */
  requestDigest: z.string().regex(DIGEST),
  /** Unix seconds; the session's end, never moved. */
  exp: count,
  /** Epoch milliseconds of the last change. */
  at: count,
} as const;

/** How far the end of a retired session has come: refused · settled, its slot free · its row compacted. */
export const ChatEnd = z.enum(["fenced", "settled", "compacted"]);
export type ChatEnd = z.infer<typeof ChatEnd>;

/** `chatholder.<owner>.<holderHash>`: the holder index. */
export const ChatHolderRow = z.union([
  z.strictObject({ ...held, state: z.enum(["reserved", "provisioning", "active"]) }),
  z.strictObject({ ...held, state: z.literal("retired"), end: ChatEnd }),
]);
export type ChatHolderRow = z.infer<typeof ChatHolderRow>;

/** `chatowner.<owner>`: what holds each of an owner's slots. */
export const ChatOwnerRow = z.strictObject({
  v: z.literal(1),
  owner,
  slots: z.array(z.strictObject({ holderHash: hash, lifecycleUid: uid })).max(MAX_CHAT_SLOTS),
});
export type ChatOwnerRow = z.infer<typeof ChatOwnerRow>;

/** The parent's grant as it was: any change of it, and any other lifecycle, is another pin. */
export const ChatParentPin = z.strictObject({
  actor: z.literal(CHAT_PARENT),
  lifecycleUid: uid,
  /** Revision of its lifecycle head. */
  headRevision: count,
  /** RFC 8785 digest of its actor row. */
  rowDigest: z.string().regex(DIGEST),
});
export type ChatParentPin = z.infer<typeof ChatParentPin>;

const { allowSubscribe, allowPublish } = actorLists;

const Session = z.strictObject({
  v: z.literal(1),
  state: z.enum(["pending", "active", "retired"]),
  owner,
  actor,
  lifecycleUid: uid,
  holderHash: hash,
  name: z
    .string()
    .min(1)
    .max(MAX_NAME_LENGTH)
    .refine((text) => !NOT_ONE_LINE.test(text)),
  allowSubscribe,
  allowPublish,
  parent: ChatParentPin,
  exp: count,
  at: count,
});
/** A session while it is one. */
export const ChatSession = Session;
export type ChatSession = z.infer<typeof Session>;

/** `chatsession.<lifecycleUid>`: the session, and a day after its end what is left of it. */
export const ChatSessionRow = z.union([
  Session,
  z.strictObject({ v: z.literal(1), state: z.literal("compacted"), lifecycleUid: uid, at: count }),
]);
export type ChatSessionRow = z.infer<typeof ChatSessionRow>;

/** Keys of these families, all in the auth bucket. */
export const chatKey = {
  holder: ({ owner: of, holderHash }: Pick<ChatHolderRow, "owner" | "holderHash">) => `chatholder.${of}.${holderHash}`,
  allHolders: "chatholder.>",
  owner: (of: string) => `chatowner.${of}`,
  session: (lifecycleUid: string) => `chatsession.${lifecycleUid}`,
} as const;

export const CHAT_FAMILIES = ["chatholder", "chatowner", "chatsession"] as const;

type Edge<S extends string> = { readonly from: S | "absent"; readonly to: S };

/** Edges of a holder row; every state may end. */
export const HOLDER_EDGES: readonly Edge<ChatHolderRow["state"]>[] = [
  { from: "absent", to: "reserved" },
  { from: "reserved", to: "provisioning" },
  { from: "provisioning", to: "active" },
  { from: "reserved", to: "retired" },
  { from: "provisioning", to: "retired" },
  { from: "active", to: "retired" },
];

/** Edges of a retired holder row's end; `absent` is the state before. */
export const END_EDGES: readonly Edge<ChatEnd>[] = [
  { from: "absent", to: "fenced" },
  { from: "fenced", to: "settled" },
  { from: "settled", to: "compacted" },
];

export const SESSION_EDGES: readonly Edge<ChatSessionRow["state"]>[] = [
  { from: "absent", to: "pending" },
  { from: "pending", to: "active" },
  { from: "pending", to: "retired" },
  { from: "active", to: "retired" },
  { from: "retired", to: "compacted" },
];

/** Does the table have this edge? */
export function mayMove<S extends string>(edges: readonly Edge<S>[], from: S | "absent", to: S): boolean {
  return edges.some((edge) => edge.from === from && edge.to === to);
}
