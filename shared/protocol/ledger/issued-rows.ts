/**
 * Rows of issued authority (§13.15, supplement J): the evidence of an issuance, the attempt that says how far it is,
 * what was accepted under it, and the index from each of its sources.
 *
 * Invariants
 * 1. Evidence is one ceiling, written once: what is permitted, where it comes from, and when it ends. Its sources are
 *    sorted and each there once, so two ceilings are equal if their canonical bytes are.
 * 2. The holder's own lifecycle is always a source, so no issuance outlives it.
 * 3. An attempt goes along `ATTEMPT_EDGES`; only an `active` one permits anything, and a retired one stays retired.
 */
import { z } from "zod";
import { canonicalDigest } from "../base/canonical.ts";
import { DIGEST, MAX_SUBJECT_BYTES } from "../base/grammar.ts";
import { CredentialId } from "./rows.ts";
import { IssuedRef, type LifecycleSource, Source, sourceToken } from "./source-rows.ts";

const count = z.int().nonnegative().max(Number.MAX_SAFE_INTEGER);

/** Subjects of one list. A credential's own bytes are bounded where it is minted. */
const MAX_SUBJECTS = 1000;
/** Sources of one issuance, those of what it was cut from among them. */
const MAX_SOURCES = 32;

const subjects = z.array(z.string().min(1).max(MAX_SUBJECT_BYTES)).max(MAX_SUBJECTS);
const side = z.strictObject({ allow: subjects, deny: subjects });

/** What is permitted, as the broker would be told; a deny wins. */
export const IssuedPermissions = z.strictObject({ pub: side, sub: side });
export type IssuedPermissions = z.infer<typeof IssuedPermissions>;

/** The lifecycle that an issuance is held by. */
export const holderOf = ({ owner, actor, uid }: IssuedRef): LifecycleSource => ({
  kind: "lifecycle",
  owner,
  actor,
  uid,
});

export const IssuedEvidence = z
  .strictObject({
    version: z.literal(1),
    ref: IssuedRef,
    sources: z
      .array(Source)
      .max(MAX_SOURCES)
      .refine((list) => inOrder(list.map(sourceToken)), "sources that are not sorted, or one twice"),
    permissions: IssuedPermissions,
    /** Unix seconds. */
    expiresAt: count.optional(),
  })
  .refine(({ ref, sources }) => {
    const own = sourceToken(holderOf(ref));
    return sources.some((source) => sourceToken(source) === own);
  }, "sources without the holder's own lifecycle");
export type IssuedEvidence = z.infer<typeof IssuedEvidence>;

function inOrder(tokens: readonly string[]): boolean {
  return tokens.every((token, at) => at === 0 || (tokens[at - 1] ?? "") < token);
}

/** Sorted, each once. */
export function sourceSet(sources: readonly Source[]): Source[] {
  const byToken = new Map(sources.map((source) => [sourceToken(source), source]));
  return [...byToken].toSorted(([one], [other]) => (one < other ? -1 : 1)).map(([, source]) => source);
}

export const evidenceDigest = (evidence: IssuedEvidence): string => canonicalDigest(evidence);

const attemptBase = { version: z.literal(1), ref: IssuedRef, evidence: z.string().regex(DIGEST) };
export const AttemptRow = z.union([
  z.strictObject({ ...attemptBase, state: z.enum(["prepared", "active"]) }),
  /** `by`: the operation that ended it. */
  z.strictObject({ ...attemptBase, state: z.literal("retired"), by: z.string().min(1).max(128) }),
]);
export type AttemptRow = z.infer<typeof AttemptRow>;
type AttemptState = AttemptRow["state"];

const ATTEMPT_EDGES: readonly { readonly from: AttemptState | "absent"; readonly to: AttemptState }[] = [
  { from: "absent", to: "prepared" },
  { from: "prepared", to: "active" },
  { from: "prepared", to: "retired" },
  { from: "active", to: "retired" },
];

export type AttemptStep =
  | { readonly to: "prepared"; readonly ref: IssuedRef; readonly evidence: string }
  | { readonly to: "active" }
  | { readonly to: "retired"; readonly by: string };

export type AttemptMove =
  | { readonly kind: "move"; readonly row: AttemptRow }
  /** It stands there, or further on where only that was asked. */
  | { readonly kind: "done" }
  | { readonly kind: "refused" };

export function stepAttempt(row: AttemptRow | undefined, step: AttemptStep): AttemptMove {
  const from = row?.state ?? "absent";
  // A generation is one ceiling's for ever.
  if (step.to === "prepared" && row !== undefined) {
    return row.state !== "retired" && row.evidence === step.evidence ? { kind: "done" } : { kind: "refused" };
  }
  if (from === step.to) return { kind: "done" };
  if (!ATTEMPT_EDGES.some((edge) => edge.from === from && edge.to === step.to)) return { kind: "refused" };
  if (step.to === "prepared") {
    return { kind: "move", row: { version: 1, ref: step.ref, evidence: step.evidence, state: "prepared" } };
  }
  if (row === undefined) return { kind: "refused" };
  const base = { version: row.version, ref: row.ref, evidence: row.evidence };
  if (step.to === "active") return { kind: "move", row: { ...base, state: step.to } };
  return { kind: "move", row: { ...base, state: step.to, by: step.by } };
}

/** `accepted.v1.<token>`: one credential, and the issuance that it was released under; written before it leaves. */
export const AcceptedRow = z.strictObject({
  version: z.literal(1),
  token: CredentialId,
  ref: IssuedRef,
  evidence: z.string().regex(DIGEST),
});
export type AcceptedRow = z.infer<typeof AcceptedRow>;

export const isSameRef = (one: IssuedRef, other: IssuedRef): boolean =>
  one.space === other.space && dotted(one) === dotted(other);

const dotted = ({ owner, actor, uid, generation }: IssuedRef): string => `${owner}.${actor}.${uid}.${generation}`;

export const issuedKey = {
  evidence: (ref: IssuedRef) => `v1.${dotted(ref)}`,
  attempt: (ref: IssuedRef) => `attempt.v1.${dotted(ref)}`,
  bySource: (source: Source, ref: IssuedRef) => `bysource.v1.${sourceToken(source)}.${dotted(ref)}`,
  ofSource: (source: Source) => `bysource.v1.${sourceToken(source)}.>`,
  accepted: (token: string) => `accepted.v1.${token}`,
} as const;

/** `bysource.v1.<sha256>.…`: key and row name the same source and issuance. */
export const IssuedIndexRow = z.strictObject({ version: z.literal(1), source: Source, ref: IssuedRef });
export type IssuedIndexRow = z.infer<typeof IssuedIndexRow>;
