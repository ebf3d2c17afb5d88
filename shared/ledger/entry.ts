/**
 * The entry of a root credential (§10, §13.1 mint protocol): gate observed · row · gate touched at the
 * revision that was observed · head stamped. Only then may the credential leave.
 *
 * Invariant: between a freeze and an entry one loses on the gate's key. If the entry wins, the row stands before
 * whoever froze the gate counts the rows; if it loses, it revokes the row that it wrote and releases nothing.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Principal, dotForm } from "../protocol/base/principals.ts";
import { CredentialRow, ledgerKey } from "../protocol/ledger/rows.ts";
import { stepHead } from "../protocol/ledger/head-machine.ts";
import { notCurrent, shut } from "./activation.ts";
import { isConflict, readGate, readHead } from "./moves.ts";
import { readReservation } from "./reservation.ts";
import { type LedgerStore, readRow } from "./store.ts";

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
  const { uid: lifecycleUid, credentialId } = entry;
  const gateKey = ledgerKey.gate(lifecycleUid);
  const rowKey = ledgerKey.cred(lifecycleUid, credentialId);
  const [gate] = await Promise.all([readGate(store, lifecycleUid), readReservation(store, lifecycleUid)]);
  // After the gate: whatever moves them later has frozen it first, and then the touch below is lost.
  const [found, head] = await Promise.all([
    readRow(store, "auth", rowKey, CredentialRow),
    readHead(store, entry.principal),
  ]);
  if (gate?.value.state !== "open") {
    if (wrote.row) await withdraw(store, rowKey);
    throw shut(entry.principal, gate?.value);
  }
  const stamp = stepHead(head?.value, { kind: "stamp", lifecycleUid, credentialId });
  if (stamp.kind === "refused") {
    if (wrote.row) await withdraw(store, rowKey);
    throw notCurrent(entry.principal, "it is not the current lifecycle of its alias");
  }
  const row: CredentialRow = {
    credentialId,
    holderPrincipal: dotForm(entry.principal),
    lifecycleUid,
    sourceChain: ["root"],
    state: "active",
    exp: entry.expires,
  };
  if (found === undefined) await store.create("auth", rowKey, row);
  else if (found.value.state !== "active") throw notCurrent(entry.principal, "the credential is revoked");
  else if (found.value.holderPrincipal !== row.holderPrincipal) {
    throw new CotalError(ErrorCode.FailedPrecondition, "the credential's row names another holder", {
      outcome: Outcome.NotExecuted,
      next: "nothing is decided on it; compare it with a backup, or restore the space",
    });
  } else if (found.value.exp < entry.expires) {
    await store.cas("auth", rowKey, { ...found.value, exp: entry.expires }, found.revision);
  }
  // Only a row of its own is withdrawn: one that was there is what others hold their bearers by, and whoever
  // froze the gate has seen it.
  wrote.row ||= found === undefined;
  await store.cas("auth", gateKey, gate.value, gate.revision);
  if (stamp.kind === "move" && head !== undefined) {
    await store.cas("records", ledgerKey.head(entry.principal), stamp.row, head.revision);
  }
}

/** The loser's own row (§13.1 mint protocol). Whoever moved it meanwhile had his own reason. */
export async function withdraw(store: LedgerStore, key: string): Promise<void> {
  const row = await readRow(store, "auth", key, CredentialRow);
  if (row?.value.state !== "active") return;
  await store.cas("auth", key, { ...row.value, state: "revoked" }, row.revision).catch((error: unknown) => {
    if (!isConflict(error)) throw error;
  });
}
