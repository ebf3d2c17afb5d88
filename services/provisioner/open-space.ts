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
import type { Connection } from "../../shared/broker/connect.ts";
import { openConnection } from "../../shared/broker/connect.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { Account } from "../../shared/grants/row.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { OPEN_OWNER, dotForm, drawLifecycleUid, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import type { SpaceContext } from "./context.ts";
import { daemonCalls } from "../../shared/client/evictions.ts";
import { type OwnCredential, ownCredential } from "../../shared/broker/own-credential.ts";
import { type ProvisionerKeys, readKeys } from "./keys.ts";
import { type PassedOver } from "../../shared/ledger/issued.ts";
import { type Holder, daemonPrincipal } from "../../shared/ledger/self.ts";
import { type LedgerSource, rowsFromAuth, rowsOfOwn } from "./ledger-source.ts";
import { type OneShots, oneShots } from "./one-shots.ts";
import { type Dial, type Dialed, type OpenSpaceOptions, dialOptions, nowSeconds } from "./open-options.ts";
import { serve } from "./serve-space.ts";
import { createBuckets } from "../../shared/serve/buckets.ts";
import { setUpSettings, setUpStreams } from "./setup.ts";
import { type Drift, verifyStreams } from "../../shared/broker/ensure.ts";
import { spaceStreams } from "../../shared/broker/resources.ts";
import { takeInstance } from "../../shared/broker/instance.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { isUpgrade, upgradeStores } from "../../shared/broker/upgrade.ts";

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

type Served = Omit<OpenSpace, "broken" | "close"> & {
  /** Resolves with the cause once this process is not the instance any more that it was opened as. */
  readonly lost: Promise<unknown>;
};

/** What must end before the connections do. */
type Running = (() => Promise<void>)[];

/** Instances that one owner may register: a deployment at once, and a crash loop slowly. */
const REGISTRATIONS = { burst: 128, perMinute: 6 } as const;
const OWNERS = 10_000;

/** Takes one space up and serves it. Throws a `CotalError`; nothing stays open then. */
export async function openSpace(options: OpenSpaceOptions): Promise<OpenSpace> {
  const opened: Connection[] = [];
  const dial = async (name: string, own: Dialed): Promise<Connection> => {
    const connection = await openConnection({ ...dialOptions(options, name), ...own });
    opened.push(connection);
    options.onStatus(name, { type: "up", server: "", version: connection.version });
    return connection;
  };
  const running: Running = [];
  const close = async (): Promise<void> => {
    await Promise.all(running.splice(0).map((stop) => stop()));
    await Promise.all(opened.splice(0).map((connection) => connection.drain()));
  };
  try {
    const { lost, ...served } =
      options.mode === "open" ? await openUnguarded(options, dial) : await openGuarded(options, dial, running);
    const broken = Promise.race([lost, ...opened.map(({ closed }) => closed)]);
    return { ...served, broken, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** A space whose broker has accounts: the whole of §13.1's order. */
async function openGuarded(options: OpenSpaceOptions, dial: Dial, running: Running): Promise<Served> {
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
  const instance = await takeInstance(
    store.nc,
    { space, service: EndpointName.Provisioner, uid: me.uid },
    { holder: `${me.uid}.${epoch}`, principal: dotForm(me.principal) },
  );
  running.push(instance.stop);
  const { id: instanceId } = instance;
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
      scope: { space, holder: me, inboxNonce: drawNonce(randomBytes), instanceId, epoch },
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
    settings,
    purger: shots.purger,
    authority:
      rows.store === undefined || rows.gate === undefined
        ? undefined
        : { keys, ledger: rows.store, gate: rows.gate, cleaner: shots.cleaner },
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
    ...(await serve(options, { front, desk }, context, { owner: me.principal.owner, instanceId, epoch })),
    lost: instance.lost,
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
    settings,
    purger: undefined,
    authority: undefined,
    serving: undefined,
    daemon: (endpoint) => principal(OPEN_OWNER, endpoint),
  };
  const who = { owner: me.principal.owner, instanceId: uid, epoch: 1 };
  const served = await serve(options, { front: connection, desk: connection }, context, who);
  return {
    ...served,
    lost: new Promise(() => undefined),
    principal: name,
    ...streams,
    upgraded: [],
    passedOver: [],
    renew: () => Promise.resolve(),
  };
}

function parts(space: string, replicas: 1 | 3) {
  const names = spaceNames(space);
  const subjects = spaceSubjects(space);
  const registrations = createBuckets(REGISTRATIONS, OWNERS, () => performance.now());
  return { space, names, subjects, replicas, registrations, now: Date.now, random: randomBytes };
}
