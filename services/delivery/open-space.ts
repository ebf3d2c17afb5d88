/**
 * Taking a space up: rows for this daemon's credentials, connections in front, in the store and in the system
 * account, its member groups, the endpoint, its registration, what it does; in the order in which each needs the
 * one before.
 *
 * Invariants
 * 1. The credentials of front and store have their rows before anything is done with them. The row of the system-account
 *    credential is written by who writes the ledger, before that one answers us (`issued.json`).
 * 2. Whatever was opened is given back, also when a later step fails.
 */
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type ConnectOptions,
  type Connection,
  type ConnectionStatus,
  openConnection,
} from "../../shared/broker/connect.ts";
import { type OwnUsers, ownCredential } from "../../shared/broker/own-credential.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { keepRegistered } from "../../shared/client/registered.ts";
import { within } from "../../shared/client/shutdown.ts";
import type { KeptSpace, SpaceHooks } from "../../shared/daemon/spaces.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { Account } from "../../shared/grants/row.ts";
import { daemonPrincipal } from "../../shared/ledger/self.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { dotForm, drawNonce } from "../../shared/protocol/base/principals.ts";
import { SPACE_KEY } from "../../shared/protocol/chat/channel-config.ts";
import { SpaceSettings } from "../../shared/protocol/chat/space-settings.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { ownContract } from "../../shared/protocol/endpoint/own-contracts.ts";
import { type ServedEvent, serveEndpoint } from "../../shared/serve/serve.ts";
import { type AnycastEvent, createAnycast } from "./anycast/anycast.ts";
import { deliveryHandlers } from "./commands.ts";
import { type GroupEvent, keepGroups } from "./fanout/groups.ts";
import { type DeliveryKeys, readDeliveryKeys } from "./keys.ts";
import { createPlane, holderOf } from "./liveness/plane.ts";
import { gatherOver } from "../../shared/broker/gather.ts";
import { type Seen, look, shareLooks } from "./oracle/look.ts";
import { type Kicked, type Oracle, createOracle, kickOver } from "./oracle/oracle.ts";
import { type RowsOptions, beginRows, enterRows } from "./rows.ts";
import { storeCredential } from "./store.ts";

export type PlaneEvent = { readonly kind: "dropped"; readonly why: string };

export type OpenSpaceOptions = SpaceHooks & {
  readonly servers: readonly string[];
  readonly keysPattern: string;
  readonly users: OwnUsers;
  readonly concurrency: number;
  readonly perCaller: number;
  readonly onServed: (event: ServedEvent) => void;
  /** A look was taken; with what it does not cover. */
  readonly onLook: (gap: string | undefined) => void;
  readonly onKicked: (event: Kicked) => void;
  readonly onAnycast: (event: AnycastEvent) => void;
  /** Of the plane's liveness: a question that was dropped. */
  readonly onPlane: (event: PlaneEvent) => void;
  readonly onGroup: (event: GroupEvent) => void;
  /** When the credential of the system account ends, and what time it is, in Unix seconds. */
  readonly onEvictorEnd: (at: number, now: number) => void;
  /** Life of this process's own credential, in seconds. */
  readonly lifeSeconds?: number;
};

export type OpenSpace = KeptSpace & { readonly principal: string; readonly epoch: number };

const FAREWELL_MS = 5000;

const nowSeconds = (): number => Math.floor(Date.now() / 1000);

/** Takes one space up. Throws a `CotalError`; nothing stays open then. */
export async function openSpace(options: OpenSpaceOptions): Promise<OpenSpace> {
  const opened: Connection[] = [];
  const dial: Dial = async (name, { authenticator, inboxPrefix }, also) => {
    const dialed = dialOptions(options, name);
    const onStatus: OnStatus = (status) => {
      dialed.onStatus?.(status);
      also?.(status);
    };
    const connection = await openConnection({ ...dialed, onStatus, authenticator, inboxPrefix });
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
    const served = await take(options, dial, running);
    return { ...served, broken: Promise.race(opened.map(({ closed }) => closed)), close };
  } catch (error) {
    await close();
    throw error;
  }
}

type Dialed = Required<Pick<ConnectOptions, "authenticator" | "inboxPrefix">>;
type OnStatus = (status: ConnectionStatus) => void;
type Dial = (name: string, own: Dialed, onStatus?: OnStatus) => Promise<Connection>;

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
  dial: Dial,
  running: Running,
): Promise<Omit<OpenSpace, "broken" | "close">> {
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
  const scope = { space, holder: me, instanceId: me.uid, epoch };
  const storeOwn = await storeCredential({ keys, scope, user: storeUser, lifeSeconds, nowSeconds });
  const frontOwn = await ownCredential({
    profile: "delivery",
    user,
    account: Account.Front,
    accountKey: keys.file.front,
    signer: keys.frontSigner,
    lifeSeconds,
    nowSeconds,
    scope: { ...scope, inboxNonce: drawNonce(randomBytes) },
  });
  let onFrontDown = (): void => undefined;
  const front = await dial("front", frontOwn, (status) => {
    if (status.type === "down") onFrontDown();
  });
  const store = await dial("store", storeOwn);
  const { expires: evictorEnd, ...evictor } = keys.evictor;
  const system = await dial("system", evictor);
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
  const who = holderOf({ uid: me.uid, epoch, principal: dotForm(me.principal) });
  const memberGroups = await groupsOf(store, space);
  const plane = createPlane({
    space,
    groups: memberGroups,
    front: front.nc,
    store: store.nc,
    holder: who.holder,
    onDropped: (why) => options.onPlane({ kind: "dropped", why }),
  });
  const groups = keepGroups({
    nc: store.nc,
    space,
    me,
    who,
    groups: memberGroups,
    tell: (event) => {
      if (event.type === "held") plane.held(event.group);
      else if (event.type === "lost") plane.lost(event.group);
      options.onGroup(event);
    },
  });
  running.push(groups.stop);
  onFrontDown = plane.disconnected;
  const oracle = oracleOver(options, keys, { front, system, stopping: stopping.signal });
  const registration = keepRegistered({ connection: front, space, endpoint: EndpointName.Delivery, me, epoch });
  const served = await serveEndpoint({
    nc: front.nc,
    space,
    endpoint: EndpointName.Delivery,
    instanceId: me.uid,
    epoch,
    contract: ownContract(EndpointName.Delivery),
    handlers: deliveryHandlers({ oracle, anycast: anycast.handlers, groups, store: store.nc, space }),
    registrationRevision: registration.revision,
    publicDescriptor: true,
    concurrency: options.concurrency,
    perCaller: options.perCaller,
    onServed: options.onServed,
    now: () => performance.now(),
  });
  registration.begin();
  await anycast.begin();
  return {
    principal: dotForm(me.principal),
    epoch,
    stopIntake: async () => {
      // Who waits for a proof is told at once: a stop that waited with him would be cut short.
      stopping.abort();
      await Promise.all([groups.stop(), served.stop(), anycast.stop()]);
      plane.stop();
      // With the broker away there is nobody to say farewell to.
      await within(registration.end(), front.isUp() ? FAREWELL_MS : 0);
    },
    renew: async () => {
      options.onEvictorEnd(evictorEnd(), nowSeconds());
      for (const own of [frontOwn, storeOwn]) {
        if (own.expires() - nowSeconds() > lifeSeconds / 2) continue;
        await own.renew((next) => enterRows(rows, next));
      }
    },
  };
}

/** How many groups the members of the space fall into: a setting, changed only while nobody writes (H25). */
async function groupsOf({ nc }: Connection, space: string): Promise<number> {
  const { channels } = spaceNames(space).bucket;
  const entry = await leaderLast(nc, bucketStream(channels), kvKey(channels, SPACE_KEY));
  if (entry === undefined) {
    throw new CotalError(ErrorCode.Unavailable, "the space has no settings yet", {
      outcome: Outcome.NotExecuted,
      next: "start its provisioner: it sets the space up; this is tried again by itself",
    });
  }
  return SpaceSettings.parse(JSON.parse(new TextDecoder().decode(entry.data))).groups;
}

type Over = { readonly front: Connection; readonly system: Connection; readonly stopping: AbortSignal };

function oracleOver(
  { space, onLook, onKicked }: OpenSpaceOptions,
  { file, ownerSecret }: DeliveryKeys,
  { front, system, stopping }: Over,
): Oracle {
  const gather = gatherOver(system);
  const self = (): Seen | undefined => {
    const { info } = front.nc;
    return info === undefined ? undefined : { server: info.server_id, cid: info.client_id };
  };
  const parts = { gather, accounts: [file.front, file.store, file.auth], self };
  return createOracle({
    look: shareLooks(async (wanted) => {
      const seen = await look(parts, wanted);
      onLook(seen.gap);
      return seen;
    }),
    kick: kickOver(gather),
    me: daemonPrincipal(ownerSecret, space, "delivery"),
    onKicked,
    now: () => performance.now(),
    pause: (ms) => pausing(ms, stopping),
  });
}

async function pausing(ms: number, signal: AbortSignal): Promise<void> {
  try {
    await sleep(ms, undefined, { signal });
  } catch {
    throw new CotalError(ErrorCode.Unavailable, "this daemon stops, and proves nothing any more", {
      outcome: Outcome.Unknown,
      next: "ask again: another process serves it, or this one when it is back",
    });
  }
}
