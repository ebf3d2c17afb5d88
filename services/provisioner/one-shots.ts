/** Store connections that live for one command, each under a credential for exactly that. */
import { randomBytes } from "node:crypto";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { type OwnCredential, ownCredential } from "../../shared/broker/own-credential.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { Account } from "../../shared/grants/row.ts";
import type { Holder } from "../../shared/ledger/self.ts";
import { createTurns } from "../../shared/ledger/turns.ts";
import { drawNonce } from "../../shared/protocol/base/principals.ts";
import { newKey } from "../../shared/trust/keys.ts";
import type { Authority } from "./context.ts";
import type { DaemonLedger } from "./daemon-ledger.ts";
import type { ProvisionerKeys } from "./keys.ts";
import { type OpenSpaceOptions, dialOptions, identityOf, nowSeconds } from "./open-options.ts";

export type OneShots = {
  readonly cleaner: Authority["cleaner"];
  readonly purger: () => Promise<Connection>;
  readonly upgrader: () => Promise<Connection>;
};

export function oneShots(options: OpenSpaceOptions, keys: ProvisionerKeys, me: Holder, ledger: DaemonLedger): OneShots {
  const scope = () => ({ space: options.space, holder: me, inboxNonce: drawNonce(randomBytes) });
  const common = {
    account: Account.Store,
    accountKey: keys.file.store,
    signer: keys.storeSigner,
    lifeSeconds: Life.OneShot,
    nowSeconds,
  } as const;
  const inTurn = createTurns();
  const dial = async (name: string, own: OwnCredential): Promise<Connection> => {
    // Many ends at once would only take each other's compare-and-set.
    await inTurn(name, () => ledger.enter([{ own, expires: own.expires() }]));
    // Without its status: who asked hears how it went, and nobody would clear a failure.
    const { onStatus: _, ...dialed } = { ...dialOptions(options, name), ...identityOf(own) };
    return openConnection({ ...dialed, reconnect: { kind: "bounded", attempts: 3 } });
  };
  // A key for each kind, and so one row for each, however often somebody asks.
  const [cleaner, purger] = [newKey("user"), newKey("user")];
  return {
    cleaner: async (target) => {
      const own = { ...common, user: cleaner, profile: "deprovisioner", scope: { ...scope(), target } } as const;
      return dial("cleaner", await ownCredential(own));
    },
    purger: async () => {
      const own = { ...common, user: purger, profile: "history-purger", scope: scope() } as const;
      return dial("purger", await ownCredential(own));
    },
    upgrader: async () =>
      dial("upgrader", await ownCredential({ ...common, profile: "store-upgrader", scope: scope() })),
  };
}
