/**
 * Trust of a space that people sign in to: the auth service's own keys and the sentinel.
 *
 * Invariants
 * 1. The auth service gets signing keys of its own, never an identity key and none of the provisioner's.
 * 2. Everything is drawn once; a second run finds it and changes nothing, and refuses what is not whole.
 */
import { existsSync, lstatSync, readlinkSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { SpaceAccountOptions } from "../../shared/trust/accounts.ts";
import { AuthFile, type AuthSpaceFile, bearerIssuer } from "../../shared/trust/auth-folder.ts";
import { bearerSigner, newBearerJwk } from "../../shared/trust/bearer.ts";
import { kept, keptAs, keptKey, keptUid, trustPaths, writePrivate } from "../../shared/trust/folder.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { assertSentinelOf, sentinelUser } from "../../shared/trust/sentinel.ts";
import { curveKeyFromSeed, newCurveKey } from "../../shared/trust/xkey.ts";
import type { SpaceTrust } from "./space-trust.ts";

/** What the accounts must say so that the auth service can do its work. */
export type AuthTrust = Required<Pick<SpaceAccountOptions, "callout" | "moreSigners">>;

/** Is this a space that people sign in to? */
export function hasAuthTrust(state: string, space: string): boolean {
  return existsSync(join(trustPaths(state).auth(space), AuthFile.AuthSigner));
}

/** Reads or creates the auth service's keys. */
export function ensureAuthTrust(state: string, trust: SpaceTrust): AuthTrust {
  const folder = trustPaths(state).auth(trust.space);
  const own = (name: string): string => join(folder, name);
  const authSigner = keptKey(own(AuthFile.AuthSigner), "account");
  const front = keptKey(own(AuthFile.FrontSigner), "account");
  const store = keptKey(own(AuthFile.StoreSigner), "account");
  const user = keptKey(own(AuthFile.CalloutUser), "user");
  const curve = kept(own(AuthFile.Curve), () => newCurveKey().seedText(), curveKeyFromSeed);
  kept(own(AuthFile.Bearer), newBearerJwk, bearerSigner);
  keptAs(own(AuthFile.OwnerSecret), trust.ownerSecret.toString("hex"));
  for (const file of [AuthFile.Uid, AuthFile.LedgerUid]) keptUid(own(file));
  return {
    callout: { users: [user.publicKey], xkey: curve.publicKey, signers: [authSigner.publicKey] },
    moreSigners: { front: [front.publicKey], store: [store.publicKey] },
  };
}

/** The last step: the sentinel for clients, and the file that makes the folder whole. */
export function publishAuth(state: string, { space, keys }: SpaceTrust, nowSeconds: number): void {
  const paths = trustPaths(state);
  const signer = keptKey(join(paths.auth(space), AuthFile.AuthSigner), "account");
  const account = keys.auth.publicKey;
  const sentinel = kept(
    paths.sentinel(space),
    () => sentinelUser({ account, signer, userKey: newKey("user").publicKey, nowSeconds }),
    (text) => {
      assertSentinelOf(account, text);
      return text;
    },
  );
  const beside = sentinelOfDesk(state, space);
  if (beside !== undefined) writePrivate(beside, sentinel);
  const file: AuthSpaceFile = {
    v: 1,
    space,
    auth: account,
    front: keys.front.publicKey,
    store: keys.store.publicKey,
    issuer: bearerIssuer(space, account),
  };
  keptAs(join(paths.auth(space), AuthFile.Space), JSON.stringify(file));
}

/** In containers the operator's folder is a link to the desk's: whoever has the credential there needs the sentinel beside it. */
function sentinelOfDesk(state: string, space: string): string | undefined {
  const { operatorCreds, sentinel } = trustPaths(state);
  const operator = dirname(operatorCreds(space));
  if (lstatSync(operator, { throwIfNoEntry: false })?.isSymbolicLink() !== true) return undefined;
  return join(dirname(readlinkSync(operator)), basename(sentinel(space)));
}
