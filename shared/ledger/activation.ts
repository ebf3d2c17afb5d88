/**
 * Activation of a lifecycle under a virgin or retired alias (§13.1).
 *
 * In order: stage the intent · reserve the UID · gate born frozen under this operation · head by
 * CAS (the fence: one activation of an alias wins) · `prepare` (durables, ACL row) · open the gate. Only
 * then is a credential entered (`entry.ts`).
 *
 * Invariants
 * 1. Every step is a create or a pinned CAS that a retry of the same operation finds done and
 *    passes, so a crash anywhere converges under the same operation id.
 * 2. The loser of the head CAS terminalises its own orphan gate and never takes the winner's UID.
 * 3. Frontiers are captured in `prepare`, after the head is active: after any gap of the alias.
 * 4. A UID that is marked for service custody is refused before anything is written (`reservation.ts`).
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Principal, type RandomBytes, dotForm, drawLifecycleUid, drawNonce } from "../protocol/base/principals.ts";
import { ActivationStage, type GateOperation, type GateRow, ledgerKey } from "../protocol/ledger/rows.ts";
import { holderOf, moveGate, moveHead } from "./moves.ts";
import { readReservation, reserve } from "./reservation.ts";
import { type LedgerStore, createOrRead } from "./store.ts";

export type ActivationRequest = {
  /** The same for every retry of one request. */
  readonly opId: string;
  readonly principal: Principal;
  /** Digest of everything asked for: a retry that asks for something else is a conflict. */
  readonly requestDigest: string;
  /** Who mints: an instance id, kept on the head. */
  readonly managerInstance: string;
  /** A UID that was drawn before the ledger existed (daemons, first operator). */
  readonly uid?: string;
  readonly inboxNonce?: string;
  /** Epoch milliseconds. */
  readonly now: number;
  readonly random: RandomBytes;
};

export type Activated = { readonly uid: string; readonly inboxNonce: string };

/**
 * Activates the alias up to an open gate. `prepare` makes what the lifecycle needs before its
 * credential may leave; it must be safe to run again.
 * Throws `already-exists` if the alias is active under another operation.
 */
export async function activate(
  store: LedgerStore,
  request: ActivationRequest,
  prepare: (activated: Activated) => Promise<void>,
): Promise<Activated> {
  const { owner, actor } = request.principal;
  const wanted = request.uid ?? drawLifecycleUid(request.random);
  await readReservation(store, wanted);
  const staged = await createOrRead(store, "auth", ledgerKey.stage(request.opId), ActivationStage, {
    v: 1,
    opId: request.opId,
    owner,
    actor,
    lifecycleUid: wanted,
    inboxNonce: request.inboxNonce ?? drawNonce(request.random),
    requestDigest: request.requestDigest,
  });
  if (staged.value.requestDigest !== request.requestDigest) {
    throw conflict(
      "this operation was begun with other arguments",
      "ask for the same again; a daemon's owner.secret and .uid files must be those that the space was made with",
    );
  }
  const { lifecycleUid: uid, inboxNonce } = staged.value;
  const op = { opId: request.opId, kind: "activation" } as const;

  const reservation = await reserve(store, {
    v: 1,
    lifecycleUid: uid,
    owner,
    actor,
    opId: request.opId,
    at: request.now,
  });
  if (reservation.opId !== request.opId) throw conflict("the lifecycle UID is taken");

  const born = await moveGate(store, uid, { to: "frozen", op });
  // Open: an earlier run of this very operation has come that far; the UID is reserved for no other.
  if (born.kind === "refused" && born.now?.value.state !== "open") throw over(request.principal, born.now?.value);
  await current(store, request, uid, op);
  await prepare({ uid, inboxNonce });
  const opened = await moveGate(store, uid, { to: "open", op });
  // An end that came meanwhile has taken the gate, and never gives it back.
  if (opened.kind === "refused") throw over(request.principal, opened.now?.value);
  return { uid, inboxNonce };
}

/** The fence: of two activations of one alias one gets past here, and the other ends its own gate (§13.1). */
async function current(store: LedgerStore, request: ActivationRequest, uid: string, op: GateOperation): Promise<void> {
  const { principal, managerInstance } = request;
  const moved = await moveHead(store, principal, {
    kind: "activate",
    ...principal,
    lifecycleUid: uid,
    managerInstance,
  });
  if (moved.kind !== "refused") return;
  if (moved.now?.value.lifecycleUid === uid) throw notCurrent(principal, `its lifecycle is ${moved.now.value.state}`);
  await moveGate(store, uid, { to: "retired", op });
  throw taken(principal);
}

function over(p: Principal, gate: GateRow | undefined): CotalError {
  const isLost = gate?.state === "retired" && gate.op.kind === "activation";
  return isLost ? taken(p) : shut(p, gate);
}

function conflict(message: string, next?: string): CotalError {
  return new CotalError(ErrorCode.Conflict, message, {
    outcome: Outcome.NotExecuted,
    ...(next === undefined ? {} : { next }),
  });
}

function taken(p: Principal): CotalError {
  return new CotalError(ErrorCode.AlreadyExists, `${dotForm(p)} is active already`, {
    outcome: Outcome.NotExecuted,
    next: "use its credential, choose another actor, or end it first: cotal deprovision",
  });
}

/**
 * Refuses whoever finds the gate shut. An end never opens it again; what any other operation holds is open in seconds,
 * so whoever was signed in waits (`unavailable`) and is not done.
 */
export function shut(p: Principal, gate: GateRow | undefined): CotalError {
  const passes = gate?.state === "frozen" && gate.op.kind !== "retirement";
  const why = `its issuance gate is ${holderOf(gate)}`;
  return passes ? noCredential(ErrorCode.Unavailable, p, why) : notCurrent(p, why);
}

/** Refuses what would let somebody in whose lifecycle is not the current one of its alias. */
export function notCurrent(p: Principal, why: string): CotalError {
  return noCredential(ErrorCode.FailedPrecondition, p, why);
}

function noCredential(code: ErrorCode, p: Principal, why: string): CotalError {
  return new CotalError(code, `${dotForm(p)} gets no credential: ${why}`, {
    outcome: Outcome.NotExecuted,
    next: "an operation takes seconds: try again; if it stays so, cotal doctor says how to complete it",
  });
}
