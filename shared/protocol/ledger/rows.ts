/**
 * Rows of the identity ledger (§13.1): uid reservation, issuance gate, lifecycle head, credential,
 * and the read-ACL row (decision H55).
 *
 * Invariants
 * 1. Every schema is closed: an unknown field is corruption of an authority row and refuses.
 * 2. A row's embedded identity must equal its key; whoever reads one proves it (`samePrincipal`).
 * 3. `uid`, `gate` and the head are never deleted: a marker there is corruption, never absence.
 */
import { z } from "zod";
import { LIFECYCLE_UID, PRINCIPAL_TOKEN, ROLE_TOKEN, ROOT_CREDENTIAL_ID, USER_NKEY } from "../base/grammar.ts";
import { canonicalDigest, digestHex } from "../base/canonical.ts";
import { isChannelPattern } from "../base/channels.ts";
import { type Principal, dotForm } from "../base/principals.ts";
import { KeptCapabilities } from "../endpoint/capabilities.ts";
import { ConnectionTuple } from "./actor-rows.ts";

const uid = z.string().regex(LIFECYCLE_UID);
const token = z.string().regex(PRINCIPAL_TOKEN);
/** A user key (static credentials), or the root of an incarnation that signs in (§10). */
export const CredentialId = z.string().regex(new RegExp(`${USER_NKEY.source}|${ROOT_CREDENTIAL_ID.source}`));
const count = z.number().int().nonnegative().max(Number.MAX_SAFE_INTEGER);

/** Kinds of operation that may hold a gate frozen (§13.1). */
export const OperationKind = z.enum(["activation", "takeover", "registration", "retirement"]);
export type OperationKind = z.infer<typeof OperationKind>;

export const GateOperation = z.strictObject({
  opId: z.string().min(1).max(64),
  kind: OperationKind,
});
export type GateOperation = z.infer<typeof GateOperation>;

export const UidRow = z.strictObject({
  v: z.literal(1),
  lifecycleUid: uid,
  owner: token,
  actor: token,
  opId: z.string(),
  at: count,
});
export type UidRow = z.infer<typeof UidRow>;

export const GateRow = z.union([
  z.strictObject({ state: z.literal("open"), generation: count }),
  z.strictObject({ state: z.literal("frozen"), generation: count, op: GateOperation }),
  z.strictObject({ state: z.literal("retired"), generation: count, op: GateOperation }),
]);
export type GateRow = z.infer<typeof GateRow>;

const headBase = {
  owner: token,
  actor: token,
  lifecycleUid: uid,
  managerInstance: z.string(),
  processEpoch: count,
  currentCredentialId: z.string().optional(),
  lastTakeoverOpId: z.string().optional(),
};
/** The staged intent of an activation: what a retry of the same operation must find again. */
export const ActivationStage = z.strictObject({
  v: z.literal(1),
  opId: z.string(),
  owner: token,
  actor: token,
  lifecycleUid: uid,
  inboxNonce: z.string(),
  requestDigest: z.string(),
});
export type ActivationStage = z.infer<typeof ActivationStage>;

/** `stage.<opId>.takeover`: a takeover, and who carries it out: the plane, by the connections that hold its claim. */
export const TakeoverStage = z.strictObject({
  v: z.literal(1),
  opId: z.string(),
  owner: token,
  actor: token,
  lifecycleUid: uid,
  fromEpoch: count,
  executor: z.strictObject({ ledger: ConnectionTuple, records: ConnectionTuple }),
});
export type TakeoverStage = z.infer<typeof TakeoverStage>;

/** Where each stream stood when a lifecycle ended (supplement B); created once by its retirement. */
export const FrontierRow = z.strictObject({
  lifecycleUid: uid,
  opId: z.string(),
  streams: z.record(z.string(), count),
});
export type FrontierRow = z.infer<typeof FrontierRow>;

export const HeadRow = z.union([
  z.strictObject({ ...headBase, state: z.literal("active") }),
  z.strictObject({ ...headBase, state: z.literal("retiring"), op: GateOperation }),
  z.strictObject({ ...headBase, state: z.literal("retired") }),
]);
export type HeadRow = z.infer<typeof HeadRow>;

export const CredentialRow = z.strictObject({
  credentialId: CredentialId,
  holderPrincipal: z.string(),
  lifecycleUid: uid,
  sourceChain: z.array(z.string()).min(1),
  state: z.enum(["active", "revoked"]),
  /** Unix seconds; 0 for none. */
  exp: count,
});
export type CredentialRow = z.infer<typeof CredentialRow>;

/** `cotal_acl_<s>`: what the broker has accepted for one lifecycle (decisions H34, H55). */
export const AclRow = z.strictObject({
  v: z.literal(1),
  name: z.string(),
  allowSubscribe: z.array(z.string().refine(isChannelPattern)),
  role: z.string().regex(ROLE_TOKEN).optional(),
  /** Absent: none. */
  capabilities: KeptCapabilities.optional(),
  /** The lifecycle has an inbox of its own: `dm_` and `dlv_` durables were made for it. */
  durables: z.boolean(),
  credential: CredentialId,
  at: count,
});
export type AclRow = z.infer<typeof AclRow>;

/** Keys of the ledger families (§13.1, supplement B). */
export const ledgerKey = {
  uid: (lifecycleUid: string) => `uid.${lifecycleUid}`,
  gate: (lifecycleUid: string) => `gate.${lifecycleUid}`,
  allGates: "gate.>",
  stage: (opId: string) => `stage.${opId}.activation`,
  takeoverStage: (opId: string) => `stage.${opId}.takeover`,
  frontier: (lifecycleUid: string) => `frontier.${lifecycleUid}`,
  cred: (lifecycleUid: string, credentialId: string) => `cred.${lifecycleUid}.${credentialId}`,
  credsOf: (lifecycleUid: string) => `cred.${lifecycleUid}.*`,
  head: (p: Principal) => `lifecycle.${dotForm(p)}`,
  allHeads: "lifecycle.>",
  acl: (p: Principal, lifecycleUid: string) => `${dotForm(p)}.${lifecycleUid}`,
  member: (p: Principal, lifecycleUid: string, pattern: string) =>
    `${dotForm(p)}.${lifecycleUid}.${digestHex(canonicalDigest(pattern))}`,
} as const;

/** The lifecycle that a gate's key names; `undefined` for a key that no gate has. */
export function uidOfGate(key: string): string | undefined {
  const [family, lifecycleUid = "", ...rest] = key.split(".");
  return family === "gate" && rest.length === 0 && LIFECYCLE_UID.test(lifecycleUid) ? lifecycleUid : undefined;
}
