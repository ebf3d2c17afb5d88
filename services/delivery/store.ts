/**
 * The delivery service's two credentials of the store account, each a user of its own, signed by its own key there:
 * what it serves from, and what it writes the membership feed with.
 */
import { randomBytes } from "node:crypto";
import { type OwnCredential, ownCredential } from "../../shared/broker/own-credential.ts";
import type { ServeScope } from "../../shared/grants/host-profiles.ts";
import { Account } from "../../shared/grants/row.ts";
import { drawNonce } from "../../shared/protocol/base/principals.ts";
import type { SigningKey } from "../../shared/trust/keys.ts";
import type { DeliveryKeys } from "./keys.ts";

export type StoreOptions = {
  readonly keys: Pick<DeliveryKeys, "file" | "storeSigner">;
  readonly scope: Omit<ServeScope, "inboxNonce">;
  /** Its row is written with the front user's. */
  readonly user: SigningKey;
  readonly lifeSeconds: number;
  readonly nowSeconds: () => number;
};

export const storeCredential = (options: StoreOptions): Promise<OwnCredential> => minted("delivery", options);

export const feedCredential = (options: StoreOptions): Promise<OwnCredential> => minted("membership-rw", options);

const minted = (
  profile: "delivery" | "membership-rw",
  { keys, scope, user, lifeSeconds, nowSeconds }: StoreOptions,
): Promise<OwnCredential> =>
  ownCredential({
    profile,
    user,
    account: Account.Store,
    accountKey: keys.file.store,
    signer: keys.storeSigner,
    lifeSeconds,
    nowSeconds,
    scope: { ...scope, inboxNonce: drawNonce(randomBytes) },
  });
