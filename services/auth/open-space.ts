/**
 * Taking a space up: connections, ledger, the plane's claim (`hold-plane.ts`), and the edge, in the order in which
 * each needs the one before.
 *
 * Invariants
 * 1. The stores are the provisioner's to make: this service waits for them, proves their shape, and
 *    trusts no other (supplement H). What an earlier version left off is turned on before.
 * 2. Every credential of this process has its row before it connects with it, but the first one of the
 *    store, which writes the rows (§13.1).
 * 3. Whatever was opened is given back, also when a later step fails.
 */
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import type { OwnCredential, OwnUsers } from "../../shared/broker/own-credential.ts";
import type { Drift } from "../../shared/broker/ensure.ts";
import { upgradeStores } from "../../shared/broker/upgrade.ts";
import { createWriter } from "../../shared/broker/write.ts";
import type { KeptSpace } from "../../shared/daemon/spaces.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { brokerLedgerStore } from "../../shared/ledger/broker-store.ts";
import { type PassedOver, createIssued } from "../../shared/ledger/issued.ts";
import { takeEpoch } from "../../shared/ledger/epoch.ts";
import { createTurns } from "../../shared/ledger/turns.ts";
import { type Holder, activateSelf, daemonPrincipal } from "../../shared/ledger/self.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { bearerAudience } from "../../shared/trust/auth-folder.ts";
import type { Call } from "../../shared/client/caller.ts";
import { daemonCalls } from "../../shared/client/evictions.ts";
import { authHandlers } from "./commands.ts";
import { enter, lasting, oneShot } from "./dial.ts";
import { type HoldOptions, type Serving, heldScanners, holdPlane } from "./hold-plane.ts";
import { readAuthKeys, readIssued } from "./keys.ts";
import { type EdgeSettings, type OpenEdge, openEdge } from "./open-edge.ts";
import { ownCredentials } from "./own-credentials.ts";
import { type PlaneSettings, chatParts, planeParts } from "./plane-parts.ts";
import type { ActorAdministration, Authority } from "./plane/authority-type.ts";
import { createAuthority } from "./plane/authority.ts";
import { answerEdges } from "./plane/elsewhere.ts";
import { createChat } from "./plane/chat/chat.ts";
import type { Claim } from "./plane/claim.ts";
import { clocksAgree, keepLimits, storesAreThere } from "./set-up.ts";

export type OpenSpaceOptions = HoldOptions & {
  readonly keysPattern: string;
  readonly roles: { readonly edge: boolean; readonly plane: boolean };
  readonly plane: PlaneSettings;
  readonly chat: HoldOptions["chat"] & { readonly slotsPerOwner: number };
  readonly edge: EdgeSettings;
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

const nowSeconds = (): number => Math.floor(Date.now() / 1000);

/** Takes one space up. Throws a `CotalError`; nothing stays open then. */
export async function openSpace(options: OpenSpaceOptions): Promise<OpenSpace> {
  const undo: (() => Promise<unknown>)[] = [];
  const opened: Connection[] = [];
  const close = async (): Promise<void> => {
    for (const back of undo.splice(0).toReversed()) await back();
  };
  const dial = async (name: string, own: OwnCredential): Promise<Connection> => {
    const connection = await openConnection(lasting(options, name, own));
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
  const scanners = heldScanners();
  const ledger = brokerLedgerStore(store.nc, writer, space, async (asked, pick) => scanners.now().scan(asked, pick));
  await storesAreThere(store.nc, options, async (steps) => {
    await activateSelf(ledger, storeOwn.holder);
    const one = await own.upgrader();
    await enter(ledger, one);
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
    for (const one of owned) await enter(ledger, one);
  });
  const [, frontOwn, calloutOwn] = owned;

  let claim: Claim | undefined;
  const holdsPlane = (): boolean => claim?.held() === true;
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
    await inTurn("cleaner", () => enter(ledger, one));
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
    holdsPlane,
    claimStands: async () => scanners.now().stands(),
    executor: () => {
      const { ledger: inLedger, records } = scanners.now();
      return { ledger: inLedger, records };
    },
    front: () => front.nc,
    calls: () => (calls ??= daemonCalls(front, space, me)),
  };
  const parts = planeParts(source);
  const authority = createAuthority(parts);
  const chats = chatParts(source, parts, options.chat.slotsPerOwner);
  if (roles.plane) {
    const handlers = authHandlers(authority, answerEdges(chats), keys.ownerSecret);
    const scannerOf = own.scanner;
    const serving = async (): Promise<Serving> => {
      const later = await takeEpoch(ledger, me.principal, me.uid);
      const one = await own.front(later, "auth-server", "serving");
      await enter(ledger, one);
      const { onStatus: _, ...dialed } = lasting(options, "serving", one);
      return { connection: await openConnection(dialed), epoch: later };
    };
    const held = { store, serving, ledger, writer, scanners, scannerOf, me, chats, handlers, enterIssued };
    claim = await holdPlane(options, held);
    undo.push(claim.stop);
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
    holdsPlane,
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
