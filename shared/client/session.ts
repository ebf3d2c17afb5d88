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
import { CotalError, ErrorCode, Outcome, toCotalError } from "../protocol/base/errors.ts";
import { dmDurable, roleDurable, spaceNames } from "../protocol/base/names.ts";
import { type Principal, drawNonce } from "../protocol/base/principals.ts";
import { concreteChannel } from "../protocol/base/channels.ts";
import { DeliveryKind, type Plane } from "../protocol/base/subjects.ts";
import type { RosterEntry } from "../protocol/chat/presence.ts";
import { createCaller } from "./caller.ts";
import { createChannels } from "./channels.ts";
import { type Outgoing, createComposer } from "./compose.ts";
import { watchDenials } from "./denials.ts";
import { type DurableReader, createDurableReader } from "./durable.ts";
import { type Events, Rail, createEvents } from "./events.ts";
import { type StoredDelivery, lastOf, readHistory } from "./history.ts";
import { type Identity, resolveIdentity } from "./identity.ts";
import { createReaders } from "./inbox.ts";
import { type InboxItem, makeItem } from "./item.ts";
import { Lane, createMailbox } from "./mailbox.ts";
import { ensureOpenInbox, ensureOpenRole } from "./open-mode.ts";
import { DEFAULT_LIMITS, type Limits, type SessionOptions, resolveTarget } from "./options.ts";
import { createPresence } from "./presence.ts";
import { probePlane } from "./probe.ts";
import { createPublisher } from "./publisher.ts";
import type { PullState } from "./pull.ts";
import { pooledRandom } from "./random.ts";
import { type Reads, createReads } from "./reads.ts";
import { type OwnedWatch, readRoster, resolveWho, watchRoster } from "./roster.ts";
import { createSeen, seenKey } from "./seen.ts";
import type { HistoryOptions, ListenOptions, Sent, Session } from "./session-types.ts";
import { shutDown } from "./shutdown.ts";

const ROLE_WAITS = "role requests stay queued and unshown: nothing serves the take rail of this space yet (§8.1)";

/** Opens a session. Throws a `CotalError`; nothing is published before the identity is settled. */
export async function connect(options: SessionOptions): Promise<Session> {
  const random = pooledRandom();
  const target = resolveTarget(options);
  const identity = resolveIdentity(target.identity, random);
  const limits: Limits = { ...DEFAULT_LIMITS, ...options.limits };
  const events = createEvents(options.onEvent);
  let react: ((status: ConnectionStatus) => void) | undefined;
  const connection = await openConnection({
    servers: target.servers,
    inboxPrefix: identity.inboxPrefix,
    name: identity.id,
    reconnect: options.reconnect ?? { kind: "endless" },
    onStatus: (status) => {
      tellStatus(events, status);
      react?.(status);
    },
    ...(identity.authenticator === undefined ? {} : { authenticator: identity.authenticator }),
    ...(target.tls === undefined ? {} : { tls: target.tls }),
    ...(options.signal === undefined ? {} : { signal: options.signal }),
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
  const { space, principal: me } = identity;
  const names = spaceNames(space);
  const clock = (): number => performance.now();
  const denials = watchDenials(nc);
  const publisher = createPublisher({
    nc,
    denials,
    random,
    isUp,
    inboxPrefix: identity.inboxPrefix,
    maxPayload: () => connection.maxPayload,
    timeoutMs: limits.publishTimeoutMs,
    maxPending: limits.maxPending,
    maxPendingBytes: limits.maxPendingBytes,
    now: clock,
  });
  const caller = { principal: me, uid: identity.uid };
  const call = createCaller({
    nc,
    space,
    caller,
    denials,
    random,
    name: identity.name,
    inboxPrefix: identity.inboxPrefix,
  });
  const reads = createReads(call, limits.readTimeoutMs);
  const compose = createComposer(identity, random, Date.now);
  const seen = createSeen();
  const mailbox = createMailbox<InboxItem>({
    liveCapacity: limits.liveCapacity,
    onDropped: () => {
      events.count("dropped");
      events.tell({ type: "dropped", rail: Rail.Chat, count: 1 });
    },
  });
  const readers = createReaders(mailbox, events);
  const channels = createChannels({
    nc,
    space,
    reads,
    events,
    seen,
    mailbox,
    mode: identity.mode,
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
  const durables = new Map<Rail, DurableReader>();
  const watches = new Set<OwnedWatch>();

  const stateOf = (rail: Rail, durable: string) => (state: PullState, before: PullState) => {
    if (state === "missing") {
      events.tell({ type: "durable-missing", rail, durable });
      mailbox.fail(missing(durable));
    } else if (before === "missing") {
      events.tell({ type: "durable-back", rail, durable });
      mailbox.recover();
    }
  };
  const open = (rail: "dm" | "role", durable: string, kind: DeliveryKind, to: string): void => {
    if (durables.has(rail) || ending !== undefined) return;
    const role = rail === "role";
    const reader = createDurableReader({
      nc,
      rail,
      durable,
      seen,
      events,
      isUp,
      stream: role ? names.task : names.dm,
      replyLead: `${identity.inboxPrefix}.pull.${drawNonce(random)}.`,
      expected: { space, kind, target: to },
      capacity: role ? limits.roleHeld : limits.held,
      maxOutstanding: role ? limits.roleHeld : limits.pulls,
      expiresMs: limits.pullExpiresMs,
      ackWaitMs: limits.ackWaitMs,
      deliver: (item) => mailbox.push(Lane.Durable, item),
      onState: stateOf(rail, durable),
      cancels: identity.mode === "open",
      now: clock,
    });
    durables.set(rail, reader);
  };
  const listen = async ({ dm = true, role = true }: ListenOptions = {}): Promise<void> => {
    const isOpen = identity.mode === "open";
    if (dm && !durables.has("dm")) {
      if (isOpen) await ensureOpenInbox(nc, identity);
      open("dm", dmDurable(me, identity.uid), DeliveryKind.Inst, identity.id);
    }
    if (!role || identity.role === undefined || durables.has("role")) return;
    if (!isOpen) return events.tell({ type: "shortfall", subject: identity.role, message: ROLE_WAITS });
    await ensureOpenRole(nc, space, identity.role);
    open("role", roleDurable(identity.role), DeliveryKind.Svc, identity.role);
  };
  const listenSoon = (listenOptions: ListenOptions | undefined): void => {
    listen(listenOptions).catch((thrown: unknown) => mailbox.fail(toCotalError(thrown)));
  };

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
  const resolve = (who: string): Promise<Principal> => resolveWho(who, roster);

  let ending: Promise<void> | undefined;
  const stopParts = (): void => {
    for (const durable of durables.values()) durable.stop();
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
    me: identity,
    linkChannels: parts.channels,
    closed,
    send: async (channel, content, messageOptions) => publish(compose.chat(channel, content, messageOptions)),
    dm: async (who, content, messageOptions) => publish(compose.dm(await resolve(who), content, messageOptions)),
    ask: async (role, content, messageOptions) => {
      const sent = await publish(compose.ask(role, content, messageOptions));
      return identity.mode === "open" ? sent : { ...sent, waitsFor: "delivery" };
    },
    join: channels.join,
    leave: channels.leave,
    joined: channels.joined,
    listen,
    inbox: (listenOptions) => {
      const inbox = readers.iterate();
      listenSoon(listenOptions);
      return inbox;
    },
    onItem: (handler, { concurrency = 1, ...listenOptions } = {}) => {
      const handling = readers.handle(handler, concurrency);
      listenSoon(listenOptions);
      return handling;
    },
    inboxState: () => ({
      dm: durables.get("dm")?.state() ?? "closed",
      role: durables.get("role")?.state() ?? "closed",
    }),
    history: (channel, historyOptions) => history({ reads, events, space }, channel, historyOptions),
    space: async () => (await reads.space()).settings,
    channels: () => reads.channels(),
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
    liveness: (plane: Plane) => probePlane({ nc, space, me, denials, random, timeoutMs: limits.probeTimeoutMs }, plane),
    call,
    events: events.iterate,
    stats: () => events.stats([...durables.values()].reduce((sum, durable) => sum + durable.held(), 0)),
    drain: () =>
      (ending ??= shutDown({
        connection,
        durables: [...durables.values()],
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
      for (const watch of watches) watch.down();
    }
    if (status.type !== "up") return;
    publisher.resend();
    if (options.presence !== false) presence.beat();
    for (const durable of durables.values()) durable.reconnected();
    channels.up();
    for (const watch of watches) watch.up();
  };
  if (options.presence !== false) presence.start();
  return { session, react };
}

type HistorySource = { readonly reads: Reads; readonly events: Events; readonly space: string };

/** History of one channel as items, oldest first; an id that comes twice is shown once. */
async function history(
  { reads, events, space }: HistorySource,
  given: string,
  { limit, sinceMs, fromSeq }: HistoryOptions = {},
): Promise<InboxItem[]> {
  const channel = concreteChannel(given);
  const shown = new Set<string>();
  const items: InboxItem[] = [];
  const show = ({ delivery, seq }: StoredDelivery): void => {
    const key = seenKey(delivery);
    if (key !== undefined && shown.has(key)) return;
    if (key !== undefined) shown.add(key);
    items.push(makeItem(delivery, { historical: true, seq }));
  };
  if (limit !== undefined && sinceMs === undefined && fromSeq === undefined) {
    for (const stored of await lastOf(reads, events, space, channel, limit)) show(stored);
    return items;
  }
  const range = {
    ...(sinceMs === undefined ? {} : { sinceMs }),
    ...(fromSeq === undefined ? {} : { fromSeq }),
    ...(limit === undefined ? {} : { limit }),
  };
  for await (const stored of readHistory(reads, events, space, channel, range)) show(stored);
  return items;
}

function tellStatus(events: Events, status: ConnectionStatus): void {
  switch (status.type) {
    case "up":
    case "down":
      return events.tell({ type: status.type, server: status.server });
    case "slow":
      return undefined;
    default:
      return events.tell(status);
  }
}

function missing(durable: string): CotalError {
  return new CotalError(ErrorCode.NotFound, `the inbox can't be read: its durable ${durable} does not answer`, {
    outcome: Outcome.NotExecuted,
    next: "run cotal doctor; reading may go on at any time, and the inbox comes back by itself with its durable",
  });
}
