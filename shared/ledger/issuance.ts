/**
 * Issuing authority (§13.15): a ceiling of permissions for one lifecycle, under a generation that rides the versioned
 * rail, and the credentials that are released under it.
 *
 * In order: attempt `prepared`, which is the durable intent · evidence, created once · index row for each source ·
 * the gate of each source touched · credential row (`derived.ts`: the handles' gates, the holder's gate) · accepted row ·
 * attempt `active`. Only then may the credential leave. A renewal is the same under the same generation.
 *
 * Invariants
 * 1. A generation is one ceiling's for ever: what was begun under it with other bytes is refused.
 * 2. The end of any source freezes that source's gate, then reads the index, then retires what it found. So an issuance
 *    either lost on that gate, or its rows were found; and then its last write is lost.
 * 3. What it is cut from has its sources too: an issuance names its whole lineage, and one look finds every descendant.
 * 4. Every step may be run again. What is only prepared permits nothing, and whoever began it may go on; who loses to
 *    an end revokes the credential that it entered.
 */
import { CotalError, ErrorCode, Outcome, badRequest } from "../protocol/base/errors.ts";
import { dotForm, principal } from "../protocol/base/principals.ts";
import {
  AcceptedRow,
  type AttemptRow,
  IssuedEvidence,
  IssuedIndexRow,
  type IssuedPermissions,
  evidenceDigest,
  holderOf,
  isSameRef,
  issuedKey,
  sourceSet,
  stepAttempt,
} from "../protocol/ledger/issued-rows.ts";
import { ledgerKey } from "../protocol/ledger/rows.ts";
import type { HandleSource, IssuedRef, Source } from "../protocol/ledger/source-rows.ts";
import { enterDerived, openGate } from "./derived.ts";
import { withdraw } from "./entry.ts";
import { demandGrant } from "./live-grant.ts";
import { retireIssuance } from "./issuance-end.ts";
import { moveAttempt, readAttempt, readEvidence } from "./issued-moves.ts";
import { isConflict } from "./moves.ts";
import { readReservation } from "./reservation.ts";
import { type LedgerStore, createOrRead } from "./store.ts";

export type IssueRequest = {
  readonly ref: IssuedRef;
  /** What it comes from beside its holder's lifecycle. */
  readonly sources: readonly Source[];
  readonly permissions: IssuedPermissions;
  /** Unix seconds; absent: as long as its sources. */
  readonly expiresAt?: number;
  /** The credential that is to be released. Its end, in Unix seconds, is not after the issuance's. */
  readonly credential: { readonly id: string; readonly expires: number };
};

/** The ceiling as it is written. Throws `bad-request` for what no evidence may say. */
async function sealed(store: LedgerStore, request: IssueRequest): Promise<IssuedEvidence> {
  const { ref, permissions, expiresAt } = request;
  const above = await Promise.all(
    request.sources.flatMap((source) => (source.kind === "issued" ? [parentOf(store, source.ref)] : [])),
  );
  const parsed = IssuedEvidence.safeParse({
    version: 1,
    ref,
    sources: sourceSet([holderOf(ref), ...request.sources, ...above.flatMap(({ sources }) => sources)]),
    permissions,
    ...(expiresAt === undefined ? {} : { expiresAt }),
  });
  if (!parsed.success) {
    throw badRequest(`nobody can be issued this: ${parsed.error.issues[0]?.message ?? ""}`);
  }
  if ([parsed.data, ...above].some(({ expiresAt: end = Infinity }) => request.credential.expires > end)) {
    throw badRequest("a credential ends no later than what it is issued under", "let it end sooner");
  }
  return parsed.data;
}

async function parentOf(store: LedgerStore, ref: IssuedRef): Promise<IssuedEvidence> {
  const parent = await readEvidence(store, ref);
  if (parent === undefined) throw spent(ref, undefined);
  return parent.value;
}

/** Rounds of an issuance that loses a compare-and-set to others of the same sources. */
const ROUNDS = 8;

/**
 * Issues, or renews under the same ceiling; the credential may leave when this resolves. Throws `already-exists` for a
 * generation that another ceiling has, `expired` for one that is over or a source that is, `failed-precondition` where a
 * lifecycle is not current or its gate is not open. Safe to run again.
 */
export async function issue(store: LedgerStore, request: IssueRequest): Promise<IssuedEvidence> {
  for (let round = 1; ; round += 1) {
    try {
      return await issueOnce(store, request);
    } catch (error) {
      if (!isConflict(error) || round === ROUNDS) throw error;
    }
  }
}

async function issueOnce(store: LedgerStore, request: IssueRequest): Promise<IssuedEvidence> {
  const { ref, credential } = request;
  const evidence = await sealed(store, request);
  const digest = evidenceDigest(evidence);
  await demandReserved(store, evidence.sources);
  const begun = await moveAttempt(store, ref, { to: "prepared", ref, evidence: digest });
  if (begun.kind === "refused") throw spent(ref, begun.now?.value);
  const kept = await createOrRead(store, "issued", issuedKey.evidence(ref), IssuedEvidence, evidence);
  if (evidenceDigest(kept.value) !== digest) throw otherwise(ref);
  await Promise.all(
    evidence.sources.map((source) =>
      createOrRead(store, "issued", issuedKey.bySource(source, ref), IssuedIndexRow, { version: 1, source, ref }),
    ),
  );
  await Promise.all(evidence.sources.map((source) => touch(store, source, ref)));
  await enterDerived(store, {
    principal: principal(ref.owner, ref.actor),
    uid: ref.uid,
    credentialId: credential.id,
    expires: credential.expires,
    handles: evidence.sources.filter((source): source is HandleSource => source.kind === "handle"),
    generation: ref.generation,
  });
  await accept(store, ref, credential.id, digest);
  await release(store, request);
  return evidence;
}

/** A UID that is marked for service custody is refused before anything is written (§13.1). */
async function demandReserved(store: LedgerStore, sources: readonly Source[]): Promise<void> {
  await Promise.all(
    sources.flatMap((source) => (source.kind === "lifecycle" ? [readReservation(store, source.uid)] : [])),
  );
}

async function accept(store: LedgerStore, ref: IssuedRef, token: string, evidence: string): Promise<void> {
  const row: AcceptedRow = { version: 1, token, ref, evidence };
  const { value } = await createOrRead(store, "accepted", issuedKey.accepted(token), AcceptedRow, row);
  if (isSameRef(value.ref, ref) && value.evidence === evidence) return;
  throw refuse(ErrorCode.AlreadyExists, "this key was released under another issuance", "draw a new key");
}

/** The last write: an end that came meanwhile has moved the row, and then this one is lost. */
async function release(store: LedgerStore, { ref, credential }: IssueRequest): Promise<void> {
  const attempt = await readAttempt(store, ref);
  const move = stepAttempt(attempt?.value, { to: "active" });
  if (attempt === undefined || move.kind === "refused") {
    // That end may have read the family before this row was in it.
    await withdraw(store, ledgerKey.cred(ref.uid, credential.id));
    throw spent(ref, attempt?.value);
  }
  const row = move.kind === "move" ? move.row : attempt.value;
  await store.cas("issued", issuedKey.attempt(ref), row, attempt.revision);
}

/** The source's own gate, at the revision at which it was live. The holder's and the handles' are `enterDerived`'s. */
async function touch(store: LedgerStore, source: Source, { uid }: IssuedRef): Promise<void> {
  if (source.kind === "lifecycle" && source.uid !== uid) {
    const gate = await openGate(store, principal(source.owner, source.actor), source.uid);
    await store.cas("auth", ledgerKey.gate(source.uid), gate.value, gate.revision);
  }
  // Its row is nobody's to touch: a change that comes later is seen by every resolution.
  if (source.kind === "grant") await demandGrant(store, source);
  if (source.kind === "issued") {
    const attempt = await readAttempt(store, source.ref);
    // One that is only prepared was never issued.
    const isRetired = attempt?.value.state === "retired";
    if (attempt?.value.state !== "active") throw spent(source.ref, isRetired ? attempt.value : undefined);
    await store.cas("issued", issuedKey.attempt(source.ref), attempt.value, attempt.revision);
  }
}

function spent({ generation, ...holder }: IssuedRef, found: AttemptRow | undefined): CotalError {
  const who = dotForm(principal(holder.owner, holder.actor));
  if (found !== undefined && found.state !== "retired") {
    const why = `the generation ${generation} of ${who} has another ceiling`;
    return refuse(ErrorCode.AlreadyExists, why, "draw another generation: each is one ceiling's for ever");
  }
  const why = `the generation ${generation} of ${who} ${found === undefined ? "was never issued" : "is over"}`;
  return refuse(ErrorCode.Expired, why, "have it issued anew, under another generation");
}

function otherwise(ref: IssuedRef): CotalError {
  const why = `the ledger row ${issuedKey.evidence(ref)} is other evidence than its attempt names`;
  return refuse(
    ErrorCode.FailedPrecondition,
    why,
    "nothing is decided on it; compare it with a backup, or restore the space",
  );
}

function refuse(code: ErrorCode, message: string, next: string): CotalError {
  return new CotalError(code, message, { outcome: Outcome.NotExecuted, next });
}

/**
 * A renewal (§13.15): under the same generation for a ceiling of the very same bytes, and under the next one for any other;
 * then what it was issued before is over. `next` is drawn by whoever asks, so that a retry converges.
 */
export async function renew(
  store: LedgerStore,
  { ref: held, next, ...request }: IssueRequest & { readonly next: string },
): Promise<IssuedRef> {
  const same = { ...request, ref: held };
  const before = await readEvidence(store, held);
  if (before !== undefined && evidenceDigest(before.value) === evidenceDigest(await sealed(store, same))) {
    await issue(store, same);
    return held;
  }
  const ref = { ...held, generation: next };
  await issue(store, { ...request, ref });
  await retireIssuance(store, held, `renewed-${next}`);
  return ref;
}
