/**
 * What this process itself connects with: which profile, in which account, signed by which of its keys.
 *
 * Minted here and entered nowhere: whoever dials with one sees to its row first (`open-space.ts`).
 */
import { randomBytes } from "node:crypto";
import { type OwnUsers, ownCredential } from "../../shared/broker/own-credential.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { Account } from "../../shared/grants/row.ts";
import { type Holder, daemonPrincipal } from "../../shared/ledger/self.ts";
import type { ScannedStore } from "../../shared/protocol/base/names.ts";
import { drawNonce } from "../../shared/protocol/base/principals.ts";
import { newKey } from "../../shared/trust/keys.ts";
import type { AuthKeys } from "./keys.ts";

export type OwnOptions = {
  readonly space: string;
  /** Keys that stay the same over openings of a space, and with them the rows. */
  readonly users: OwnUsers;
  /** Life of a credential, in seconds. */
  readonly lifeSeconds?: number;
};

/** The credentials of this process, each minted when it is first needed. */
export function ownCredentials(options: OwnOptions, keys: AuthKeys, me: Holder) {
  const { space, users, lifeSeconds = Life.Host } = options;
  const { file } = keys;
  const ledger = { principal: daemonPrincipal(keys.ownerSecret, space, "auth_ledger"), uid: keys.ledgerUid };
  const life = { nowSeconds: () => Math.floor(Date.now() / 1000), lifeSeconds };
  const inbox = () => ({ space, inboxNonce: drawNonce(randomBytes) });
  // One key, and so one row, however many lifecycles end.
  const cleanerUser = newKey("user");
  const inStore = { ...life, account: Account.Store, accountKey: file.store, signer: keys.storeSigner };
  return {
    store: () => {
      const user = users.of(space, "store");
      return ownCredential({ ...inStore, user, profile: "auth-ledger", scope: { ...inbox(), holder: ledger } });
    },
    /** One of the plane's two connections, which hold it and enumerate the ledger. */
    scanner: (scans: ScannedStore) => {
      const user = users.of(space, `scan-${scans}`);
      return ownCredential({
        ...inStore,
        user,
        profile: "ledger-scanner",
        scope: { ...inbox(), holder: ledger, scans },
      });
    },
    /** As whoever may keep the plane, or as an edge, which only asks it. */
    front: (epoch: number, profile: "auth-server" | "auth-edge", which: "front" | "serving" = "front") =>
      ownCredential({
        ...life,
        profile,
        user: users.of(space, which),
        account: Account.Front,
        accountKey: file.front,
        signer: keys.frontSigner,
        scope: { ...inbox(), holder: me, instanceId: me.uid, epoch },
      }),
    callout: () =>
      ownCredential({
        ...life,
        profile: "auth-callout",
        account: Account.Auth,
        accountKey: file.auth,
        signer: keys.authSigner,
        user: keys.calloutUser,
        scope: { ...inbox(), holder: me },
      }),
    /** For one start: it brings the ledger's store of an earlier version up to date, and may do nothing else. */
    upgrader: () =>
      ownCredential({
        ...inStore,
        lifeSeconds: Life.OneShot,
        profile: "store-upgrader",
        scope: { ...inbox(), holder: ledger },
      }),
    /** For one clean-up: a store connection that can remove one lifecycle's leftovers and nothing else. */
    cleaner: (target: Holder) => {
      const scope = { ...inbox(), holder: ledger, target };
      return ownCredential({
        ...inStore,
        lifeSeconds: Life.OneShot,
        profile: "deprovisioner",
        scope,
        user: cleanerUser,
      });
    },
  };
}
