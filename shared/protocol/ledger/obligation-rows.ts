/**
 * Acceptance obligations (§13.8, supplement D): the row on which an acceptance that binds work to a lifecycle contends
 * with the end of that lifecycle; and its machine.
 *
 * Invariants
 * 1. The schema is closed, and a row is one decision's: of a fact in `epf`, or of one write to a record (`self`).
 * 2. A row is never deleted, and what it binds never changes: only its state moves, and only along `OBLIGATION_EDGES`.
 * 3. What is rejected or terminal stays so; what is accepted stays accepted until its work is terminal.
 */
import { z } from "zod";
import { DIGEST, ID_TOKEN } from "../base/grammar.ts";
import { recordKey } from "./record-kinds.ts";

const count = z.int().nonnegative().max(Number.MAX_SAFE_INTEGER);

const common = {
  v: z.literal(1),
  state: z.enum(["provisional", "accepted", "rejected", "terminal"]),
  opId: z.string().regex(ID_TOKEN),
  /** Revision of the target's head that it was admitted under; absent where it names no target. */
  mappingRevision: count.optional(),
  /** Revision of the endpoint's governance head, where a policy admitted it. */
  policyRevision: count.optional(),
} as const;

export const ObligationRow = z.union([
  z.strictObject({
    ...common,
    decision: z.literal("epf"),
    /** Digest of what was submitted. */
    fingerprint: z.string().regex(DIGEST),
    sourceSeq: count,
    /** Where its work goes once it is accepted. */
    route: z.string().min(1).max(256),
  }),
  z.strictObject({
    ...common,
    decision: z.literal("self"),
    /** The record that accepting it writes, the revision that it was made from (0: none), and what is written. */
    commitKey: z.string().min(1).max(512),
    commitBaseRevision: count,
    commitValue: z.record(z.string(), z.unknown()),
    commitDigest: z.string().regex(DIGEST),
  }),
]);
export type ObligationRow = z.infer<typeof ObligationRow>;
export type ObligationState = ObligationRow["state"];

const OBLIGATION_EDGES: readonly { readonly from: ObligationState | "absent"; readonly to: ObligationState }[] = [
  { from: "absent", to: "provisional" },
  { from: "provisional", to: "accepted" },
  { from: "provisional", to: "rejected" },
  { from: "accepted", to: "terminal" },
];

export function obligationMayMove(from: ObligationState | "absent", to: ObligationState): boolean {
  return OBLIGATION_EDGES.some((edge) => edge.from === from && edge.to === to);
}

/** What it binds, without how far it is: two rows are one obligation if these are the same. */
export function boundBy(row: ObligationRow): Omit<ObligationRow, "state"> {
  const { state: _, ...bound } = row;
  return bound;
}

/** `target`: the lifecycle that it binds work to, or `ep` where it names none. The rest is the caller's. */
export type ObligationName = {
  readonly target: string;
  readonly endpoint: string;
  readonly owner: string;
  readonly actor: string;
  readonly uid: string;
  readonly id: string;
};

export const obligationKey = {
  of: (name: ObligationName): string => recordKey("oblig", name),
  ofTarget: (lifecycleUid: string): string => `oblig.${lifecycleUid}.>`,
} as const;
