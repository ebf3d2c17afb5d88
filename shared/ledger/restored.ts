/**
 * A lifecycle that a restore has enrolled, and that nobody holds a credential of yet (decisions H47, 32).
 *
 * Where people sign in, the next sign-in finds it active and enters its root credential. With static credentials
 * somebody has to mint: the first mint of that name adopts it, with its inbox and its memberships.
 *
 * Invariant: the read list is the fence. A restore writes it with the root credential that nobody can hold; the mint
 * that puts its own key there has the lifecycle, and every other one finds the alias taken.
 */
import { canonicalDigest } from "../protocol/base/canonical.ts";
import { AclRow, ActivationStage, HeadRow, ledgerKey } from "../protocol/ledger/rows.ts";
import type { Principal } from "../protocol/base/principals.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import type { Activated } from "./activation.ts";
import { readReservation } from "./reservation.ts";
import { rootCredentialId } from "./root.ts";
import { type LedgerStore, readRow } from "./store.ts";

/** The operation under which a restore activates: a sign-in's own, or one that only a mint of this kind looks for. */
export function restoredOp(auth: "static" | "user", uid: string): string {
  return auth === "user" ? `enrol-${uid}` : `restored-${uid}`;
}

/**
 * Takes over the restored lifecycle of an alias for `row.credential`. `undefined` if there is none, or another
 * credential has it. Safe to run again.
 */
export async function adoptRestored(store: LedgerStore, p: Principal, row: AclRow): Promise<Activated | undefined> {
  const head = await readRow(store, "records", ledgerKey.head(p), HeadRow);
  if (head?.value.state !== "active") return undefined;
  const { lifecycleUid: uid } = head.value;
  await readReservation(store, uid);
  const stage = await readRow(store, "auth", ledgerKey.stage(restoredOp("static", uid)), ActivationStage);
  const list = await readRow(store, "acl", ledgerKey.acl(p, uid), AclRow);
  if (stage === undefined || list === undefined) return undefined;
  const adopted = { uid, inboxNonce: stage.value.inboxNonce };
  if (list.value.credential === row.credential) {
    if (isSame({ ...list.value, at: 0 }, { ...row, at: 0 })) return adopted;
    throw new CotalError(ErrorCode.Conflict, "this operation was begun with other arguments", {
      outcome: Outcome.NotExecuted,
      next: "ask for the same again",
    });
  }
  if (list.value.credential !== rootCredentialId(uid, 1)) return undefined;
  if (!row.durables) {
    throw new CotalError(ErrorCode.FailedPrecondition, `${p.actor} was an agent when its backup was taken`, {
      outcome: Outcome.NotExecuted,
      next: "mint it as an agent to go on with its inbox, or end it first: cotal deprovision",
    });
  }
  await store.cas("acl", ledgerKey.acl(p, uid), row, list.revision);
  return adopted;
}

const isSame = (a: AclRow, b: AclRow): boolean => canonicalDigest(a) === canonicalDigest(b);
