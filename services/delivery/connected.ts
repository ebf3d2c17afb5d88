/**
 * Who this process is in a space whose broker has accounts, and what it is connected as: rows for its credentials, the
 * instance that it takes, and its connections in front, in the store and in the system account; in the order in which
 * each needs the one before. Reads have connections of their own, so that no flood of them takes the others along.
 *
 * Invariants
 * 1. The credentials of front and store have their rows before anything is done with them. Rows of the system-account
 *    credentials are written by who writes the ledger, before that one answers us (`issued.json`).
 * 2. A connection in front speaks as the instance that this process holds the lease of: none is opened before.
 */
import type { Connection, ConnectionStatus } from "../../shared/broker/connect.ts";
import { type Instance, takeInstance } from "../../shared/broker/instance.ts";
import type { OwnCredential } from "../../shared/broker/own-credential.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { Account } from "../../shared/grants/row.ts";
import { type Holder, daemonPrincipal } from "../../shared/ledger/self.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { createCredentials } from "./credentials.ts";
import { type DeliveryKeys, readDeliveryKeys } from "./keys.ts";
import type { Run } from "./liveness/plane.ts";
import { type Dial, type OpenSpaceOptions, type Running, dialOptions, nowSeconds } from "./open-options.ts";
import { type RowsOptions, beginRows, enterRows } from "./rows.ts";

export type Connected = {
  readonly keys: DeliveryKeys;
  readonly me: Holder;
  readonly run: Run;
  readonly instance: Pick<Instance, "peers" | "lost">;
  readonly front: Connection;
  readonly store: Connection;
  /** In front and in the store, for what members read. */
  readonly reads: { readonly front: Connection; readonly store: Connection };
  /** In the system account, as the evictor. */
  readonly system: Connection;
  /** For the membership feed, which dials by itself. */
  readonly feedWriter: OwnCredential;
  /** Makes the credentials anew that are past half of their life. */
  readonly renew: () => Promise<void>;
};

/** `onFront`: what becomes of the connection in front. */
export async function connect(
  options: OpenSpaceOptions,
  dial: Dial,
  running: Running,
  onFront: (status: ConnectionStatus) => void,
): Promise<Connected> {
  const { space, lifeSeconds = Life.Host } = options;
  const keys = readDeliveryKeys(options.keysPattern, space);
  const me = { principal: daemonPrincipal(keys.ownerSecret, space, "delivery"), uid: keys.uid };
  const users = { front: options.users.of(space, "front"), store: options.users.of(space, "store") };
  const rows = rowsOptions(options, keys, me, users);
  const expires = nowSeconds() + lifeSeconds;
  const epoch = await options.users.entered(space, () => beginRows(rows, expires));
  const credentials = createCredentials({ keys, users, lifeSeconds, nowSeconds });
  // Which instance it is stands in the store; there no row of a credential names one.
  const scope = { space, holder: me, instanceId: me.uid, epoch };
  const store = await dial("store", await credentials.of("delivery", Account.Store, scope));
  const principal = dotForm(me.principal);
  const instance = await takeInstance(
    store.nc,
    { space, service: EndpointName.Delivery, uid: me.uid },
    { holder: `${me.uid}.${epoch}`, principal },
  );
  running.push(instance.stop);
  const own = { ...scope, instanceId: instance.id };
  const front = await dial("front", await credentials.of("delivery", Account.Front, own), onFront);
  const readFront = await dial("reads", await credentials.of("delivery-reader", Account.Front, own));
  const readStore = await dial("reads-store", await credentials.of("delivery-reader", Account.Store, own));
  const system = await dial("system", keys.evictor);
  return {
    keys,
    me,
    run: { uid: me.uid, epoch, principal, instanceId: instance.id },
    instance,
    front,
    store,
    reads: { front: readFront, store: readStore },
    system,
    feedWriter: await credentials.of("membership-rw", Account.Store, scope),
    renew: async () => {
      for (const made of credentials.made) {
        if (made.expires() - nowSeconds() > lifeSeconds / 2) continue;
        await made.renew((next) => enterRows(rows, next));
      }
    },
  };
}

function rowsOptions(
  options: OpenSpaceOptions,
  keys: DeliveryKeys,
  me: Holder,
  { front: user, store: storeUser }: { readonly [side in "front" | "store"]: RowsOptions["user"] },
): RowsOptions {
  // Without its status: who asks hears how it went, and nobody would clear a failure.
  const { onStatus: _, ...oneShot } = dialOptions(options, "rows");
  const dial: RowsOptions["dial"] = { ...oneShot, reconnect: { kind: "bounded", attempts: 3 } };
  return { ...options, keys, me, user, storeUser, nowSeconds, dial };
}
