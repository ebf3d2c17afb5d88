/**
 * What an issued caller may do now (§13.15): asked at the leader, for one question, by whoever serves him.
 *
 * Invariants
 * 1. A yes means: evidence there and unexpired, its attempt active and of exactly that evidence, every source live, and
 *    the attempt where it was at a second reading, after all the sources.
 * 2. Anything else is a refusal with its reason. Nothing is cached, and nothing is believed of what a caller says.
 * 3. A caller of the legacy rail has no issued authority: he is refused by a reason of his own.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { dotForm, principal } from "../protocol/base/principals.ts";
import type { Caller } from "../protocol/endpoint/rails.ts";
import { type IssuedEvidence, evidenceDigest } from "../protocol/ledger/issued-rows.ts";
import type { IssuedRef, Source } from "../protocol/ledger/source-rows.ts";
import { openGate, openSource } from "./derived.ts";
import { readAttempt, readEvidence } from "./issued-moves.ts";
import { demandGrant } from "./live-grant.ts";
import type { LedgerStore } from "./store.ts";

/** Kind of the detail of a refusal for want of an issuance (supplement J). */
export const UNBOUND_CALLER = "ai.cotal.ep.unbound-caller-authority";

export type Resolved = {
  readonly evidence: IssuedEvidence;
  /** Revision of the attempt that it rests on. */
  readonly revision: number;
};

/** Renewals touch the attempt; a resolution that meets one looks again. */
const ROUNDS = 4;

/** Who asks, as the subject of his request names him. Throws `permission-denied` for one who rides the legacy rail. */
export async function callerAuthority(
  store: Pick<LedgerStore, "read">,
  space: string,
  { principal: { owner, actor }, uid, generation }: Caller,
  /** Unix seconds. */
  now: number,
): Promise<Resolved> {
  if (generation !== undefined) return resolveIssued(store, { space, owner, actor, uid, generation }, now);
  throw new CotalError(ErrorCode.PermissionDenied, "this command is for callers whose authority was issued to them", {
    outcome: Outcome.NotExecuted,
    next: "call with an issued credential, on the versioned rail",
    details: [{ kind: UNBOUND_CALLER }],
  });
}

/**
 * Throws `permission-denied` for what was never issued, `expired` for what is over, whose handle is revoked or grant changed,
 * `failed-precondition` where a lifecycle that it comes from is not current or its gate is shut, `unavailable` where it
 * moves all the time.
 */
export async function resolveIssued(store: Pick<LedgerStore, "read">, ref: IssuedRef, now: number): Promise<Resolved> {
  for (let round = 1; round <= ROUNDS; round += 1) {
    const revision = await activeAt(store, ref, undefined);
    const evidence = await standing(store, ref, now);
    await Promise.all(evidence.sources.map((source) => demandLive(store, source, now)));
    if ((await activeAt(store, ref, evidence)) === revision) return { evidence, revision };
  }
  throw refuse(ErrorCode.Unavailable, ref, "is being renewed all the time", "ask again");
}

/** The attempt's revision. */
async function activeAt(
  store: Pick<LedgerStore, "read">,
  ref: IssuedRef,
  of: IssuedEvidence | undefined,
): Promise<number> {
  const attempt = await readAttempt(store, ref);
  if (attempt === undefined || attempt.value.state === "prepared") throw never(ref);
  if (attempt.value.state === "retired") throw over(ref);
  if (of === undefined || attempt.value.evidence === evidenceDigest(of)) return attempt.revision;
  throw refuse(
    ErrorCode.FailedPrecondition,
    ref,
    "has other evidence than its attempt names",
    "nothing is decided on it; compare it with a backup, or restore the space",
  );
}

async function standing(store: Pick<LedgerStore, "read">, ref: IssuedRef, now: number): Promise<IssuedEvidence> {
  const evidence = await readEvidence(store, ref);
  if (evidence === undefined) throw never(ref);
  const { expiresAt } = evidence.value;
  if (expiresAt !== undefined && expiresAt <= now) throw over(ref);
  return evidence.value;
}

async function demandLive(store: Pick<LedgerStore, "read">, source: Source, now: number): Promise<void> {
  switch (source.kind) {
    case "lifecycle":
      await openGate(store, principal(source.owner, source.actor), source.uid);
      return;
    case "grant":
      return demandGrant(store, source);
    case "handle":
      await openSource(store, source);
      return;
    case "issued":
      // What it has for sources of its own is among those of whoever was cut from it.
      await activeAt(store, source.ref, await standing(store, source.ref, now));
  }
}

const never = (ref: IssuedRef): CotalError =>
  refuse(ErrorCode.PermissionDenied, ref, "was never issued", "have it issued by whoever minted the credential");

const over = (ref: IssuedRef): CotalError =>
  refuse(ErrorCode.Expired, ref, "is over", "have it issued anew, under another generation");

function refuse(code: ErrorCode, { owner, actor, generation }: IssuedRef, why: string, next: string): CotalError {
  return new CotalError(code, `the generation ${generation} of ${dotForm({ owner, actor })} ${why}`, {
    outcome: Outcome.NotExecuted,
    next,
  });
}
