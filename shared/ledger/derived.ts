/**
 * The entry of a credential that is derived from a lifecycle, by handles or by an issuance (§13.1 mint protocol): gates
 * observed · row with its whole lineage · one index row for each handle in it · each handle's gate touched, and the
 * lifecycle's gate last, at the revisions that were observed. Only then may the credential leave.
 *
 * Invariants
 * 1. Between a freeze, of the lifecycle or of any handle, and this entry one loses on that gate's key. If the entry
 *    wins, its rows stand before whoever froze the gate reads the index; if it loses, it revokes the row that it wrote.
 * 2. A row that stands under another lineage is not entered again: a lineage is a credential's for ever.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Principal, dotForm } from "../protocol/base/principals.ts";
import { CredentialRow, type GateRow, ledgerKey } from "../protocol/ledger/rows.ts";
import {
  type HandleSource,
  SourceGateRow,
  SourceIndexRow,
  chainEntry,
  sourceKey,
} from "../protocol/ledger/source-rows.ts";
import { notCurrent } from "./activation.ts";
import { withdraw } from "./entry.ts";
import { isConflict, readGate, readHead } from "./moves.ts";
import { readReservation } from "./reservation.ts";
import { type LedgerStore, type Row, createOrRead, readRow } from "./store.ts";

export type DerivedEntry = {
  readonly principal: Principal;
  readonly uid: string;
  readonly credentialId: string;
  /** Unix seconds. */
  readonly expires: number;
  /** Every handle of the presented chain, leaf and parents. */
  readonly handles: readonly HandleSource[];
  /** The issuance that it is released under. */
  readonly generation?: string;
};

const ROUNDS = 8;

/**
 * Throws `failed-precondition` where the lifecycle is not current or its gate is not open, `expired` for a handle that
 * is revoked. Safe to run again.
 */
export async function enterDerived(store: LedgerStore, entry: DerivedEntry): Promise<void> {
  const wrote = { row: false };
  for (let round = 1; ; round += 1) {
    try {
      return await enterOnce(store, entry, wrote);
    } catch (error) {
      if (isConflict(error) && round < ROUNDS) continue;
      if (wrote.row && isVerdict(error)) await withdraw(store, keyOf(entry));
      throw error;
    }
  }
}

/** A gate that is shut, a handle that is revoked: not a race that was lost, or a broker that is silent, which may go on. */
const isVerdict = (error: unknown): boolean =>
  error instanceof CotalError && (error.code === ErrorCode.FailedPrecondition || error.code === ErrorCode.Expired);

const keyOf = ({ uid, credentialId }: DerivedEntry): string => ledgerKey.cred(uid, credentialId);

async function enterOnce(store: LedgerStore, entry: DerivedEntry, wrote: { row: boolean }): Promise<void> {
  const { handles, uid, credentialId, principal } = entry;
  const [gate, gates] = await Promise.all([
    openGate(store, principal, uid),
    Promise.all(handles.map((handle) => openSource(store, handle))),
  ]);
  const row: CredentialRow = {
    credentialId,
    holderPrincipal: dotForm(principal),
    lifecycleUid: uid,
    sourceChain: chainOf(entry),
    state: "active",
    exp: entry.expires,
  };
  const found = await createOrRead(store, "auth", keyOf(entry), CredentialRow, row);
  wrote.row ||= found.created;
  if (found.value.state !== "active") throw notCurrent(principal, "the credential is revoked");
  if (!isSameLineage(found.value, row)) throw foreign(keyOf(entry));
  if (found.value.exp < row.exp) await store.cas("auth", keyOf(entry), row, found.revision);
  await Promise.all(
    handles.map(({ issuerKeyId, id }) =>
      createOrRead(
        store,
        "auth",
        sourceKey.index({ kind: "handle", issuerKeyId, id }, uid, credentialId),
        SourceIndexRow,
        {
          v: 1,
          issuerKeyId,
          id,
          lifecycleUid: uid,
          credentialId,
        },
      ),
    ),
  );
  await Promise.all(handles.map((handle, at) => touchSource(store, handle, gates[at])));
  await store.cas("auth", ledgerKey.gate(uid), gate.value, gate.revision);
}

function chainOf({ handles, generation }: DerivedEntry): string[] {
  const chain = [
    ...handles.map(chainEntry.handle),
    ...(generation === undefined ? [] : [chainEntry.issued(generation)]),
  ];
  return chain.length === 0 ? ["root"] : chain;
}

function isSameLineage(one: CredentialRow, other: CredentialRow): boolean {
  const spelled = ({ holderPrincipal, lifecycleUid, sourceChain }: CredentialRow) =>
    JSON.stringify([holderPrincipal, lifecycleUid, sourceChain]);
  return spelled(one) === spelled(other);
}

/** The gate of a current lifecycle, open; the head is read after it, because whatever moves that has frozen this first. */
export async function openGate(store: Pick<LedgerStore, "read">, p: Principal, uid: string): Promise<Row<GateRow>> {
  const [gate] = await Promise.all([readGate(store, uid), readReservation(store, uid)]);
  const head = await readHead(store, p);
  if (gate?.value.state !== "open") throw notCurrent(p, "its issuance gate is not open");
  if (head?.value.state !== "active" || head.value.lifecycleUid !== uid) {
    throw notCurrent(p, "it is not the current lifecycle of its alias");
  }
  return gate;
}

/** The gate of a handle; `undefined` while nobody has redeemed it. Throws `expired` for one that is revoked. */
export async function openSource(
  store: Pick<LedgerStore, "read">,
  handle: HandleSource,
): Promise<Row<SourceGateRow> | undefined> {
  const gate = await readRow(store, "auth", sourceKey.gate(handle), SourceGateRow);
  if (gate?.value.state !== "frozen") return gate;
  throw new CotalError(ErrorCode.Expired, `the handle ${handle.id} of ${handle.issuerKeyId} is revoked`, {
    outcome: Outcome.NotExecuted,
    next: "ask whoever issued it for another one",
  });
}

async function touchSource(store: LedgerStore, handle: HandleSource, gate: Row<SourceGateRow> | undefined) {
  const key = sourceKey.gate(handle);
  if (gate === undefined) await store.create("auth", key, { state: "open" });
  else await store.cas("auth", key, gate.value, gate.revision);
}

function foreign(key: string): CotalError {
  return new CotalError(ErrorCode.AlreadyExists, `the ledger row ${key} is of another lineage`, {
    outcome: Outcome.NotExecuted,
    next: "draw a new key",
  });
}
