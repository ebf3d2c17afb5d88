/**
 * The delivery service's own credentials: two users, one in front and one in the store, each with a row in the
 * ledger; and of each user a JWT for every connection, which may do what that connection is for and no more.
 */
import { randomBytes } from "node:crypto";
import { type OwnCredential, ownCredential } from "../../shared/broker/own-credential.ts";
import type { ServeScope } from "../../shared/grants/host-profiles.ts";
import { Account } from "../../shared/grants/row.ts";
import { drawNonce } from "../../shared/protocol/base/principals.ts";
import type { SigningKey } from "../../shared/trust/keys.ts";
import type { DeliveryKeys } from "./keys.ts";

export type Credentials = {
  readonly of: (
    profile: "delivery" | "delivery-reader",
    account: typeof Account.Front | typeof Account.Store,
    scope: Omit<ServeScope, "inboxNonce">,
  ) => Promise<OwnCredential>;
  /** All that were made. */
  readonly made: readonly OwnCredential[];
};

export type CredentialsOptions = {
  readonly keys: Pick<DeliveryKeys, "file" | "frontSigner" | "storeSigner">;
  readonly users: { readonly front: SigningKey; readonly store: SigningKey };
  readonly lifeSeconds: number;
  readonly nowSeconds: () => number;
};

export function createCredentials({ keys, users, lifeSeconds, nowSeconds }: CredentialsOptions): Credentials {
  const sides = {
    [Account.Front]: { user: users.front, accountKey: keys.file.front, signer: keys.frontSigner },
    [Account.Store]: { user: users.store, accountKey: keys.file.store, signer: keys.storeSigner },
  };
  const made: OwnCredential[] = [];
  return {
    made,
    of: async (profile, account, scope) => {
      const own = await ownCredential({
        profile,
        account,
        ...sides[account],
        lifeSeconds,
        nowSeconds,
        scope: { ...scope, inboxNonce: drawNonce(randomBytes) },
      });
      made.push(own);
      return own;
    },
  };
}
