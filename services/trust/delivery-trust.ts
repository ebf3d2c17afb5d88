/**
 * Trust of the delivery service of one space: its own signing keys of front and store, and its two users of the
 * system account, as credentials. It gets no key of that account: with one it could add accounts.
 *
 * Invariants
 * 1. Everything but the credentials is drawn once; a second run finds it and changes nothing.
 * 2. A renewed credential is of the same lifecycle and inbox, so a running daemon takes it up at its next
 *    dial; it is listed for the ledger before it is written.
 */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import type { HolderScope } from "../../shared/grants/client-profiles.ts";
import { Life, type ScopeOf } from "../../shared/grants/matrix.ts";
import { Account } from "../../shared/grants/row.ts";
import { drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import type { SpaceAccountOptions } from "../../shared/trust/accounts.ts";
import { formatCreds, readCredsFile } from "../../shared/trust/creds.ts";
import { DeliveryFile, type DeliverySpaceFile } from "../../shared/trust/delivery-folder.ts";
import { keptAs, keptKey, keptUid, trustPaths, writePrivate } from "../../shared/trust/folder.ts";
import { type CredentialView, mintUser } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { systemOwner } from "../../shared/trust/owner.ts";
import type { BrokerTrust } from "./broker-trust.ts";
import { type SpaceTrust, listIssued } from "./space-trust.ts";

/** Reads or creates the delivery service's keys; what the accounts must say of them. */
export function ensureDeliveryTrust(
  state: string,
  trust: SpaceTrust,
): Pick<Required<SpaceAccountOptions>, "moreSigners"> {
  const folder = trustPaths(state).delivery(trust.space);
  const front = keptKey(join(folder, DeliveryFile.FrontSigner), "account");
  const store = keptKey(join(folder, DeliveryFile.StoreSigner), "account");
  keptAs(join(folder, DeliveryFile.OwnerSecret), trust.ownerSecret.toString("hex"));
  keptUid(join(folder, DeliveryFile.Uid));
  return { moreSigners: { front: [front.publicKey], store: [store.publicKey] } };
}

type SystemProfile = "connection-evictor" | "membership-observer";
type SystemTrust = Pick<BrokerTrust, "system" | "systemSigner">;

/** Renews each of the service's credentials of the system account when less than half of its life is left. */
export async function ensureSystemCredentials(
  state: string,
  trust: SpaceTrust,
  broker: SystemTrust,
  auth: "static" | "user",
  nowSeconds: number,
): Promise<void> {
  const { front, store, auth: calling } = trust.keys;
  const spaceAccounts = [front, store, calling].map(({ publicKey }) => publicKey);
  const renewing = { state, trust, broker, auth, nowSeconds };
  await renewed(renewing, DeliveryFile.Evictor, "connection-evictor", (own) => ({ ...own, spaceAccounts }));
  await renewed(renewing, DeliveryFile.Observer, "membership-observer", (own) => ({
    ...own,
    frontAccount: front.publicKey,
  }));
}

type Renewing = {
  readonly state: string;
  readonly trust: SpaceTrust;
  readonly broker: SystemTrust;
  readonly auth: "static" | "user";
  readonly nowSeconds: number;
};

async function renewed<Name extends SystemProfile>(
  { state, trust: { space, ownerSecret }, broker, auth, nowSeconds }: Renewing,
  file: string,
  profile: Name,
  scopeOf: (own: HolderScope) => ScopeOf<Name>,
): Promise<void> {
  const folder = trustPaths(state).delivery(space);
  const path = join(folder, file);
  const held = heldCredential(path);
  if (held !== undefined && (held.expires ?? 0) - nowSeconds > Life.Static / 2) return;
  const user = newKey("user");
  const uid = keptUid(join(folder, DeliveryFile.Uid));
  const holder = { principal: principal(systemOwner(ownerSecret, space), "delivery"), uid };
  const expires = nowSeconds + Life.Static;
  const { jwt } = await mintUser<Name>({
    profile,
    scope: scopeOf({ space, holder, inboxNonce: held?.inboxNonce ?? drawNonce(randomBytes) }),
    account: Account.System,
    accountKey: broker.system.publicKey,
    signer: broker.systemSigner,
    userKey: user.publicKey,
    expires,
    limits: { subs: 1000, payload: -1 },
  });
  listIssued(state, space, auth, nowSeconds, {
    ...holder.principal,
    uid,
    credentialId: user.publicKey,
    expires,
    reads: false,
  });
  writePrivate(path, formatCreds(jwt, user));
}

/** What the file holds; `undefined` for none, and for one that is damaged: it is made anew. */
function heldCredential(path: string): CredentialView | undefined {
  try {
    return readCredsFile(path).view;
  } catch {
    return undefined;
  }
}

/** The last step: the file that makes the folder whole. */
export function publishDelivery(state: string, { space, keys }: SpaceTrust, mode: DeliverySpaceFile["mode"]): void {
  const file: DeliverySpaceFile = {
    v: 1,
    space,
    mode,
    front: keys.front.publicKey,
    store: keys.store.publicKey,
    auth: keys.auth.publicKey,
  };
  keptAs(join(trustPaths(state).delivery(space), DeliveryFile.Space), JSON.stringify(file));
}
