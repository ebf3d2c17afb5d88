/**
 * A participant's session in one space: one connection, one identity, everything a user does.
 *
 * Invariants
 * 1. What can be refused locally is refused before anything is dialled or published.
 * 2. Whoever opens a session reads `closed`: every end has a cause (field case 23).
 * 3. A reconnect changes nothing a user sees but delays and events: unsettled sends go out again,
 *    pulls and subscriptions are renewed, the view of the roster says "not current" meanwhile.
 */
import { type Connection, type ConnectionStatus, openConnection } from "../broker/connect.ts";
import type { CotalError } from "../protocol/base/errors.ts";
import { type Principal, dotForm } from "../protocol/base/principals.ts";
import { DEFAULT_LIMITS as SPACE_LIMITS } from "../protocol/chat/space-settings.ts";
import { Plane } from "../protocol/base/subjects.ts";
import type { LivenessGrade } from "../protocol/chat/liveness.ts";
import type { RosterEntry } from "../protocol/chat/presence.ts";
import { createAsked } from "./asked.ts";
import { callOn } from "./caller.ts";
import { createChannels } from "./channels.ts";
import { type Outgoing, createComposer } from "./compose.ts";
import { watchDenials } from "./denials.ts";
import { type Events, createEvents } from "./events.ts";
import { createHands } from "./hands.ts";
import { historyItems } from "./history-items.ts";
import { type Identity, dialedAs } from "./identity.ts";
import { createReaders } from "./inbox.ts";
import type { InboxItem } from "./item.ts";
import { createListening } from "./listening.ts";
import { createMemberships } from "./memberships.ts";
import { createMailbox } from "./mailbox.ts";
import { DEFAULT_LIMITS, type Limits, type SessionOptions, resolveTarget } from "./options.ts";
import { createPresence } from "./presence.ts";
import { probePlane } from "./probe.ts";
import { createProofs } from "./proofs.ts";
import { createPublisher } from "./publisher.ts";
import { pooledRandom } from "./random.ts";
import { createEndpointClient } from "./endpoint-client.ts";
import { createRail } from "./rail.ts";
import { reachOf } from "./reach.ts";
import { createReads } from "./reads.ts";
import { type OwnedWatch, readRoster, resolveWho, watchRoster } from "./roster.ts";
import { createSeen } from "./seen.ts";
import { createPlaneWait } from "./served-plane.ts";
import type { Sent, Session, Waiting } from "./session-types.ts";
import { shutDown } from "./shutdown.ts";
import { openIdentity } from "./user-identity.ts";

/** Opens a session. Throws a `CotalError`; nothing is published before the identity is settled. */
export async function connect(options: SessionOptions): Promise<Session> {
  const random = pooledRandom();
  const target = resolveTarget(options);
  const limits: Limits = { ...DEFAULT_LIMITS, ...options.limits };
  const events = createEvents(options.onEvent);
  let react: ((status: ConnectionStatus) => void) | undefined;
  const dialing = {
    reconnect: options.reconnect ?? ({ kind: "endless" } as const),
    onStatus: (status: ConnectionStatus) => {
      tellStatus(events, status);
      react?.(status);
    },
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  };
  const identity = await openIdentity(target.identity, random, dialing);
  const connection = await openConnection({
    servers: target.servers,
    ...dialedAs(identity),
    ...dialing,
    ...(target.tls === undefined ? {} : { tls: target.tls }),
  });
  try {
    const built = build({ connection, identity, limits, events, options, random, channels: target.channels });
    react = built.react;
    return built.session;
  } catch (thrown) {
    await connection.close();
    throw thrown;
  }
}

type Parts = {
  readonly connection: Connection;
  readonly identity: Identity;
  readonly limits: Limits;
  readonly events: Events;
  readonly options: SessionOptions;
  readonly random: ReturnType<typeof pooledRandom>;
  readonly channels: readonly string[];
};

function build(parts: Parts): { readonly session: Session; readonly react: (status: ConnectionStatus) => void } {
  const { connection, identity, limits, events, options, random } = parts;
  const { nc, isUp } = connection;
  const { space, principal } = identity;
  // What signs stays here.
  const { authenticator: _, supply: __, connectionName: ___, ...me } = identity;
  const clock = (): number => performance.now();
  const denials = watchDenials(nc);
  const publisher = createPublisher({
    nc,
    denials,
    random,
    isUp,
    inboxPrefix: identity.inboxPrefix,
    // Where people sign in the broker does not hold a connection to it, and nobody could read a longer one back.
    maxPayload: () => Math.min(connection.maxPayload, SPACE_LIMITS.agent.payload),
    timeoutMs: limits.publishTimeoutMs,
    maxPending: limits.maxPending,
    maxPendingBytes: limits.maxPendingBytes,
    now: clock,
  });
  const caller = { principal, uid: identity.uid };
  const rail = createRail({
    nc,
    space,
    caller,
    denials,
    random,
    name: identity.name,
    inboxPrefix: identity.inboxPrefix,
  });
  const call = callOn(rail);
  const reads = createReads(call, limits.readTimeoutMs);
  const compose = createComposer(identity, random, Date.now);
  const seen = createSeen();
  const hands = createHands(seen);
  const mailbox = createMailbox<InboxItem>({
    liveCapacity: limits.liveCapacity,
    onDropped: (item) => {
      events.dropped();
      // Where a durable copy is owed, that one shows it.
      item.nak(0);
    },
  });
  const readers = createReaders(mailbox, events);
  const hidden = options.ownPosts === true ? undefined : identity.id;
  const channels = createChannels({
    nc,
    space,
    reads,
    events,
    hands,
    mailbox,
    hidden,
    mode: identity.mode,
    memberships: identity.mode === "open" ? undefined : createMemberships(call, limits.readTimeoutMs),
    seamCapacity: limits.liveCapacity,
    now: Date.now,
  });
  const presence = createPresence({
    identity,
    publisher,
    events,
    card: options.card ?? {},
    heartbeatMs: limits.heartbeatMs,
    now: Date.now,
  });
  const daemons = async () => (await reads.space()).settings.daemons;
  const listening = createListening({
    nc,
    identity,
    limits,
    events,
    seen,
    hands,
    hidden,
    mailbox,
    isUp,
    random,
    denials,
    call,
    daemons,
    now: clock,
  });
  const liveness = (plane: Plane): Promise<LivenessGrade> =>
    probePlane({ nc, space, me: principal, denials, random, timeoutMs: limits.probeTimeoutMs }, plane);
  const waitsForPlane = createPlaneWait(() => liveness(Plane.Delivery), clock);
  const watches = new Set<OwnedWatch>();

  const publish = async (out: Outgoing): Promise<Sent> => {
    try {
      const receipt = await publisher.publish({ ...out, msgId: out.id });
      events.count("published");
      return { id: out.id, kind: out.kind, ...receipt };
    } catch (thrown) {
      events.count("publishFailed");
      throw thrown;
    }
  };
  const roster = (): Promise<RosterEntry[]> => readRoster(reads, events, Date.now);
  const resolve = (who: string): Promise<Principal> => resolveWho(who, roster, identity.principal.owner);

  let ending: Promise<void> | undefined;
  const stopParts = (): void => {
    listening.close();
    for (const reader of listening.readers()) reader.stop();
    for (const watch of watches) watch.stop();
    presence.stop();
    channels.stop();
    publisher.close();
  };
  const finish = (error: CotalError | undefined): void => {
    stopParts();
    if (error !== undefined) mailbox.fail(error);
    mailbox.close();
    events.close();
  };
  const closed = connection.closed.then((error) => {
    finish(error);
    return error;
  });

  const session: Session = {
    me,
    linkChannels: parts.channels,
    closed,
    send: async (channel, content, messageOptions) => publish(compose.chat(channel, content, messageOptions)),
    dm: async (who, content, messageOptions) => publish(compose.dm(await resolve(who), content, messageOptions)),
    ask: async (role, content, messageOptions) => {
      const out = compose.ask(role, content, messageOptions);
      if (identity.mode === "open") return publish(out);
      const [sent, waits] = await Promise.all([publish(out), waitsForPlane()]);
      return waits ? { ...sent, waitsFor: "delivery" } : sent;
    },
    asked: createAsked(call, identity.mode, limits.readTimeoutMs),
    proof: createProofs(call, identity.mode, limits.readTimeoutMs),
    waiting: () => mailbox.peek().map(waitingOf),
    join: channels.join,
    leave: channels.leave,
    joined: channels.joined,
    listen: listening.listen,
    inbox: (listenOptions) => {
      const inbox = readers.iterate();
      listening.listenSoon(listenOptions);
      return inbox;
    },
    onItem: (handler, { concurrency = 1, ...listenOptions } = {}) => {
      const handling = readers.handle(handler, concurrency);
      listening.listenSoon(listenOptions);
      return handling;
    },
    inboxState: () => ({
      dm: listening.state("dm"),
      role: listening.state("role"),
      durable: listening.state("durable"),
    }),
    history: (channel, historyOptions) => historyItems({ reads, events, space }, channel, historyOptions),
    space: async () => (await reads.space()).settings,
    channels: async () => {
      const { defaults, channels: registered } = await reads.channels();
      const joined = channels.joined().map(({ channel }) => channel);
      return {
        defaults,
        channels: registered.map((entry) => ({ ...entry, reach: reachOf(entry.channel, joined, identity.mode) })),
      };
    },
    roster,
    resolve,
    watchRoster: (onChange) => {
      const watch = watchRoster({ nc, space, reads, events, onChange, isUp, now: Date.now });
      watches.add(watch);
      return {
        current: watch.current,
        entries: watch.entries,
        stop: () => {
          watches.delete(watch);
          watch.stop();
        },
      };
    },
    setPresence: presence.set,
    liveness,
    call,
    endpoints: createEndpointClient({
      rail,
      reads: call,
      peer: async (who) => (await roster()).find(({ id }) => id === dotForm(who)),
    }),
    events: events.iterate,
    stats: () => events.stats(listening.held()),
    drain: () =>
      (ending ??= shutDown({
        connection,
        durables: listening.readers(),
        mailbox,
        readers,
        publisher,
        presence,
        stopParts,
      })),
    close: async () => {
      stopParts();
      await connection.close();
      await closed;
    },
  };

  const react = (status: ConnectionStatus): void => {
    if (status.type === "down") {
      channels.down();
      listening.disconnected();
      for (const watch of watches) watch.down();
    }
    if (status.type !== "up") return;
    publisher.resend();
    if (options.presence !== false) presence.beat();
    listening.reconnected();
    channels.up();
    for (const watch of watches) watch.up();
  };
  if (options.presence !== false) presence.start();
  return { session, react };
}

function waitingOf(item: InboxItem): Waiting {
  const { kind, id, from, ts } = item;
  const where = kind === "chat" ? { channel: item.channel } : kind === "ask" ? { role: item.role } : {};
  return { kind, id, from, ts, ...where };
}

function tellStatus(events: Events, status: ConnectionStatus): void {
  switch (status.type) {
    case "up":
      return events.tell({ type: status.type, server: status.server });
    case "slow":
      return undefined;
    default:
      return events.tell(status);
  }
}
