/**
 * Taking a space up: rows for this daemon's credentials, connections in front, in the store and in the system account
 * (more than one each, so that no flood of reads and no fault of the membership feed takes the others along), its member
 * groups, the endpoint, its registration, what it does; in the order in which each needs the one before.
 *
 * Invariants
 * 1. The credentials of front and store have their rows before anything is done with them. Rows of the system-account
 *    credentials are written by who writes the ledger, before that one answers us (`issued.json`).
 * 2. Whatever was opened is given back, also when a later step fails.
 */
import {
  type ConnectOptions,
  type Connection,
  type ConnectionStatus,
  openConnection,
} from "../../shared/broker/connect.ts";
import type { OwnUsers } from "../../shared/broker/own-credential.ts";
import { keepRegistered } from "../../shared/client/registered.ts";
import { within } from "../../shared/client/shutdown.ts";
import type { KeptSpace, SpaceHooks } from "../../shared/daemon/spaces.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { Account } from "../../shared/grants/row.ts";
import { daemonPrincipal } from "../../shared/ledger/self.ts";
import type { CotalError } from "../../shared/protocol/base/errors.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import type { ServedEvent } from "../../shared/serve/serve.ts";
import { type AnycastEvent, createAnycast } from "./anycast/anycast.ts";
import { groupsInForce } from "../../shared/broker/markers.ts";
import { deliveryHandlers } from "./commands.ts";
import { createCredentials } from "./credentials.ts";
import { type GroupEvent, keepGroups } from "./fanout/groups.ts";
import type { FeedEvent } from "./feed/feed.ts";
import { openFeed } from "./feed/open-feed.ts";
import { readDeliveryKeys } from "./keys.ts";
import { takeInstance } from "../../shared/broker/instance.ts";
import { createPlane, holderOf } from "./liveness/plane.ts";
import { mediatorOf, readHandlers } from "./mediator/mediator.ts";
import { storedAcl } from "./mediator/read-list.ts";
import { type OpenOracleOptions, openOracle } from "./oracle/open-oracle.ts";
import { openUnguarded } from "./open-broker.ts";
import { reloadOver } from "./reload.ts";
import { type RowsOptions, beginRows, enterRows } from "./rows.ts";
import { serveDelivery } from "./serve-delivery.ts";
import { readSettings } from "./settings.ts";

export type PlaneEvent = { readonly kind: "dropped"; readonly why: string };

export type OpenSpaceOptions = SpaceHooks &
  OpenOracleOptions & {
    readonly servers: readonly string[];
    readonly mode: "accounts" | "open";
    readonly keysPattern: string;
    readonly users: OwnUsers;
    readonly concurrency: number;
    readonly perCaller: number;
    readonly membershipMs: number;
    readonly onServed: (event: ServedEvent) => void;
    readonly onAnycast: (event: AnycastEvent) => void;
    /** Of the plane's liveness: a question that was dropped. */
    readonly onPlane: (event: PlaneEvent) => void;
    readonly onGroup: (event: GroupEvent) => void;
    readonly onFeed: (event: FeedEvent) => void;
    /** When the first of the credentials of the system account ends, and what time it is, in Unix seconds. */
    readonly onSystemEnd: (at: number, now: number) => void;
    /** Life of this process's own credential, in seconds. */
    readonly lifeSeconds?: number;
  };

export type OpenSpace = KeptSpace & { readonly principal: string; readonly epoch: number };

const FAREWELL_MS = 5000;

const nowSeconds = (): number => Math.floor(Date.now() / 1000);

/** Takes one space up. Throws a `CotalError`; nothing stays open then. */
export async function openSpace(options: OpenSpaceOptions): Promise<OpenSpace> {
  const opened: Connection[] = [];
  const alone: Dial = async (name, { authenticator, inboxPrefix }, also) => {
    const as = authenticator === undefined ? { inboxPrefix } : { authenticator, inboxPrefix };
    const dialed = dialOptions(options, name);
    const onStatus: OnStatus = (status) => {
      dialed.onStatus?.(status);
      also?.(status);
    };
    const connection = await openConnection({ ...dialed, onStatus, ...as });
    options.onStatus(name, { type: "up", server: "", version: connection.version });
    return connection;
  };
  const dial: Dial = async (...asked) => {
    const connection = await alone(...asked);
    opened.push(connection);
    return connection;
  };
  const running: Running = [];
  const close = async (): Promise<void> => {
    await Promise.all(running.splice(0).map((stop) => stop()));
    await Promise.all(opened.splice(0).map((connection) => connection.drain()));
  };
  try {
    if (options.mode === "open") {
      const served = await openUnguarded(options, dial);
      return { ...served, broken: Promise.race(opened.map(({ closed }) => closed)), close };
    }
    const { lost, ...served } = await take(options, { dial, alone }, running);
    return { ...served, broken: Promise.race([lost, ...opened.map(({ closed }) => closed)]), close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** What a connection is opened as; without an authenticator where a broker is open. */
type Dialed = Pick<ConnectOptions, "authenticator" | "inboxPrefix">;
type OnStatus = (status: ConnectionStatus) => void;
/** `alone`: one whose end does not end the space. */
export type Dial = (name: string, own: Dialed, onStatus?: OnStatus) => Promise<Connection>;

function dialOptions(options: OpenSpaceOptions, name: string): Omit<ConnectOptions, keyof Dialed> {
  return {
    servers: options.servers,
    name: `delivery ${options.space} ${name}`,
    reconnect: { kind: "endless", capMs: 5000 },
    signal: options.signal,
    onStatus: (status) => options.onStatus(name, status),
  };
}

/** What must end before its connections do. */
type Running = (() => Promise<void>)[];

async function take(
  options: OpenSpaceOptions,
  { dial, alone }: { readonly dial: Dial; readonly alone: Dial },
  running: Running,
): Promise<Omit<OpenSpace, "broken" | "close"> & { readonly lost: Promise<CotalError> }> {
  const { space, lifeSeconds = Life.Host } = options;
  const keys = readDeliveryKeys(options.keysPattern, space);
  const me = { principal: daemonPrincipal(keys.ownerSecret, space, "delivery"), uid: keys.uid };
  const user = options.users.of(space, "front");
  const storeUser = options.users.of(space, "store");
  // Without its status: who asks hears how it went, and nobody would clear a failure.
  const { onStatus: _, ...oneShot } = dialOptions(options, "rows");
  const rows: RowsOptions = {
    ...options,
    keys,
    me,
    user,
    storeUser,
    nowSeconds,
    dial: { ...oneShot, reconnect: { kind: "bounded", attempts: 3 } },
  };
  const expires = nowSeconds() + lifeSeconds;
  const epoch = await options.users.entered(space, () => beginRows(rows, expires));
  const credentials = createCredentials({ keys, users: { front: user, store: storeUser }, lifeSeconds, nowSeconds });
  // Which instance it is stands in the store; there no row of a credential names one.
  const scope = { space, holder: me, instanceId: me.uid, epoch };
  const store = await dial("store", await credentials.of("delivery", Account.Store, scope));
  const run = { uid: me.uid, epoch, principal: dotForm(me.principal) };
  const daemon = { space, service: EndpointName.Delivery, uid: me.uid };
  const instance = await takeInstance(store.nc, daemon, { ...run, holder: `${me.uid}.${epoch}` });
  running.push(instance.stop);
  const { id: instanceId, peers } = instance;
  let onFrontDown = (): void => undefined;
  const onStatus: OnStatus = (status) => {
    if (status.type === "down") onFrontDown();
  };
  const own = { ...scope, instanceId };
  const front = await dial("front", await credentials.of("delivery", Account.Front, own), onStatus);
  const readFront = await dial("reads", await credentials.of("delivery-reader", Account.Front, own));
  const readStore = await dial("reads-store", await credentials.of("delivery-reader", Account.Store, own));
  const system = await dial("system", keys.evictor);
  const stopping = new AbortController();
  const anycast = createAnycast({
    space,
    me: me.principal,
    front: front.nc,
    store: store.nc,
    concurrency: options.concurrency,
    perHolder: options.perCaller,
    onEvent: options.onAnycast,
  });
  const who = holderOf({ ...run, instanceId });
  // How many groups members are to fall into (H25); how many they do, the markers say.
  const setting = async (): Promise<number> => (await readSettings(store.nc, space)).groups;
  await setting();
  const plane = createPlane({
    space,
    groups: () => groupsInForce(store.nc, space, setting),
    front: front.nc,
    store: store.nc,
    holder: who.holder,
    onDropped: (why) => options.onPlane({ kind: "dropped", why }),
  });
  const groups = keepGroups({
    nc: store.nc,
    space,
    instanceId,
    who,
    peers,
    setting,
    tell: (event) => {
      if (event.type === "held") plane.held(event.group);
      else if (event.type === "lost") plane.lost(event.group);
      options.onGroup(event);
    },
  });
  const feed = openFeed({
    space,
    front: keys.file.front,
    who,
    instanceId,
    everyMs: options.membershipMs,
    tell: options.onFeed,
    dial: alone,
    writer: await credentials.of("membership-rw", Account.Store, scope),
    readObserver: keys.readObserver,
  });
  running.push(groups.stop, feed.stop);
  onFrontDown = plane.disconnected;
  const reload = reloadOver({
    "connection-evictor": () => [keys.evictor, system],
    "membership-observer": feed.observer,
  });
  const oracle = openOracle(options, keys, { front, system, stopping: stopping.signal });
  const registration = keepRegistered({
    ...run,
    connection: front,
    space,
    endpoint: EndpointName.Delivery,
    me,
    instanceId,
  });
  const served = await serveDelivery(options, {
    front: front.nc,
    readFront: readFront.nc,
    incarnation: { instanceId, epoch },
    registration,
    handlers: {
      ...deliveryHandlers({ oracle, anycast, groups, store: store.nc, space, reload, setting }),
      ...readHandlers(mediatorOf(space, readStore.nc, storedAcl(readStore.nc, space))),
    },
  });
  registration.begin();
  await anycast.begin();
  return {
    principal: run.principal,
    epoch,
    lost: instance.lost,
    stopIntake: async () => {
      // Who waits for a proof is told at once: a stop that waited with him would be cut short.
      stopping.abort();
      await Promise.all([groups.stop(), feed.stop(), served.stop(), anycast.stop()]);
      plane.stop();
      // With the broker away there is nobody to say farewell to.
      await within(registration.end(), front.isUp() ? FAREWELL_MS : 0);
    },
    renew: async () => {
      const [observer] = feed.observer() ?? [];
      options.onSystemEnd(Math.min(keys.evictor.expires(), observer?.expires() ?? Infinity), nowSeconds());
      for (const made of credentials.made) {
        if (made.expires() - nowSeconds() > lifeSeconds / 2) continue;
        await made.renew((next) => enterRows(rows, next));
      }
    },
  };
}
