/**
 * The families of rows in the ledger's buckets, and which of them may ever be gone (§13.1, supplement B, decision H24).
 *
 * Invariants
 * 1. A key's first token is its family; a family that is not here is nobody's, and is read as if it were kept.
 * 2. On a kept family a delete or purge marker is corruption: it never means absence, or a gate that somebody has
 *    wiped would be born again. On a prunable one a marker is what its pruning leaves, and means that it is gone.
 */
import { RECORD_KINDS } from "./record-kinds.ts";

export type FamilyBucket = "auth" | "records" | "acl" | "sessions" | "issued" | "accepted";

/**
 * Families of the auth bucket. `with-gate`: may be pruned once the gate over it is retired, and is kept until then.
 * Only a retired family's rows are read by nobody, so whoever reads one reads it as kept.
 */
export const AUTH_FAMILIES = {
  gate: "kept",
  epgate: "kept",
  srcgate: "kept",
  servicename: "kept",
  servicepolicy: "kept",
  stage: "kept",
  actor: "kept",
  plane: "kept",
  chatholder: "kept",
  chatowner: "kept",
  chatsession: "kept",
  cred: "with-gate",
  epcred: "with-gate",
  bysrc: "with-gate",
  natkey: "prunable",
} as const satisfies Readonly<Record<string, "kept" | "with-gate" | "prunable">>;

/** May a row of this key ever be gone? */
export function isPrunable(bucket: FamilyBucket, key: string): boolean {
  const [family = ""] = key.split(".", 1);
  switch (bucket) {
    // A read ACL leaves with its lifecycle, by its exact name.
    case "acl":
      return true;
    case "sessions":
    case "issued":
    case "accepted":
      return false;
    case "auth":
      return Object.hasOwn(AUTH_FAMILIES, family) && AUTH_FAMILIES[family as keyof typeof AUTH_FAMILIES] === "prunable";
    case "records":
      return Object.hasOwn(RECORD_KINDS, family) && RECORD_KINDS[family as keyof typeof RECORD_KINDS].deletable;
  }
}
