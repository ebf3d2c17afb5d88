/**
 * The durables that a session reads: its DM inbox, the queue of its role, its backstop (§8).
 *
 * Invariants
 * 1. An authenticated session binds what the provisioner made and never creates (§8); in an open
 *    space, and only there, it makes its own (decision H57).
 * 2. A role request of an authenticated space is taken before it is shown (§8.1), and none is pulled before the
 *    queue's creation time is known: each copy carries the time that was read before it came.
 * 3. A durable that does not answer is told, and fails the reader: it is not an empty inbox (§8).
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../protocol/base/errors.ts";
import { type SpaceNames, dlvDurable, dmDurable, roleDurable, spaceNames } from "../protocol/base/names.ts";
import { type RandomBytes, drawNonce } from "../protocol/base/principals.ts";
import { DeliveryKind, spaceSubjects } from "../protocol/base/subjects.ts";
import { createBackstop } from "./backstop.ts";
import type { Call } from "./caller.ts";
import type { DenialWatch } from "./denials.ts";
import { type DurableRail, type DurableReader, createDurableReader } from "./durable.ts";
import type { Events } from "./events.ts";
import type { Hands } from "./hands.ts";
import type { Identity } from "./identity.ts";
import type { InboxItem } from "./item.ts";
import { Lane, type Mailbox } from "./mailbox.ts";
import { createNoticeSorter } from "./notices.ts";
import { ensureOpenInbox, ensureOpenRole } from "./open-mode.ts";
import type { Limits } from "./options.ts";
import type { PullState } from "./pull.ts";
import type { Seen } from "./seen.ts";
import type { ListenOptions } from "./session-types.ts";
import { createTakeRail } from "./take-rail.ts";
import { type Taker, createTaker } from "./takes.ts";

export type ListeningOptions = {
  readonly nc: NatsConnection;
  readonly identity: Identity;
  readonly limits: Limits;
  readonly events: Events;
  readonly seen: Seen;
  readonly hands: Hands;
  /** Whose channel posts are not shown, dot-form. */
  readonly hidden: string | undefined;
  readonly mailbox: Mailbox<InboxItem>;
  readonly isUp: () => boolean;
  readonly random: RandomBytes;
  readonly denials: DenialWatch;
  readonly call: Call;
  /** Who is which daemon of the space, as its settings say. */
  readonly daemons: () => Promise<Readonly<Record<string, string>>>;
  /** Monotonic milliseconds. */
  readonly now: () => number;
};

export type Listening = {
  readonly listen: (options?: ListenOptions) => Promise<void>;
  /** The same, with its failure told to the reader. */
  readonly listenSoon: (options: ListenOptions | undefined) => void;
  readonly state: (rail: DurableRail) => PullState | "closed";
  readonly held: () => number;
  readonly reconnected: () => void;
  /** The connection dropped. */
  readonly disconnected: () => void;
  readonly readers: () => readonly DurableReader[];
  /** Opens nothing more. */
  readonly close: () => void;
};

export function createListening(options: ListeningOptions): Listening {
  const { nc, identity, limits, events, mailbox } = options;
  const { space, principal: me } = identity;
  const names = spaceNames(space);
  const readers = new Map<DurableRail, DurableReader>();
  const notices = createNoticeSorter(identity.mode === "open" ? undefined : options.daemons);
  let taker: Taker | undefined;
  let closed = false;

  const stateOf = (rail: DurableRail, durable: string) => (state: PullState, before: PullState) => {
    if (state === "missing") {
      events.tell({ type: "durable-missing", rail, durable });
      mailbox.fail(durableMissing(durable));
    } else if (before === "missing") {
      events.tell({ type: "durable-back", rail, durable });
      mailbox.recover();
    }
  };
  const open = (rail: DurableRail, durable: string, kind: DeliveryKind, target?: string): void => {
    if (readers.has(rail) || closed) return;
    const role = rail === "role";
    const show = (item: InboxItem): void => mailbox.push(Lane.Durable, item);
    const subject = spaceSubjects(space).dlv(me, identity.uid);
    const copies = { subject, events, deliver: show, hidden: options.hidden, hands: options.hands };
    const reader = createDurableReader({
      nc,
      rail,
      durable,
      events,
      seen: options.seen,
      isUp: options.isUp,
      stream: STREAM[rail](names),
      replyLead: `${identity.inboxPrefix}.pull.${drawNonce(options.random)}.`,
      expected: target === undefined ? { space, kind } : { space, kind, target },
      capacity: role ? limits.roleHeld : limits.held,
      maxOutstanding: role ? limits.roleHeld : limits.pulls,
      expiresMs: limits.pullExpiresMs,
      ackWaitMs: limits.ackWaitMs,
      ...(role && taker !== undefined ? { asked: taker } : {}),
      deliver: (item, hold) => {
        if (rail === "dm") return notices.sort(item, show);
        if (!role || taker === undefined) return show(item);
        mailbox.pushBehind(taker.door(hold, item.id), item);
      },
      ...(rail === "durable" ? { copies: createBackstop(copies) } : {}),
      onState: stateOf(rail, durable),
      now: options.now,
    });
    readers.set(rail, reader);
  };

  /** Resolves after the first try; a daemon that comes later is noticed by itself. */
  const takeFrom = async (role: string): Promise<void> => {
    const { denials, call } = options;
    const timeoutMs = limits.takeTimeoutMs;
    taker ??= createTaker({
      role,
      call,
      events,
      timeoutMs,
      isUp: options.isUp,
      rail: createTakeRail({ nc, space, role, me, id: identity.id, name: identity.name, denials, timeoutMs }),
      onReady: () => open("role", roleDurable(role), DeliveryKind.Svc, role),
      onRetry: mailbox.retry,
    });
    await taker.begin();
  };

  const listen = async ({ dm = true, role = true, durable = true }: ListenOptions = {}): Promise<void> => {
    const isOpen = identity.mode === "open";
    // Joined or not: a mention is kept for whoever may read the channel (§4).
    if (durable && !isOpen) open("durable", dlvDurable(me, identity.uid), DeliveryKind.Chat);
    if (dm && !readers.has("dm")) {
      if (isOpen) await ensureOpenInbox(nc, identity);
      open("dm", dmDurable(me, identity.uid), DeliveryKind.Inst, identity.id);
    }
    if (!role || identity.role === undefined || readers.has("role")) return;
    if (!isOpen) return takeFrom(identity.role);
    await ensureOpenRole(nc, space, identity.role);
    open("role", roleDurable(identity.role), DeliveryKind.Svc, identity.role);
  };

  return {
    listen,
    listenSoon: (listenOptions) => {
      listen(listenOptions).catch((thrown: unknown) => {
        const error = toCotalError(thrown);
        events.tell({ type: "refused", error });
        mailbox.fail(error);
      });
    },
    state: (rail) => readers.get(rail)?.state() ?? "closed",
    held: () => [...readers.values()].reduce((sum, reader) => sum + reader.held(), 0),
    disconnected: () => taker?.down(),
    reconnected: () => {
      taker?.up();
      for (const reader of readers.values()) reader.reconnected();
    },
    readers: () => [...readers.values()],
    close: () => {
      closed = true;
      taker?.close();
    },
  };
}

const STREAM: Readonly<Record<DurableRail, (names: SpaceNames) => string>> = {
  dm: ({ dm }) => dm,
  role: ({ task }) => task,
  durable: ({ dlv }) => dlv,
};

/** What a reader of an inbox is told whose durable does not answer. */
export function durableMissing(durable: string): CotalError {
  return new CotalError(ErrorCode.NotFound, `the inbox can't be read: its durable ${durable} does not answer`, {
    outcome: Outcome.NotExecuted,
    next: "run cotal doctor; reading may go on at any time, and the inbox comes back by itself with its durable",
  });
}
