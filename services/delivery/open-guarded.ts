/**
 * A space whose broker has accounts, once it is connected (`connected.ts`): its member groups and their liveness, the
 * membership feed, requests to roles, the oracle, and the endpoint that serves them all.
 *
 * Invariants
 * 1. A group is said to be served only as long as this process holds it and is connected in front.
 * 2. Whatever becomes of the feed, or of the file with its credential, ends nothing else: its connections are its own.
 * 3. A stop waits for nobody who waits for a proof: he is told first.
 */
import { groupsInForce } from "../../shared/broker/markers.ts";
import { keepRegistered } from "../../shared/client/registered.ts";
import { within } from "../../shared/client/shutdown.ts";
import type { CotalError } from "../../shared/protocol/base/errors.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { createAnycast } from "./anycast/anycast.ts";
import { deliveryHandlers } from "./commands.ts";
import { type Connected, connect } from "./connected.ts";
import { type Groups, keepGroups } from "./fanout/groups.ts";
import { type OpenFeed, openFeed } from "./feed/open-feed.ts";
import { type DeliveryPlane, createPlane, holderOf } from "./liveness/plane.ts";
import { mediatorOf, readHandlers } from "./mediator/mediator.ts";
import { storedAcl } from "./mediator/read-list.ts";
import { type Dials, type OpenSpaceOptions, type Running, type ServedSpace, nowSeconds } from "./open-options.ts";
import { openOracle } from "./oracle/open-oracle.ts";
import { reloadOver } from "./reload.ts";
import { serveDelivery } from "./serve-delivery.ts";
import { readSettings } from "./settings.ts";

const FAREWELL_MS = 5000;

/** `lost`: resolves with the cause once another process is the instance that this one was opened as. */
export type GuardedSpace = ServedSpace & { readonly lost: Promise<CotalError> };

export async function openGuarded(
  options: OpenSpaceOptions,
  { dial, alone }: Dials,
  running: Running,
): Promise<GuardedSpace> {
  const { space } = options;
  let onFrontDown = (): void => undefined;
  const connected = await connect(options, dial, running, ({ type }) => {
    if (type === "down") onFrontDown();
  });
  const { keys, me, run, instance, front, store, reads, system } = connected;
  // How many groups members are to fall into (H25); how many they do, the markers say.
  const setting = async (): Promise<number> => (await readSettings(store.nc, space)).groups;
  await setting();
  const anycast = createAnycast({
    space,
    me: me.principal,
    front: front.nc,
    store: store.nc,
    concurrency: options.concurrency,
    perHolder: options.perCaller,
    onEvent: options.onAnycast,
  });
  const { plane, groups } = openMembers(options, connected, setting);
  onFrontDown = plane.disconnected;
  const feed = openFeedOver(options, connected, alone);
  running.push(groups.stop, feed.stop);
  const stopping = new AbortController();
  const oracle = openOracle(options, keys, { front, system, stopping: stopping.signal });
  const reload = reloadOver({
    "connection-evictor": () => [keys.evictor, system],
    "membership-observer": feed.observer,
  });
  const registration = keepRegistered({ ...run, connection: front, space, endpoint: EndpointName.Delivery, me });
  const served = await serveDelivery(options, {
    front: front.nc,
    readFront: reads.front.nc,
    incarnation: { instanceId: run.instanceId, epoch: run.epoch },
    registration,
    handlers: {
      ...deliveryHandlers({ oracle, anycast, groups, store: store.nc, space, reload, setting }),
      ...readHandlers(mediatorOf(space, reads.store.nc, storedAcl(reads.store.nc, space))),
    },
  });
  registration.begin();
  await anycast.begin();
  return {
    principal: run.principal,
    epoch: run.epoch,
    lost: instance.lost,
    stopIntake: async () => {
      // A stop that waited for a proof, with him who asked for it, would be cut short.
      stopping.abort();
      await Promise.all([groups.stop(), feed.stop(), served.stop(), anycast.stop()]);
      plane.stop();
      // With the broker away there is nobody to say farewell to.
      await within(registration.end(), front.isUp() ? FAREWELL_MS : 0);
    },
    renew: async () => {
      const [observer] = feed.observer() ?? [];
      options.onSystemEnd(Math.min(keys.evictor.expires(), observer?.expires() ?? Infinity), nowSeconds());
      await connected.renew();
    },
  };
}

/** Member groups, and the answer to who asks if they are served. */
function openMembers(
  { space, onPlane, onGroup }: OpenSpaceOptions,
  { run, instance, front, store }: Connected,
  setting: () => Promise<number>,
): { readonly plane: DeliveryPlane; readonly groups: Groups } {
  const who = holderOf(run);
  const plane = createPlane({
    space,
    groups: () => groupsInForce(store.nc, space, setting),
    front: front.nc,
    store: store.nc,
    holder: who.holder,
    onDropped: (why) => onPlane({ kind: "dropped", why }),
  });
  const groups = keepGroups({
    nc: store.nc,
    space,
    instanceId: run.instanceId,
    who,
    peers: instance.peers,
    setting,
    tell: (event) => {
      if (event.type === "held") plane.held(event.group);
      else if (event.type === "lost") plane.lost(event.group);
      onGroup(event);
    },
  });
  return { plane, groups };
}

function openFeedOver(
  { space, membershipMs, onFeed }: OpenSpaceOptions,
  { keys, run, feedWriter }: Connected,
  dial: Dials["alone"],
): OpenFeed {
  return openFeed({
    space,
    front: keys.file.front,
    who: holderOf(run),
    instanceId: run.instanceId,
    everyMs: membershipMs,
    tell: onFeed,
    dial,
    writer: feedWriter,
    readObserver: keys.readObserver,
  });
}
