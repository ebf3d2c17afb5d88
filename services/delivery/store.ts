/** The delivery service's credential of the store account: its own user, signed by its own key there. */
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

export const storeCredential = ({ keys, scope, user, lifeSeconds, nowSeconds }: StoreOptions): Promise<OwnCredential> =>
  ownCredential({
    profile: "delivery",
    user,
    account: Account.Store,
    accountKey: keys.file.store,
    signer: keys.storeSigner,
    lifeSeconds,
    nowSeconds,
    scope: { ...scope, inboxNonce: drawNonce(randomBytes) },
  });
