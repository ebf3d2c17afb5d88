/**
 * Taking a space up: connections, streams, ledger, settings, in the order in which each needs the
 * one before; and a serving endpoint at the end.
 *
 * Invariants
 * 1. A credential of the provisioner is entered in the ledger before it serves with it
 *    (`daemon-ledger.ts`), and so is what the trust program issued before the ledger existed (§13.1).
 * 2. Whatever was opened is given back, also when a later step fails.
 */
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import type { ConnectOptions, Connection, ConnectionStatus } from "../../shared/broker/connect.ts";
import { openConnection } from "../../shared/broker/connect.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { DESK_COMMANDS } from "../../shared/grants/commands.ts";
import { Account } from "../../shared/grants/row.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { brokerLedgerStore } from "../../shared/ledger/broker-store.ts";
import { type ServingLedger, servingLedger } from "../../shared/ledger/serving.ts";
import { expiryBarrier } from "../../shared/ledger/serving-barrier.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { badRequest } from "../../shared/protocol/base/errors.ts";
import { DERIVED_OWNER_TOKEN } from "../../shared/protocol/base/grammar.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import type { SpaceHooks } from "../../shared/daemon/spaces.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { OPEN_OWNER, dotForm, drawLifecycleUid, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { ownContract } from "../../shared/protocol/endpoint/own-contracts.ts";
import { type ServedEndpoint, type ServedEvent, serveEndpoint } from "../../shared/serve/serve.ts";
import { openAcl, storedAcl } from "./acl.ts";
import { provisionerHandlers } from "./commands.ts";
import type { Authority, SpaceContext } from "./context.ts";
import type { Call } from "../../shared/client/caller.ts";
import { daemonCalls, evictedThrough } from "../../shared/client/evictions.ts";
import { connectionsOver } from "../../shared/broker/still-connected.ts";
import { type OwnCredential, type OwnUsers, ownCredential } from "../../shared/broker/own-credential.ts";
import { type DaemonLedger, askedLedger, ownLedger } from "./daemon-ledger.ts";
import { type ProvisionerKeys, readIssued, readKeys } from "./keys.ts";
import { type PassedOver, createIssued } from "../../shared/ledger/issued.ts";
import { type Holder, daemonPrincipal } from "../../shared/ledger/self.ts";
import { createTurns } from "../../shared/ledger/turns.ts";
import { type SigningKey, newKey } from "../../shared/trust/keys.ts";
import { type RecordWriterHooks, startRecordWriter } from "./record-writer.ts";
import { askedServing } from "./serving/asked.ts";
import { staticOwner } from "../../shared/trust/owner.ts";
import { registerInstance, writeStatus } from "./service-records.ts";
import { setUpSettings, setUpStreams } from "./setup.ts";
import { type Drift, verifyStreams } from "../../shared/broker/ensure.ts";
import { spaceStreams } from "../../shared/broker/resources.ts";
import { isUpgrade, upgradeStores } from "../../shared/broker/upgrade.ts";

export type OpenSpaceOptions = RecordWriterHooks & {
  readonly space: string;
  readonly servers: readonly string[];
  readonly mode: "accounts" | "open";
  readonly keysPattern: string;
  readonly replicas: 1 | 3;
  readonly concurrency: number;
  readonly perCaller: number;
  readonly onServed: (event: ServedEvent) => void;
  readonly onStatus: (connection: string, status: ConnectionStatus) => void;
  readonly waiting: SpaceHooks["waiting"];
  /** Ends the wait for a broker that is not there. */
  readonly signal: AbortSignal;
  readonly users: OwnUsers;
  /** Life of the credentials that others serve with, in seconds. */
  readonly serveSeconds?: number;
  /** Life of this process's own credentials, in seconds. */
  readonly lifeSeconds?: number;
};

export type OpenSpace = {
  readonly principal: string;
  readonly epoch: number;
  readonly created: readonly string[];
  readonly drift: readonly Drift[];
  /** What was turned on in a store of an earlier version. */
  readonly upgraded: readonly Drift[];
  /** Resolves with the cause when one of the connections has ended for good. */
  readonly broken: Promise<unknown>;
  /** Credentials of the trust program that got no row, and why. */
  readonly passedOver: readonly PassedOver[];
  /** Renews the credentials of this process that are past half of their life, and enters new ones of the trust program. */
  readonly renew: () => Promise<void>;
  readonly stopIntake: () => Promise<void>;
  readonly close: () => Promise<void>;
};

const isDesk = (command: string): boolean => DESK_COMMANDS.some((name) => name === command);

/** A stop waits no longer for the word that it stops. */
const FAREWELL_MS = 1_000;

const nowSeconds = (): number => Math.floor(Date.now() / 1000);

/** Takes one space up and serves it. Throws a `CotalError`; nothing stays open then. */
export async function openSpace(options: OpenSpaceOptions): Promise<OpenSpace> {
  const opened: Connection[] = [];
  const dial = async (name: string, own: Dialed): Promise<Connection> => {
    const connection = await openConnection({ ...dialOptions(options, name), ...own });
    opened.push(connection);
    options.onStatus(name, { type: "up", server: "", version: connection.version });
    return connection;
  };
  const close = async (): Promise<void> => {
    await Promise.all(opened.splice(0).map((connection) => connection.drain()));
  };
  try {
    const served = options.mode === "open" ? await openUnguarded(options, dial) : await openGuarded(options, dial);
    const broken = Promise.race(opened.map(({ closed }) => closed));
    return { ...served, broken, close };
  } catch (error) {
    await close();
    throw error;
  }
}

type Dialed = Pick<ConnectOptions, "authenticator" | "inboxPrefix">;
type Dial = (name: string, own: Dialed) => Promise<Connection>;
type Served = Omit<OpenSpace, "broken" | "close">;

const identityOf = ({ authenticator, inboxPrefix }: OwnCredential) => ({ authenticator, inboxPrefix });

function dialOptions(options: OpenSpaceOptions, name: string): Omit<ConnectOptions, keyof Dialed> {
  return {
    servers: options.servers,
    name: `provisioner ${options.space} ${name}`,
    reconnect: { kind: "endless", capMs: 5000 },
    signal: options.signal,
    onStatus: (status) => options.onStatus(name, status),
  };
}

/** A space whose broker has accounts: the whole of §13.1's order. */
async function openGuarded(options: OpenSpaceOptions, dial: Dial): Promise<Served> {
  const { space, replicas, lifeSeconds = Life.Host } = options;
  const keys = readKeys(options.keysPattern, space);
  const me = { principal: daemonPrincipal(keys.ownerSecret, space, "provisioner"), uid: keys.uid };
  const life = { nowSeconds, lifeSeconds };

  const storeOwn = await ownCredential({
    ...life,
    profile: "provisioner",
    user: options.users.of(space, "store"),
    account: Account.Store,
    accountKey: keys.file.store,
    signer: keys.storeSigner,
    // The store side holds no reply rail, so no epoch matters there yet.
    scope: { space, holder: me, inboxNonce: drawNonce(randomBytes), instanceId: keys.uid, epoch: 0 },
  });
  const store = await dial("store", storeOwn);
  const streams = await setUpStreams(store.nc, space, replicas);
  const writer = createWriter({ nc: store.nc });
  // Before anybody is asked for rows: the auth service reads the settings when it starts.
  const settings = await setUpSettings(store.nc, writer, {
    space,
    auth: keys.file.auth,
    replicas,
    principal: dotForm(me.principal),
  });

  const frontUser = options.users.of(space, "front");
  const source: LedgerSource = { options, keys, me, frontUser, dial };
  const rows = keys.file.auth === "user" ? rowsFromAuth(source) : await rowsOfOwn(source);
  const frontExpires = nowSeconds() + lifeSeconds;
  const epoch = await options.users.entered(space, () =>
    rows.ledger.begin([
      ...[storeOwn, ...rows.owned].map((own) => ({ own, expires: own.expires() })),
      { own: { holder: me, userKey: frontUser.publicKey }, expires: frontExpires },
    ]),
  );
  const shots = oneShots(options, keys, me, rows.ledger);
  const shape = await broughtUpToDate(streams.drift, { options, store, upgrader: shots.upgrader, keys });
  const inFront = async (profile: "provisioner" | "provisioner-desk"): Promise<OwnCredential> =>
    ownCredential({
      ...life,
      profile,
      account: Account.Front,
      accountKey: keys.file.front,
      signer: keys.frontSigner,
      user: frontUser,
      scope: { space, holder: me, inboxNonce: drawNonce(randomBytes), instanceId: me.uid, epoch },
    });
  // One user, one row, and two JWTs of it.
  const [frontOwn, deskOwn] = [await inFront("provisioner"), await inFront("provisioner-desk")];
  const passedOver = await rows.enterIssued();
  const [front, desk] = await Promise.all([dial("front", frontOwn), dial("desk", deskOwn)]);
  const calls = daemonCalls(front, space, me);
  const context: SpaceContext = {
    ...parts(space, replicas),
    store: store.nc,
    writer,
    acl: storedAcl(store.nc, space),
    settings,
    purger: shots.purger,
    authority: rows.store === undefined ? undefined : { keys, ledger: rows.store, cleaner: shots.cleaner },
    serving: {
      ledger: rows.serving({ front: () => front.nc, calls: () => calls }),
      accountKey: keys.file.front,
      signer: keys.frontSigner,
      lifeSeconds: options.serveSeconds ?? Life.Service,
      ownerOf: rows.ownerOf,
    },
    daemon: (name) => daemonPrincipal(keys.ownerSecret, space, name),
  };
  return {
    ...(await serve(options, { front, desk }, context, me, epoch)),
    principal: dotForm(me.principal),
    created: streams.created,
    ...shape,
    passedOver,
    renew: async () => {
      for (const own of [storeOwn, frontOwn, deskOwn, ...rows.owned]) {
        if (own.expires() - nowSeconds() > lifeSeconds / 2) continue;
        await own.renew((expires) => rows.ledger.enter([{ own, expires }]));
      }
      await rows.enterIssued();
    },
  };
}

type Upgrading = {
  readonly options: OpenSpaceOptions;
  readonly store: Connection;
  readonly upgrader: OneShots["upgrader"];
  readonly keys: ProvisionerKeys;
};

/**
 * What an earlier version left off is turned on, and the shape looked at again. Where people sign in the
 * auth service has done it before it let this daemon in: its ledger is the store that it is about.
 */
async function broughtUpToDate(
  drift: readonly Drift[],
  { options: { space, replicas }, store, upgrader, keys }: Upgrading,
): Promise<Pick<OpenSpace, "drift" | "upgraded">> {
  const steps = drift.filter((one) => isUpgrade(space, one));
  if (steps.length === 0) return { drift, upgraded: [] };
  const isMine = keys.file.auth !== "user";
  if (isMine) {
    const upgrading = await upgrader();
    try {
      await upgradeStores(upgrading.nc, space, steps);
    } finally {
      await upgrading.drain();
    }
  }
  return { drift: await verifyStreams(store.nc, spaceStreams(space, { replicas })), upgraded: isMine ? steps : [] };
}

type LedgerSource = {
  readonly options: OpenSpaceOptions;
  readonly keys: ProvisionerKeys;
  readonly me: Holder;
  readonly frontUser: SigningKey;
  readonly dial: Dial;
};

type InFront = { readonly front: () => NatsConnection; readonly calls: () => Call };

type Rows = {
  readonly ledger: DaemonLedger;
  /** Credentials that this way of writing needs itself. */
  readonly owned: readonly OwnCredential[];
  /** The ledger to mint from, where this daemon mints. */
  readonly store?: LedgerStore;
  readonly enterIssued: () => Promise<PassedOver[]>;
  /** Its half of serving somebody's endpoint; `front` sees who is connected. */
  readonly serving: (front: InFront) => ServingLedger;
  readonly ownerOf: (text: string) => string;
};

/** People sign in: the auth service writes the rows, also those of what the trust program has issued. */
function rowsFromAuth({ options, keys, me, frontUser }: LedgerSource): Rows {
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
async function rowsOfOwn({ options, keys, me, dial }: LedgerSource): Promise<Rows> {
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
  const ledger = brokerLedgerStore(nc, createWriter({ nc }), space);
  const enter = createIssued(ledger, nowSeconds);
  return {
    ledger: ownLedger(ledger, me, holder),
    owned: [own],
    store: ledger,
    enterIssued: () => enter(() => readIssued(options.keysPattern, space)),
    serving: ({ front, calls }) =>
      servingLedger({
        ledger,
        space,
        accountKey: keys.file.front,
        barrier: expiryBarrier({ connectionsOf: evictedThrough(calls, connectionsOver(front)), now: Date.now }),
        now: Date.now,
        random: randomBytes,
      }),
    ownerOf: (text) => staticOwner(keys.ownerSecret, text),
  };
}

/** Where people sign in, an owner is the token that the identity provider's word comes to. */
function derivedOwner(text: string): string {
  if (DERIVED_OWNER_TOKEN.test(text)) return text;
  throw badRequest(`${JSON.stringify(text.slice(0, 80))} is no owner token`, "take the one that cotal whoami shows");
}

/** An open space: one connection, nobody's identity proved, no ledger (decision H57). */
async function openUnguarded(options: OpenSpaceOptions, dial: Dial): Promise<Served> {
  const { space, replicas } = options;
  const uid = drawLifecycleUid(randomBytes);
  const connection = await dial("front", { inboxPrefix: inboxPrefix(uid, drawNonce(randomBytes)) });
  const writer = createWriter({ nc: connection.nc });
  const streams = await setUpStreams(connection.nc, space, replicas);
  const me: Holder = { principal: principal(OPEN_OWNER, "provisioner"), uid };
  const name = dotForm(me.principal);
  const settings = await setUpSettings(connection.nc, writer, { space, auth: "open", replicas, principal: name });
  const context: SpaceContext = {
    ...parts(space, replicas),
    store: connection.nc,
    writer,
    acl: openAcl,
    settings,
    purger: undefined,
    authority: undefined,
    serving: undefined,
    daemon: undefined,
  };
  const served = await serve(options, { front: connection, desk: connection }, context, me, 1);
  return { ...served, principal: name, ...streams, upgraded: [], passedOver: [], renew: () => Promise.resolve() };
}

function parts(space: string, replicas: 1 | 3) {
  const names = spaceNames(space);
  const subjects = spaceSubjects(space);
  return { space, names, subjects, replicas, now: Date.now, random: randomBytes };
}

/** Registers, serves, and says so; what is found in the records leads to what is served. */
async function serve(
  options: OpenSpaceOptions,
  { front, desk }: { readonly front: Connection; readonly desk: Connection },
  context: SpaceContext,
  me: Holder,
  epoch: number,
): Promise<{ readonly epoch: number; readonly stopIntake: ServedEndpoint["stop"] }> {
  const endpoint = EndpointName.Provisioner;
  const instance = { endpoint, instanceId: me.uid, owner: me.principal.owner };
  const registrationRevision = await registerInstance(context, instance);
  const say = (state: string) =>
    writeStatus(context, instance, { epoch, state, observedSpecRevision: registrationRevision });
  const recording = startRecordWriter(context, options);
  await recording.begun;
  const served = await serveEndpoint({
    nc: front.nc,
    heardOn: (command) => (isDesk(command) ? desk.nc : front.nc),
    space: options.space,
    endpoint,
    instanceId: me.uid,
    epoch,
    contract: ownContract(endpoint),
    handlers: provisionerHandlers(context, me.uid),
    registrationRevision: () => registrationRevision,
    publicDescriptor: true,
    concurrency: options.concurrency,
    perCaller: options.perCaller,
    onServed: options.onServed,
    now: () => performance.now(),
  });
  await say("ready");
  return {
    epoch,
    stopIntake: async () => {
      await Promise.all([served.stop(), recording.stop()]);
      // A listing that says "ready" a little longer is no fault; a stop that waits for the store would be.
      const said = say("stopped").catch(() => undefined);
      await Promise.race([said, sleep(FAREWELL_MS, undefined, { ref: false })]);
    },
  };
}

type OneShots = {
  readonly cleaner: Authority["cleaner"];
  readonly purger: () => Promise<Connection>;
  readonly upgrader: () => Promise<Connection>;
};

/** Store connections that live for one command, under a credential for exactly that. */
function oneShots(options: OpenSpaceOptions, keys: ProvisionerKeys, me: Holder, ledger: DaemonLedger): OneShots {
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
