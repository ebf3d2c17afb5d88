/**
 * What issued authority and derived credentials come from (§13.1, §13.15): sources, the gate of a handle, and the index
 * from a handle to the credentials that were redeemed under it.
 *
 * Invariants
 * 1. A source is named by the digest of its canonical form, so it has one name.
 * 2. The gate of a handle goes one way, along `SOURCE_GATE_EDGES`; it is frozen before its index is read.
 * 3. A credential's row names its whole lineage, and has one index row for each handle in it.
 */
import { z } from "zod";
import { canonicalDigest, digestHex } from "../base/canonical.ts";
import { GENERATION, ID_TOKEN, LIFECYCLE_UID, PRINCIPAL_TOKEN, SPACE_TOKEN } from "../base/grammar.ts";
import { CredentialId } from "./rows.ts";

const uid = z.string().regex(LIFECYCLE_UID);
const token = z.string().regex(PRINCIPAL_TOKEN);
const id = z.string().regex(ID_TOKEN);

/** One issuance: a lifecycle, and what its issuer drew for it and never draws again (§13.15). */
export const IssuedRef = z.strictObject({
  space: z.string().regex(SPACE_TOKEN),
  owner: token,
  actor: token,
  uid,
  generation: z.string().regex(GENERATION),
});
export type IssuedRef = z.infer<typeof IssuedRef>;

export const HandleSource = z.strictObject({ kind: z.literal("handle"), issuerKeyId: id, id });
export type HandleSource = z.infer<typeof HandleSource>;

export const LifecycleSource = z.strictObject({ kind: z.literal("lifecycle"), owner: token, actor: token, uid });
export type LifecycleSource = z.infer<typeof LifecycleSource>;

/** What an actor was granted, as its row stood when a ceiling was made of it: whatever changes that row ends this. */
export const GrantSource = z.strictObject({
  kind: z.literal("grant"),
  owner: token,
  actor: token,
  uid,
  revision: z.int().positive().max(Number.MAX_SAFE_INTEGER),
});
export type GrantSource = z.infer<typeof GrantSource>;

export const Source = z.discriminatedUnion("kind", [
  LifecycleSource,
  GrantSource,
  HandleSource,
  /** An issuance that this one was cut from. */
  z.strictObject({ kind: z.literal("issued"), ref: IssuedRef }),
]);
export type Source = z.infer<typeof Source>;

export const sourceToken = (source: Source): string => digestHex(canonicalDigest(source));

/** `srcgate.<issuerKeyId>.<id>` (§13.1). */
export const SourceGateRow = z.strictObject({ state: z.enum(["open", "frozen"]) });
export type SourceGateRow = z.infer<typeof SourceGateRow>;

/** A handle that nobody has redeemed has no gate; it may be revoked all the same. */
const SOURCE_GATE_EDGES: readonly {
  readonly from: SourceGateRow["state"] | "absent";
  readonly to: SourceGateRow["state"];
}[] = [
  { from: "absent", to: "open" },
  { from: "absent", to: "frozen" },
  { from: "open", to: "frozen" },
];

export type SourceGateMove =
  | { readonly kind: "move"; readonly row: SourceGateRow }
  | { readonly kind: "done" }
  | { readonly kind: "refused" };

export function stepSourceGate(gate: SourceGateRow | undefined, to: SourceGateRow["state"]): SourceGateMove {
  const from = gate?.state ?? "absent";
  if (from === to) return { kind: "done" };
  const isAllowed = SOURCE_GATE_EDGES.some((edge) => edge.from === from && edge.to === to);
  return isAllowed ? { kind: "move", row: { state: to } } : { kind: "refused" };
}

/** `bysrc.<issuerKeyId>.<id>.<lifecycleUid>.<credentialId>`: the key says it all, and the row says it again. */
export const SourceIndexRow = z.strictObject({
  v: z.literal(1),
  issuerKeyId: id,
  id,
  lifecycleUid: uid,
  credentialId: CredentialId,
});
export type SourceIndexRow = z.infer<typeof SourceIndexRow>;

/** Entries of a credential's `sourceChain` (§13.1). */
export const chainEntry = {
  handle: ({ issuerKeyId, id: handle }: HandleSource) => `handle.${issuerKeyId}.${handle}`,
  issued: (generation: string) => `issued.${generation}`,
} as const;

export const sourceKey = {
  gate: ({ issuerKeyId, id: handle }: HandleSource) => `srcgate.${issuerKeyId}.${handle}`,
  index: ({ issuerKeyId, id: handle }: HandleSource, lifecycleUid: string, credentialId: string) =>
    `bysrc.${issuerKeyId}.${handle}.${lifecycleUid}.${credentialId}`,
  indexOf: ({ issuerKeyId, id: handle }: HandleSource) => `bysrc.${issuerKeyId}.${handle}.>`,
} as const;

/** The credential that an index key names; `undefined` for a key that is none of this handle's. */
export function indexed(source: HandleSource, key: string): { uid: string; credentialId: string } | undefined {
  const lead = sourceKey.index(source, "", "").slice(0, -1);
  const [lifecycleUid = "", credentialId = "", ...rest] = key.startsWith(lead) ? key.slice(lead.length).split(".") : [];
  const isOne = rest.length === 0 && LIFECYCLE_UID.test(lifecycleUid) && CredentialId.safeParse(credentialId).success;
  return isOne ? { uid: lifecycleUid, credentialId } : undefined;
}
