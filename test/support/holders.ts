/**
 * A live credential of every built profile, for the safety tests: clients are minted by the running
 * provisioner, daemons as they mint themselves, from the keys in the state folder.
 */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { encodeUser } from "@nats-io/jwt";
import type { NatsConnection } from "@nats-io/transport-node";
import { type Account } from "../../shared/grants/row.ts";
import { type BuiltProfile, type ScopeOf } from "../../shared/grants/matrix.ts";
import { drawLifecycleUid, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import { type Credential } from "../../shared/trust/creds.ts";
import { ProvisionerFile, keptKey, trustPaths } from "../../shared/trust/folder.ts";
import { mintUser, readUserJwt } from "../../shared/trust/jwt.ts";
import { type SigningKey, newKey } from "../../shared/trust/keys.ts";
import type { Person } from "../broker/expected/kit.ts";
import type { TestSpace } from "./space.ts";

export const personOf = ({ view }: Credential): Person => ({
  owner: view.principal.owner,
  actor: view.principal.actor,
  uid: view.uid,
  connId: view.connId,
});

type AccountKeys = { readonly accountKey: string; readonly signer: SigningKey };

/** The keys that sign users of one of a space's accounts. */
export function accountKeys(space: Pick<TestSpace, "state">, name: string, account: Account): AccountKeys {
  const paths = trustPaths(space.state);
  if (account === "system") {
    return {
      accountKey: keptKey(paths.systemKey, "account").publicKey,
      signer: keptKey(paths.systemSigner, "account"),
    };
  }
  if (account === "auth") {
    const own = keptKey(join(paths.spaceTrust(name), "auth.nk"), "account");
    return { accountKey: own.publicKey, signer: own };
  }
  const file = account === "front" ? ProvisionerFile.FrontSigner : ProvisionerFile.StoreSigner;
  return {
    accountKey: keptKey(join(paths.spaceTrust(name), `${account}.nk`), "account").publicKey,
    signer: keptKey(join(paths.provisioner(name), file), "account"),
  };
}

/** A daemon's own credential in one account, from the matrix. */
export async function daemonCredential<Name extends BuiltProfile>(
  space: Pick<TestSpace, "state">,
  profile: Name,
  account: Account,
  scope: ScopeOf<Name>,
): Promise<Credential> {
  const user = newKey("user");
  const { jwt } = await mintUser({
    profile,
    scope,
    account,
    ...accountKeys(space, scope.space, account),
    userKey: user.publicKey,
    expires: Math.floor(Date.now() / 1000) + 600,
    limits: { subs: -1, payload: -1 },
  });
  return { view: readUserJwt(jwt), jwt, sign: user.sign };
}

/** A holder nobody knows, for daemons that are minted here. */
export function freshHolder(owner: string, actor: string) {
  return {
    holder: { principal: principal(owner, actor), uid: drawLifecycleUid(randomBytes) },
    inboxNonce: drawNonce(randomBytes),
  };
}

/**
 * A connection in front that may do anything there: it plays what no profile can, such as a publisher
 * on other people's reply subjects, so that a refusal is seen at the receiver.
 */
export async function frontRoot(space: TestSpace, name: string): Promise<NatsConnection> {
  const user = newKey("user");
  const { accountKey, signer } = accountKeys(space, name, "front");
  const jwt = await encodeUser("root", user.publicKey, signer.pair, { issuer_account: accountKey });
  const fresh = freshHolder(`u_${"r".repeat(26)}`, "root");
  return space.connect({
    view: { ...fresh.holder, inboxNonce: fresh.inboxNonce } as unknown as Credential["view"],
    jwt,
    sign: user.sign,
  });
}
