/**
 * Rows of the actor ledger (§9, §10): who may sign in under which name with which lists, and the
 * evidence of every connection that the callout let in.
 *
 * Invariants
 * 1. Every schema is closed: an unknown field is corruption of an authority row and refuses.
 * 2. An actor row names its own key and one lifecycle; it authorises only that lifecycle.
 * 3. An actor row is never deleted: a marker there is corruption, never absence. `revoked` is left
 *    only by a new grant, under a fresh lifecycle UID.
 * 4. `natkey.` is evidence and authorises nothing (§13.1).
 */
import { z } from "zod";
import {
  CONN_ID,
  LIFECYCLE_UID,
  MAX_NAME_LENGTH,
  NOT_ONE_LINE,
  PRINCIPAL_TOKEN,
  ROLE_TOKEN,
  ROOT_CREDENTIAL_ID,
  SERVER_NKEY,
  USER_NKEY,
} from "../base/grammar.ts";
import { isChannelPattern } from "../base/channels.ts";
import { type Principal, dotForm } from "../base/principals.ts";
import { KeptCapabilities } from "../endpoint/capabilities.ts";

const token = z.string().regex(PRINCIPAL_TOKEN);
const uid = z.string().regex(LIFECYCLE_UID);
const count = z.number().int().nonnegative().max(Number.MAX_SAFE_INTEGER);
const pattern = z.string().refine(isChannelPattern);

/** Entries of one list of one actor. */
const MAX_LIST = 500;

const parent = z.strictObject({ owner: token, actor: token, lifecycleUid: uid });

/** Where a row stops: what an actor may read, post, hold and ask for. */
export const actorLists = {
  allowSubscribe: z.array(pattern).max(MAX_LIST),
  allowPublish: z.array(pattern).max(MAX_LIST),
  role: z.string().regex(ROLE_TOKEN).optional(),
  /** What it may ask for beside its profile: views by a word, endpoints by their names (§9). */
  capabilities: KeptCapabilities,
} as const;

export const ActorRow = z.strictObject({
  v: z.literal(1),
  owner: token,
  actor: token,
  lifecycleUid: uid,
  state: z.enum(["active", "revoked"]),
  /** `interactive`: a person signs in under it. `managed`: an agent, with a secret of its own. */
  kind: z.enum(["interactive", "managed"]),
  name: z
    .string()
    .min(1)
    .max(MAX_NAME_LENGTH)
    .refine((text) => !NOT_ONE_LINE.test(text)),
  ...actorLists,
  /** The actor whose row bounds this one, at the lifecycle it had (delegation envelope). */
  parent: parent.optional(),
  /** SHA-256 of a managed agent's secret, lowercase hex. */
  secretDigest: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .optional(),
  /** Epoch milliseconds of the last change. */
  at: count,
});
export type ActorRow = z.infer<typeof ActorRow>;

/** Evidence that a connection's JWT was issued (§13.1), written once before it leaves. */
export const NatkeyRow = z.strictObject({
  v: z.literal(1),
  space: z.string(),
  owner: token,
  actor: token,
  lifecycleUid: uid,
  credentialId: z.string().regex(ROOT_CREDENTIAL_ID),
  view: z.string().nullable(),
  connId: z.string().regex(CONN_ID),
  /** Unix seconds, of the JWT. */
  iat: count,
  exp: count,
});
export type NatkeyRow = z.infer<typeof NatkeyRow>;

/** Evidence of a connection that serves (§13.1). Nothing writes it yet; nothing but a retirement may end it. */
export const ServiceNatkeyRow = NatkeyRow.extend({
  service: z.strictObject({
    /** The registration it serves under; its shape is that of the service rows, which are not built. */
    witness: z.record(z.string(), z.unknown()),
    /** Of the issued service JWT; the outer one is the native root. */
    credentialId: z.string().min(1),
    connection: z.strictObject({
      userNkey: z.string().regex(USER_NKEY),
      serverId: z.string().regex(SERVER_NKEY),
      clientId: z.number().int().positive().max(Number.MAX_SAFE_INTEGER),
    }),
  }),
});
export type ServiceNatkeyRow = z.infer<typeof ServiceNatkeyRow>;

/** All that the family `natkey.` may hold. */
export const EvidenceRow = z.union([NatkeyRow, ServiceNatkeyRow]);

/** A connection as its server counts it: the number is never given twice while that server runs. */
export const ConnectionTuple = z.strictObject({
  serverId: z.string().regex(SERVER_NKEY),
  cid: z.number().int().positive(),
  userNkey: z.string(),
});
export type ConnectionTuple = z.infer<typeof ConnectionTuple>;

/** The row `plane` (supplement I): one authority plane per space, and the connections that hold it. */
export const PlaneRow = z.strictObject({
  v: z.literal(1),
  generation: count,
  claimId: z.string().regex(LIFECYCLE_UID),
  state: z.enum(["held", "released"]),
  ledger: ConnectionTuple,
  records: ConnectionTuple,
  openedAt: count,
});
export type PlaneRow = z.infer<typeof PlaneRow>;

/** Keys of these families, all in the auth bucket. */
export const actorKey = {
  actor: (p: Principal) => `actor.${dotForm(p)}`,
  actorsOf: (owner: string) => `actor.${owner}.*`,
  allActors: "actor.>",
  natkey: (userKey: string) => `natkey.${userKey}`,
  allNatkeys: "natkey.>",
  plane: "plane",
} as const;

/** The user key that evidence is filed under; `undefined` for a key that is none of evidence. */
export function userKeyOf(key: string): string | undefined {
  const [family, userKey, ...rest] = key.split(".");
  return family === "natkey" && userKey !== undefined && rest.length === 0 && USER_NKEY.test(userKey)
    ? userKey
    : undefined;
}
