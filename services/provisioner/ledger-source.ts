/**
 * Who writes the ledger of a space, and what else follows from that: this daemon where credentials are
 * minted, the auth service where people sign in (decision H14).
 */
import { randomBytes } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import { type OwnCredential, ownCredential } from "../../shared/broker/own-credential.ts";
import { leaderLast, rowPage } from "../../shared/broker/reads.ts";
import { connectionsOver } from "../../shared/broker/still-connected.ts";
import { createWriter } from "../../shared/broker/write.ts";
import type { Call } from "../../shared/client/caller.ts";
import { evictedThrough } from "../../shared/client/evictions.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { Account } from "../../shared/grants/row.ts";
import { brokerLedgerStore } from "../../shared/ledger/broker-store.ts";
import { type PassedOver, createIssued } from "../../shared/ledger/issued.ts";
import { parseJson } from "../../shared/protocol/base/json.ts";
import { type Holder, daemonPrincipal } from "../../shared/ledger/self.ts";
import type { GatePage } from "../../shared/ledger/serving-held.ts";
import type { ServingLedger } from "../../shared/ledger/serving-type.ts";
import { servingLedger } from "../../shared/ledger/serving.ts";
import { expiryBarrier } from "../../shared/ledger/serving-barrier.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { badRequest } from "../../shared/protocol/base/errors.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { endpointKey } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import type { GateReader } from "./context.ts";
import { DERIVED_OWNER_TOKEN } from "../../shared/protocol/base/grammar.ts";
import { drawNonce } from "../../shared/protocol/base/principals.ts";
import type { SigningKey } from "../../shared/trust/keys.ts";
import { staticOwner } from "../../shared/trust/owner.ts";
import { type DaemonLedger, askedLedger, ownLedger } from "./daemon-ledger.ts";
import { type ProvisionerKeys, readIssued } from "./keys.ts";
import { type Dial, type OpenSpaceOptions, dialOptions, nowSeconds } from "./open-options.ts";
import { askedServing } from "./serving/asked.ts";

export type LedgerSource = {
  readonly options: OpenSpaceOptions;
  readonly keys: ProvisionerKeys;
  readonly me: Holder;
  readonly frontUser: SigningKey;
  readonly dial: Dial;
};

type InFront = { readonly front: () => NatsConnection; readonly calls: () => Call };

export type Rows = {
  readonly ledger: DaemonLedger;
  /** Credentials that this way of writing needs itself. */
  readonly owned: readonly OwnCredential[];
  /** The ledger to mint from, where this daemon mints. */
  readonly store?: LedgerStore;
  /** With `store`. */
  readonly gate?: GateReader;
  readonly enterIssued: () => Promise<PassedOver[]>;
  /** Its half of serving somebody's endpoint; `front` sees who is connected. */
  readonly serving: (front: InFront) => ServingLedger;
  readonly ownerOf: (text: string) => string;
};

/** People sign in: the auth service writes the rows, also those of what the trust program has issued. */
export function rowsFromAuth({ options, keys, me, frontUser }: LedgerSource): Rows {
  const { space, signal, waiting } = options;
  const { onStatus: _, ...dialed } = dialOptions(options, "registrar");
  const dial = { ...dialed, reconnect: { kind: "bounded", attempts: 3 } } as const;
  const asking = { space, keys, me, user: frontUser, dial, nowSeconds };
  return {
    ledger: askedLedger({ ...asking, signal, waiting }),
    owned: [],
    enterIssued: () => Promise.resolve([]),
    serving: () => askedServing(asking),
    ownerOf: derivedOwner,
  };
}

/** Static credentials: this daemon writes the rows, over a credential of the ledger's own. */
export async function rowsOfOwn({ options, keys, me, dial }: LedgerSource): Promise<Rows> {
  const { space, lifeSeconds = Life.Host } = options;
  const holder = { principal: daemonPrincipal(keys.ownerSecret, space, "ledger"), uid: keys.ledgerUid };
  const own = await ownCredential({
    profile: "ledger",
    user: options.users.of(space, "ledger"),
    scope: { space, holder, inboxNonce: drawNonce(randomBytes) },
    account: Account.Store,
    accountKey: keys.file.store,
    signer: keys.storeSigner,
    lifeSeconds,
    nowSeconds,
  });
  const { nc } = await dial("ledger", own);
  const { auth } = spaceNames(space).bucket;
  const ledger = brokerLedgerStore(nc, createWriter({ nc }), space);
  const enter = createIssued(ledger, nowSeconds);
  return {
    ledger: ownLedger(ledger, me, holder),
    owned: [own],
    store: ledger,
    gate: (uid) => leaderLast(nc, bucketStream(auth), kvKey(auth, ledgerKey.gate(uid))),
    enterIssued: () => enter(() => readIssued(options.keysPattern, space)),
    serving: ({ front, calls }) =>
      servingLedger({
        ledger,
        space,
        accountKey: keys.file.front,
        barrier: expiryBarrier({ connectionsOf: evictedThrough(calls, connectionsOver(front)), now: Date.now }),
        gatePage: (cursor) => gatePage(nc, auth, cursor),
        now: Date.now,
        random: randomBytes,
      }),
    ownerOf: (text) => staticOwner(keys.ownerSecret, text),
  };
}

const GATES = 500;

async function gatePage(nc: NatsConnection, bucket: string, cursor: number | undefined): Promise<GatePage> {
  const from = cursor === undefined ? {} : { cursor };
  const { rows, ...rest } = await rowPage(nc, bucket, {
    filter: endpointKey.allGates,
    limit: GATES,
    via: "leader",
    ...from,
  });
  return { ...rest, rows: rows.map(({ data, ...row }) => ({ ...row, value: parseJson(data) })) };
}

/** Where people sign in, an owner is the token that the identity provider's word comes to. */
function derivedOwner(text: string): string {
  if (DERIVED_OWNER_TOKEN.test(text)) return text;
  throw badRequest(`${JSON.stringify(text.slice(0, 80))} is no owner token`, "take the one that cotal whoami shows");
}
