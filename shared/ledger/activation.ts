/**
 * Activation of a lifecycle under a virgin or retired alias (§13.1), and the entry of its root
 * credential.
 *
 * In order: stage the intent · reserve the UID · gate born frozen under this operation · head by
 * CAS (the fence: one activation of an alias wins) · `prepare` (durables, ACL row) · open the gate ·
 * credential row · gate touched · head stamped with the credential. Only then may the credential
 * leave.
 *
 * Invariants
 * 1. Every step is a create or a pinned CAS that a retry of the same operation finds done and
 *    passes, so a crash anywhere converges under the same operation id.
 * 2. The loser of the head CAS terminalises its own orphan gate and never takes the winner's UID.
 * 3. Frontiers are captured in `prepare`, after the head is active: after any gap of the alias.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Principal, type RandomBytes, dotForm, drawLifecycleUid, drawNonce } from "../protocol/base/principals.ts";
import { gateMayMove, headMayMove } from "../protocol/ledger/machines.ts";
import {
  ActivationStage,
  CredentialRow,
  GateRow,
  HeadRow,
  UidRow,
  headMatchesKey,
  ledgerKey,
} from "../protocol/ledger/rows.ts";
import { type LedgerStore, type Row, createOrRead, readRow } from "./store.ts";

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
  const staged = await createOrRead(store, "auth", ledgerKey.stage(request.opId), ActivationStage, {
    v: 1,
    opId: request.opId,
    owner,
    actor,
    lifecycleUid: request.uid ?? drawLifecycleUid(request.random),
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

  const reservation = await createOrRead(store, "records", ledgerKey.uid(uid), UidRow, {
    v: 1,
    lifecycleUid: uid,
    owner,
    actor,
    opId: request.opId,
    at: request.now,
  });
  if (reservation.value.opId !== request.opId) throw conflict("the lifecycle UID is taken");

  const gate = await createOrRead(store, "auth", ledgerKey.gate(uid), GateRow, { state: "frozen", generation: 0, op });
  if (gate.value.state !== "open" && gate.value.op.kind !== "activation") {
    // A retry that comes after the end began must not reopen what another operation froze.
    throw notCurrent(request.principal, `${gate.value.op.kind} ${gate.value.op.opId} holds its issuance gate`);
  }
  if (gate.value.state === "retired") throw taken(request.principal);
  await moveHead(store, request, uid, gate);
  await prepare({ uid, inboxNonce });
  if (gate.value.state === "frozen") {
    assertEdge(gateMayMove("frozen", "open", "activation"));
    await casOrAdopt(store, ledgerKey.gate(uid), { state: "open", generation: 1 }, gate.revision);
  }
  return { uid, inboxNonce };
}

async function moveHead(
  store: LedgerStore,
  request: ActivationRequest,
  uid: string,
  gate: Row<GateRow>,
): Promise<void> {
  const key = ledgerKey.head(request.principal);
  const active: HeadRow = {
    owner: request.principal.owner,
    actor: request.principal.actor,
    lifecycleUid: uid,
    managerInstance: request.managerInstance,
    processEpoch: 1,
    state: "active",
  };
  const found = await readRow(store, "records", key, HeadRow);
  if (found !== undefined && !headMatchesKey(found.value, request.principal))
    throw conflict(`${key} names another alias`);
  if (found !== undefined && found.value.lifecycleUid === uid) return;
  const from = found?.value.state ?? "absent";
  if (!headMayMove(from, "active", false)) return lose(store, request, uid, gate);
  try {
    if (found === undefined) await store.create("records", key, active);
    else await store.cas("records", key, active, found.revision);
  } catch (error) {
    if (!isConflict(error)) throw error;
    const now = await readRow(store, "records", key, HeadRow);
    if (now?.value.lifecycleUid !== uid) return lose(store, request, uid, gate);
  }
}

/** The loser's own gate ends retired; its UID stays reserved for ever. */
async function lose(store: LedgerStore, request: ActivationRequest, uid: string, gate: Row<GateRow>): Promise<never> {
  if (gate.value.state === "frozen") {
    assertEdge(gateMayMove("frozen", "retired", "activation"));
    const op = { opId: request.opId, kind: "activation" } as const;
    await store
      .cas("auth", ledgerKey.gate(uid), { state: "retired", generation: gate.value.generation, op }, gate.revision)
      .catch((error: unknown) => {
        if (!isConflict(error)) throw error;
      });
  }
  throw taken(request.principal);
}

async function casOrAdopt(store: LedgerStore, key: string, value: GateRow, revision: number): Promise<void> {
  try {
    await store.cas("auth", key, value, revision);
  } catch (error) {
    if (!isConflict(error)) throw error;
    const now = await readRow(store, "auth", key, GateRow);
    if (now?.value.state !== value.state) throw error;
  }
}

export type CredentialEntry = {
  readonly principal: Principal;
  readonly uid: string;
  /** The user's public nkey. */
  readonly credentialId: string;
  /** Unix seconds. */
  readonly expires: number;
};

/** Rounds of an entry that loses its CAS to others of the same lifecycle. */
const ENTRY_ROUNDS = 8;

/**
 * Enters one root credential: row, then the gate touched at its observed revision, then the head
 * stamped (§10). A frozen gate, or one that is frozen meanwhile, refuses: nothing may leave, and the row
 * that this entry wrote is revoked again. Several entries of one lifecycle may run at once.
 */
export async function enterCredential(store: LedgerStore, entry: CredentialEntry): Promise<void> {
  const wrote = { row: false };
  for (let round = 1; ; round += 1) {
    try {
      return await enterOnce(store, entry, wrote);
    } catch (error) {
      if (!isConflict(error) || round === ENTRY_ROUNDS) throw error;
    }
  }
}

async function enterOnce(store: LedgerStore, entry: CredentialEntry, wrote: { row: boolean }): Promise<void> {
  const gateKey = ledgerKey.gate(entry.uid);
  const rowKey = ledgerKey.cred(entry.uid, entry.credentialId);
  const [gate, found] = await Promise.all([
    readRow(store, "auth", gateKey, GateRow),
    readRow(store, "auth", rowKey, CredentialRow),
  ]);
  if (gate?.value.state !== "open") {
    if (wrote.row) await withdraw(store, rowKey);
    throw notCurrent(entry.principal, "its issuance gate is not open");
  }
  const row: CredentialRow = {
    credentialId: entry.credentialId,
    holderPrincipal: dotForm(entry.principal),
    lifecycleUid: entry.uid,
    sourceChain: ["root"],
    state: "active",
    exp: entry.expires,
  };
  if (found === undefined) await store.create("auth", rowKey, row);
  else if (found.value.state !== "active") throw notCurrent(entry.principal, "the credential is revoked");
  else if (found.value.holderPrincipal !== row.holderPrincipal)
    throw conflict("the credential's row names another holder");
  else if (found.value.exp < entry.expires) {
    await store.cas("auth", rowKey, { ...found.value, exp: entry.expires }, found.revision);
  }
  // Only a row of its own is withdrawn: one that was there is what others hold their bearers by, and whoever
  // froze the gate has seen it.
  wrote.row ||= found === undefined;
  await store.cas("auth", gateKey, gate.value, gate.revision);
  const headKey = ledgerKey.head(entry.principal);
  const head = await readRow(store, "records", headKey, HeadRow);
  if (head?.value.state !== "active" || head.value.lifecycleUid !== entry.uid) {
    throw notCurrent(entry.principal, "it is not the current lifecycle of its alias");
  }
  if (head.value.currentCredentialId === entry.credentialId) return;
  await store.cas("records", headKey, { ...head.value, currentCredentialId: entry.credentialId }, head.revision);
}

/** The loser's own row (§13.1 mint protocol). Whoever moved it meanwhile had his own reason. */
async function withdraw(store: LedgerStore, key: string): Promise<void> {
  const row = await readRow(store, "auth", key, CredentialRow);
  if (row?.value.state !== "active") return;
  await store.cas("auth", key, { ...row.value, state: "revoked" }, row.revision).catch((error: unknown) => {
    if (!isConflict(error)) throw error;
  });
}

function isConflict(error: unknown): boolean {
  return error instanceof CotalError && error.code === ErrorCode.Conflict;
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

function notCurrent(p: Principal, why: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `${dotForm(p)} gets no credential: ${why}`, {
    outcome: Outcome.NotExecuted,
    next: "run cotal doctor; a frozen gate names the operation that holds it",
  });
}

function assertEdge(allowed: boolean): void {
  if (!allowed) throw new CotalError(ErrorCode.Internal, "the state machine has no such edge");
}
