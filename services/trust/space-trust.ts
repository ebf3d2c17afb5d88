/**
 * Trust of one space: keys of its three accounts, the files its provisioner needs, and the first
 * operator credential.
 *
 * Invariants
 * 1. Identity keys stay in the space's trust folder; the provisioner gets signing keys only.
 * 2. What is minted here is listed in `issued.json` of whoever writes the ledger, who enters it before it
 *    serves, so no credential of a running space is unledgered (§13.1).
 */
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { AuthFile } from "../../shared/trust/auth-folder.ts";
import { Account } from "../../shared/grants/row.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { drawLifecycleUid, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import { DEFAULT_LIMITS } from "../../shared/protocol/chat/space-settings.ts";
import { type SpaceKeys } from "../../shared/trust/accounts.ts";
import { formatCreds, readCredsFile } from "../../shared/trust/creds.ts";
import {
  ProvisionerFile,
  keptAs,
  keptKey,
  keptSecret,
  keptUid,
  readKept,
  trustPaths,
  writePrivate,
} from "../../shared/trust/folder.ts";
import { IssuedList } from "../../shared/trust/issued.ts";
import type { SpaceFile } from "../../shared/trust/space-file.ts";
import { type CredentialView, mintUser } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { systemOwner } from "../../shared/trust/owner.ts";

export type SpaceTrust = {
  readonly space: string;
  readonly keys: SpaceKeys;
  readonly ownerSecret: Buffer;
};

/**
 * Reads or creates the keys of a space and the provisioner's files. A space keeps the mode it was
 * made with.
 */
export function ensureSpaceTrust(state: string, space: string): SpaceTrust {
  const paths = trustPaths(state);
  const own = paths.spaceTrust(space);
  const theirs = paths.provisioner(space);
  const keys: SpaceKeys = {
    front: keptKey(join(own, "front.nk"), "account"),
    store: keptKey(join(own, "store.nk"), "account"),
    auth: keptKey(join(own, "auth.nk"), "account"),
    frontSigner: keptKey(join(theirs, ProvisionerFile.FrontSigner), "account"),
    storeSigner: keptKey(join(theirs, ProvisionerFile.StoreSigner), "account"),
  };
  for (const file of [ProvisionerFile.Uid, ProvisionerFile.LedgerUid]) keptUid(join(theirs, file));
  return { space, keys, ownerSecret: keptSecret(join(theirs, ProvisionerFile.OwnerSecret)) };
}

/** The last step: from now on the provisioner may take the space up. */
export function publishSpace(state: string, { space, keys }: SpaceTrust, auth: SpaceFile["auth"]): void {
  const { front, store } = keys;
  const file: SpaceFile = { v: 1, front: front.publicKey, store: store.publicKey, auth };
  keptAs(join(trustPaths(state).provisioner(space), ProvisionerFile.Space), JSON.stringify(file));
}

/**
 * Renews the operator's credential when less than half of its life is left. One that was revoked is
 * gone for good with its lifecycle, one whose file is lost or damaged can't be used: the operator gets a
 * new one, or nobody could run the space any more.
 */
export async function ensureOperatorCredential(
  state: string,
  trust: SpaceTrust,
  auth: SpaceFile["auth"],
  nowSeconds: number,
): Promise<void> {
  const paths = trustPaths(state);
  const path = paths.operatorCreds(trust.space);
  const listPath = issuedPath(state, trust.space, auth);
  const uidPath = join(trustPaths(state).spaceTrust(trust.space), "operator.uid");
  const revoked = revokedUsers(state, trust.space);
  const held = heldCredential(path);
  if (held !== undefined && existsSync(listPath)) {
    const { expires = 0, userKey } = held;
    if (userKey in revoked) writePrivate(uidPath, drawLifecycleUid(randomBytes));
    else if (expires - nowSeconds > Life.Static / 2) return;
  }
  const user = newKey("user");
  const uid = keptUid(uidPath);
  const holder = { principal: principal(systemOwner(trust.ownerSecret, trust.space), "operator"), uid };
  const expires = nowSeconds + Life.Static;
  const { jwt } = await mintUser({
    profile: "operator",
    scope: { space: trust.space, holder, inboxNonce: drawNonce(randomBytes) },
    account: Account.Front,
    accountKey: trust.keys.front.publicKey,
    signer: trust.keys.frontSigner,
    userKey: user.publicKey,
    expires,
    limits: DEFAULT_LIMITS.agent,
    name: "operator",
  });
  const entry = { ...holder.principal, uid, credentialId: user.publicKey, expires };
  listIssued(state, trust.space, auth, nowSeconds, entry);
  writePrivate(path, formatCreds(jwt, user));
}

/** Whoever writes the ledger enters what is listed here. */
function issuedPath(state: string, space: string, auth: SpaceFile["auth"]): string {
  const paths = trustPaths(state);
  return auth === "user"
    ? join(paths.auth(space), AuthFile.Issued)
    : join(paths.provisioner(space), ProvisionerFile.Issued);
}

/** Adds one; what has ended or was revoked is listed no more. */
export function listIssued(
  state: string,
  space: string,
  auth: SpaceFile["auth"],
  nowSeconds: number,
  entry: IssuedList[number],
): void {
  const path = issuedPath(state, space, auth);
  const revoked = revokedUsers(state, space);
  const earlier = existsSync(path) ? readKept(path, (text) => IssuedList.parse(JSON.parse(text))) : [];
  const kept = earlier.filter(({ expires, credentialId }) => expires > nowSeconds && !(credentialId in revoked));
  writePrivate(path, JSON.stringify([...kept, entry]));
}

/** What the operator's file holds; `undefined` for none, and for one that is damaged: it is made anew. */
function heldCredential(path: string): CredentialView | undefined {
  try {
    return readCredsFile(path).view;
  } catch {
    return undefined;
  }
}

const RevokedList = z.record(z.string(), z.number());

/** Users of this space whose credentials are refused, with the time at which that was said. */
function revokedUsers(state: string, space: string): Record<string, number> {
  const path = join(trustPaths(state).spaceTrust(space), "revoked.json");
  return existsSync(path) ? readKept(path, (text) => RevokedList.parse(JSON.parse(text))) : {};
}

/** How long a revocation is told to the broker: no JWT lives longer than half of it. */
const REFUSED_SECONDS = 2 * Life.Static;

/**
 * Whom the broker must refuse now. Every JWT of one who was revoked long ago has expired, and the
 * account that carries the list is one message: about ten thousand names fill it.
 */
export function refusedUsers(state: string, space: string, nowSeconds: number): string[] {
  const all = Object.entries(revokedUsers(state, space));
  return all.flatMap(([user, at]) => (nowSeconds - at > REFUSED_SECONDS ? [] : [user]));
}

/** Adds users to the list; returns the whole list. Written before the broker is told. */
export function addRevoked(state: string, space: string, users: readonly string[], nowSeconds: number) {
  const all = { ...revokedUsers(state, space), ...Object.fromEntries(users.map((user) => [user, nowSeconds])) };
  writePrivate(join(trustPaths(state).spaceTrust(space), "revoked.json"), JSON.stringify(all));
  return all;
}
