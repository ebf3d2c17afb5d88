/**
 * Taking a space up: connections, ledger, the plane's claim, the endpoint, and the edge, in the order in
 * which each needs the one before.
 *
 * Invariants
 * 1. The stores are the provisioner's to make: this service waits for them, proves their shape, and
 *    trusts no other (supplement H). What an earlier version left off is turned on before.
 * 2. Every credential of this process has its row before it connects with it, but the first one of the
 *    store, which writes the rows (§13.1).
 * 3. The endpoint `auth` is served by whoever holds the plane's claim, and by nobody else; what the trust
 *    program issued has its rows before.
 * 4. Whatever was opened is given back, also when a later step fails.
 */
import { randomBytes } from "node:crypto";
import { type ConnectOptions, type Connection, openConnection } from "../../shared/broker/connect.ts";
import type { OwnCredential, OwnUsers } from "../../shared/broker/own-credential.ts";
import type { Drift } from "../../shared/broker/ensure.ts";
import { upgradeStores } from "../../shared/broker/upgrade.ts";
import { createWriter } from "../../shared/broker/write.ts";
import type { KeptSpace, SpaceHooks } from "../../shared/daemon/spaces.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { enterCredential } from "../../shared/ledger/entry.ts";
import { brokerLedgerStore } from "../../shared/ledger/broker-store.ts";
import { type PassedOver, createIssued } from "../../shared/ledger/issued.ts";
import { takeEpoch } from "../../shared/ledger/epoch.ts";
import { createTurns } from "../../shared/ledger/turns.ts";
import { type Holder, activateSelf, daemonPrincipal } from "../../shared/ledger/self.ts";
import { type LedgerStore, readRow } from "../../shared/ledger/store.ts";
import type { ScannedStore } from "../../shared/protocol/base/names.ts";
import { dotForm, drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { PlaneRow, actorKey } from "../../shared/protocol/ledger/actor-rows.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { ownContract } from "../../shared/protocol/endpoint/own-contracts.ts";
import { bearerAudience } from "../../shared/trust/auth-folder.ts";
import { type HandlerTable, type ServedEvent, serveEndpoint } from "../../shared/serve/serve.ts";
import type { Call } from "../../shared/client/caller.ts";
import { daemonCalls } from "../../shared/client/evictions.ts";
import { keepRegistered } from "../../shared/client/registered.ts";
import { authHandlers } from "./commands.ts";
import { readAuthKeys, readIssued } from "./keys.ts";
import { type EdgeSettings, type OpenEdge, openEdge } from "./open-edge.ts";
import { ownCredentials } from "./own-credentials.ts";
import { type PlaneSettings, chatParts, planeParts } from "./plane-parts.ts";
import type { ActorAdministration, Authority } from "./plane/authority-type.ts";
import { createAuthority } from "./plane/authority.ts";
import { answerEdges } from "./plane/elsewhere.ts";
import { createChat } from "./plane/chat/chat.ts";
import type { ChatParts } from "./plane/chat/parts.ts";
import { type SweepEvent, createChatSweep, keepSweeping } from "./plane/chat/sweep.ts";
import { type ClaimState, keepClaim } from "./plane/claim.ts";
import { evidenceIn } from "./plane/evidence.ts";
import { type ResumeEvent, keepResuming } from "./plane/operations.ts";
import { livenessOf } from "./plane/liveness.ts";
import { noPlane } from "./plane/parts.ts";
import { type PruneParts, checkEvidence, keepPruning } from "./plane/prune-natkeys.ts";
import { type ScannerConnection, type Scanners, openScanners } from "./plane/scanners.ts";
import type { EvidenceSayings } from "./say-evidence.ts";
import { clocksAgree, keepLimits, storesAreThere } from "./set-up.ts";

export type OpenSpaceOptions = SpaceHooks & {
  readonly servers: readonly string[];
  readonly keysPattern: string;
  readonly roles: { readonly edge: boolean; readonly plane: boolean };
  readonly plane: PlaneSettings;
  readonly chat: ChatSettings;
  readonly evidence: EvidenceSayings;
  readonly edge: EdgeSettings;
  readonly concurrency: number;
  readonly perCaller: number;
  readonly onServed: (event: ServedEvent) => void;
  readonly onPlane: (state: ClaimState) => void;
  /** An end that another process had left was taken up. */
  readonly onResume: (event: ResumeEvent) => void;
  /** The ledger's store was of an earlier version, and is up to date now. */
  readonly onUpgraded: (steps: readonly Drift[]) => void;
  /** A credential of the trust program got no row. */
  readonly onPassedOver: (one: PassedOver) => void;
  readonly users: OwnUsers;
  /** Life of this process's own credentials, in seconds. */
  readonly lifeSeconds?: number;
};

export type OpenSpace = KeptSpace & {
  readonly principal: string;
  readonly epoch: number;
  readonly authority: Authority & ActorAdministration;
  readonly holdsPlane: () => boolean;
  /** Addresses of the exchange, by face; `undefined` without the edge. */
  readonly faces: OpenEdge["faces"] | undefined;
};

export type ChatSettings = {
  readonly slotsPerOwner: number;
  readonly onSweep: (event: SweepEvent) => void;
};

const nowSeconds = (): number => Math.floor(Date.now() / 1000);

/** Takes one space up. Throws a `CotalError`; nothing stays open then. */
export async function openSpace(options: OpenSpaceOptions): Promise<OpenSpace> {
  const undo: (() => Promise<unknown>)[] = [];
  const opened: Connection[] = [];
  const close = async (): Promise<void> => {
    for (const back of undo.splice(0).toReversed()) await back();
  };
  const dial = async (name: string, own: OwnCredential): Promise<Connection> => {
    const connection = await openConnection(dialOptions(options, name, own));
    opened.push(connection);
    undo.push(() => connection.drain());
    options.onStatus(name, { type: "up", server: "", version: connection.version });
    return connection;
  };
  try {
    const served = await take(options, dial, undo);
    const broken = Promise.race([...opened.map(({ closed }) => closed), ...(served.ended ?? [])]);
    return { ...served, broken, close };
  } catch (error) {
    await close();
    throw error;
  }
}

type Dial = (name: string, own: OwnCredential) => Promise<Connection>;

type Taken = Omit<OpenSpace, "broken" | "close"> & { readonly ended: readonly Promise<unknown>[] };

async function take(options: OpenSpaceOptions, dial: Dial, undo: (() => Promise<unknown>)[]): Promise<Taken> {
  const { space, roles } = options;
  const keys = readAuthKeys(options.keysPattern, space);
  const me = { principal: daemonPrincipal(keys.ownerSecret, space, "auth"), uid: keys.uid };
  const own = ownCredentials(options, keys, me);
  const storeOwn = await own.store();
  const store = await dial("store", storeOwn);
  const writer = createWriter({ nc: store.nc });
  let scanners: Scanners | undefined;
  // Whoever enumerates to decide holds the plane (supplement E): its scanners come and go with the claim.
  const ledger = brokerLedgerStore(store.nc, writer, space, async (asked, pick) => {
    if (scanners === undefined) throw noPlane();
    return scanners.scan(asked, pick);
  });
  await storesAreThere(store.nc, options, async (steps) => {
    await activateSelf(ledger, storeOwn.holder);
    const one = await own.upgrader();
    await enter(ledger, one, one.expires());
    const upgrading = await openConnection(oneShot(options, "upgrader", one));
    try {
      await upgradeStores(upgrading.nc, space, steps);
      options.onUpgraded(steps);
    } finally {
      await upgrading.drain();
    }
  });
  const limits = await keepLimits(store.nc, options);
  await activateSelf(ledger, me);
  await activateSelf(ledger, storeOwn.holder);
  const epoch = await takeEpoch(ledger, me.principal, me.uid);
  const owned = [
    storeOwn,
    await own.front(epoch, roles.plane ? "auth-server" : "auth-edge"),
    await own.callout(),
  ] as const;
  await options.users.entered(space, async () => {
    for (const one of owned) await enter(ledger, one, one.expires());
  });
  const [, frontOwn, calloutOwn] = owned;

  let holdsPlane = (): boolean => false;
  const front = await dial("front", frontOwn);
  let calls: Call | undefined;
  const enterListed = createIssued(ledger, nowSeconds);
  const enterIssued = async (): Promise<void> => {
    const passed = await enterListed(() => readIssued(options.keysPattern, space));
    for (const one of passed) options.onPassedOver(one);
  };
  const inTurn = createTurns();
  const cleaner = async (target: Holder): Promise<Connection> => {
    const one = await own.cleaner(target);
    // Many ends at once would only take each other's compare-and-set.
    await inTurn("cleaner", () => enter(ledger, one, one.expires()));
    return openConnection(oneShot(options, "cleaner", one));
  };
  const source = {
    ...options.plane,
    space,
    store,
    ledger,
    writer,
    keys,
    cleaner,
    limits: limits.agent,
    holdsPlane: () => holdsPlane(),
    executor: () => {
      if (scanners === undefined) throw noPlane();
      return { ledger: scanners.ledger, records: scanners.records };
    },
    front: () => front.nc,
    calls: () => (calls ??= daemonCalls(front, space, me)),
  };
  const parts = planeParts(source);
  const authority = createAuthority(parts);
  const chats = chatParts(source, parts, options.chat.slotsPerOwner);
  if (roles.plane) {
    const evidence = evidenceIn(store.nc, writer, space);
    await checkEvidence({ space, evidence });
    const pruning: PruneParts = {
      space,
      evidence,
      holdsPlane: source.holdsPlane,
      now: Date.now,
      random: randomBytes,
      onEvent: options.evidence.onPrune,
      onBadRow: (cause) => {
        options.evidence.onFence(cause);
        void claim.stop();
      },
    };
    const claim = keepClaim({
      claimId: drawLifecycleUid(randomBytes),
      ledger,
      livenessOf: (tuple) => livenessOf(store.nc, tuple),
      hold: async () => {
        const opened = await openScanners({
          space,
          open: (which) => openScanner(options, own.scanner, which, (one) => enter(ledger, one, one.expires())),
          readPlane: () => readRow(ledger, "auth", actorKey.plane, PlaneRow),
        });
        return {
          ...opened,
          begin: (claimed) => {
            opened.begin(claimed);
            scanners = opened;
          },
          close: async () => {
            scanners = undefined;
            await opened.close();
          },
        };
      },
      onState: options.onPlane,
      whileHeld: async () => {
        await enterIssued();
        const handlers = authHandlers(authority, answerEdges(chats), keys.ownerSecret);
        return duties(options, chats, pruning, () => serve(options, front, handlers, me, epoch));
      },
      now: Date.now,
    });
    undo.push(() => claim.stop());
    holdsPlane = claim.held;
  }
  let edge: OpenEdge | undefined;
  if (roles.edge) {
    const callout = await dial("callout", calloutOwn);
    const { file, bearer: signer } = keys;
    const bearer = { issuer: file.issuer, audience: bearerAudience(space), signer };
    const chat = createChat(chats, { authority, bearer });
    edge = await openEdge({
      ...options.edge,
      space,
      keys,
      authority,
      chat,
      callout,
      connection: limits.agent,
      isReady: () => store.isUp(),
    });
    undo.push(edge.close);
  }
  return {
    principal: dotForm(me.principal),
    epoch,
    authority,
    holdsPlane: () => holdsPlane(),
    faces: edge?.faces,
    ended: edge === undefined ? [] : [edge.ended],
    stopIntake: async () => edge?.stopIntake(),
    renew: async () => {
      const { lifeSeconds = Life.Host } = options;
      for (const one of owned) {
        if (one.expires() - nowSeconds() > lifeSeconds / 2) continue;
        await one.renew((expires) => enter(ledger, one, expires));
      }
      await clocksAgree(store.nc, space, Date.now);
      await limits.refresh();
      if (holdsPlane()) await enterIssued();
    },
  };
}

/** What only the holder of the plane does. */
async function duties(
  { chat, onResume }: OpenSpaceOptions,
  chats: ChatParts,
  pruning: PruneParts,
  serving: () => ReturnType<typeof serve>,
): ReturnType<typeof serve> {
  const served = await serving();
  const sweeping = keepSweeping(createChatSweep(chats, chat.onSweep));
  const pruned = keepPruning(pruning);
  const resuming = keepResuming(chats, onResume);
  return {
    stop: async () => {
      await Promise.all([served.stop(), sweeping.stop(), pruned.stop(), resuming.stop()]);
    },
  };
}

function dialOptions(options: OpenSpaceOptions, name: string, own: OwnCredential): ConnectOptions {
  return {
    authenticator: own.authenticator,
    inboxPrefix: own.inboxPrefix,
    servers: options.servers,
    name: `auth ${options.space} ${name}`,
    reconnect: { kind: "endless", capMs: 5000 },
    signal: options.signal,
    onStatus: (status) => options.onStatus(name, status),
  };
}

/** Without its status: who asked for it hears how it went, and nobody would clear a failure. */
function oneShot(options: OpenSpaceOptions, name: string, own: OwnCredential): ConnectOptions {
  const { onStatus: _, ...dialed } = dialOptions(options, name, own);
  return { ...dialed, reconnect: { kind: "single", attempts: 3 } };
}

const enter = (ledger: LedgerStore, own: OwnCredential, expires: number): Promise<void> =>
  enterCredential(ledger, { ...own.holder, credentialId: own.userKey, expires });

/** One of the two connections that the claim is held by. It is not dialed again: its number is the claim. */
async function openScanner(
  options: OpenSpaceOptions,
  credential: (which: ScannedStore) => Promise<OwnCredential>,
  which: ScannedStore,
  entered: (own: OwnCredential) => Promise<void>,
): Promise<ScannerConnection> {
  const own = await credential(which);
  await entered(own);
  const { onStatus: _, ...dialed } = dialOptions(options, `plane ${which}`, own);
  const connection = await openConnection({ ...dialed, reconnect: { kind: "single", attempts: 1 } });
  return { connection, userKey: own.userKey, freshMs: (own.expires() - nowSeconds()) * 500 };
}

/** Serves, and registers as soon as there is somebody to register with: the provisioner waits for this service. */
async function serve(
  options: OpenSpaceOptions,
  front: Connection,
  handlers: HandlerTable,
  me: Holder,
  epoch: number,
): Promise<{ readonly stop: () => Promise<void> }> {
  const { space } = options;
  const registration = keepRegistered({
    connection: front,
    space,
    endpoint: EndpointName.Auth,
    me,
    instanceId: me.uid,
    epoch,
  });
  try {
    const served = await serveEndpoint({
      nc: front.nc,
      space,
      endpoint: EndpointName.Auth,
      instanceId: me.uid,
      epoch,
      contract: ownContract(EndpointName.Auth),
      handlers,
      registrationRevision: registration.revision,
      publicDescriptor: true,
      concurrency: options.concurrency,
      perCaller: options.perCaller,
      onServed: options.onServed,
      now: () => performance.now(),
    });
    registration.begin();
    return {
      stop: async () => {
        await served.stop();
        await registration.end();
      },
    };
  } catch (error) {
    await registration.end();
    throw error;
  }
}
