/**
 * Joined channels: the live tail, replay on join, and the seam between them (§7).
 *
 * Siblings: `room.ts` one channel, `establishing.ts` its durable membership, `history.ts` what is replayed.
 *
 * Invariants
 * 1. A channel is joined only once the broker has accepted the subscription; a refusal that comes
 *    later drops it, with an event (§7). No daemon is needed for a live join.
 * 2. The watermark is read before the subscription. History is read up to a second one, taken once
 *    the subscription stands, while live copies wait: across the seam there is no gap and, by
 *    (sender, id), no double.
 * 3. Live copies are the lossy class: a slow reader loses the oldest, counted and told (§4).
 * 4. On a `durable` channel, what was posted while the connection was down comes as durable copies; without a
 *    membership it is read back from history. On a `live` one it is gone (§4).
 * 5. A join of a durable channel asks for the membership once the broker has accepted the subscription (§7). It
 *    is joined durable when both stand, and says what falls short until then, while it asks again.
 */
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { fromNats } from "../broker/errors.ts";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../protocol/base/errors.ts";
import { channelPattern, isConcrete, matches } from "../protocol/base/channels.ts";
import { DeliveryKind, spaceSubjects } from "../protocol/base/subjects.ts";
import { type Delivery, RejectReason } from "../protocol/chat/message.ts";
import { establishing } from "./establishing.ts";
import { type Events, Rail } from "./events.ts";
import type { Hands } from "./hands.ts";
import { type HistoryRange, readHistory } from "./history.ts";
import { type InboxItem, makeItem } from "./item.ts";
import { Lane, type Mailbox } from "./mailbox.ts";
import { type Memberships, stillMember } from "./memberships.ts";
import type { Mode } from "./identity.ts";
import {
  type JoinOptions,
  type Joined,
  GAP,
  MAX_RETRY_MS,
  NO_REPLAY,
  RETRY_MS,
  type Replayed,
  type Room,
  type Settings,
  doubt,
  isAway,
  learn,
  replayRange,
  view,
} from "./room.ts";
import type { Reads } from "./reads.ts";
import { seenKey } from "./seen.ts";
import { readWire } from "./wire.ts";

export type ChannelsOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly mode: Mode;
  /** Whose posts are not shown: one's own, dot-form (decision 7). */
  readonly hidden: string | undefined;
  readonly reads: Reads;
  readonly events: Events;
  readonly hands: Hands;
  readonly mailbox: Mailbox<InboxItem>;
  /** Where there is somebody to ask; not in an open space. */
  readonly memberships: Memberships | undefined;
  /** Live copies kept while a replay runs. */
  readonly seamCapacity: number;
  /** Epoch milliseconds. */
  readonly now: () => number;
};

export type Channels = {
  readonly join: (channel: string, options?: JoinOptions) => Promise<Joined>;
  readonly leave: (channel: string) => Promise<boolean>;
  readonly joined: () => readonly Omit<Joined, "replayed">[];
  readonly down: () => void;
  /** Reads back what durable channels got while the connection was down. */
  readonly up: () => void;
  readonly stop: () => void;
};

/** Live copies after which the position is anchored anew; well below what `seen` remembers. */
const ANCHOR_EVERY = 2000;
/** Unread history items above which the next page waits. */
const HISTORY_ROOM = 1000;
const FLUSH_MS = 5000;

export function createChannels(options: ChannelsOptions): Channels {
  const { nc, events, hands, mailbox, memberships } = options;
  const subjects = spaceSubjects(options.space);
  const rooms = new Map<string, Room>();

  const surface = (
    lane: Lane,
    room: Room,
    delivery: Delivery,
    source: { readonly historical: boolean; readonly seq?: number },
  ): boolean => {
    if (delivery.from === options.hidden) return false;
    const key = seenKey(delivery);
    const hold = key === undefined ? undefined : hands.take(key, () => room.isMember);
    if (key !== undefined && hold === undefined) {
      events.count("duplicates");
      return false;
    }
    events.received("chat");
    mailbox.push(lane, makeItem(delivery, hold === undefined ? source : { ...source, hold }));
    return true;
  };

  const receive = (room: Room, message: Msg): void => {
    const read = readWire(message);
    if (!read.ok) return events.rejected(Rail.Chat, read.reason, read.detail);
    const { subject } = read.delivery;
    if (subject.space !== options.space || subject.kind !== DeliveryKind.Chat || !matches(room.channel, subject.rest)) {
      return events.rejected(Rail.Chat, RejectReason.MalformedSubject, "not of the joined channel");
    }
    if (room.seam !== undefined) return keep(room, room.seam, read.delivery);
    surface(Lane.Live, room, read.delivery, { historical: false });
    room.sinceAnchor += 1;
    if (room.sinceAnchor >= ANCHOR_EVERY) void anchor(room);
  };
  const keep = (room: Room, seam: Delivery[], delivery: Delivery): void => {
    seam.push(delivery);
    if (seam.length <= options.seamCapacity) return;
    seam.shift();
    events.dropped();
    room.sinceAnchor = 0;
  };

  const anchor = async (room: Room): Promise<void> => {
    room.sinceAnchor = 0;
    if (room.position === undefined || room.isFrozen) return;
    try {
      const { frontier } = await options.reads.frontier(room.channel);
      room.position = room.anchor ?? room.position;
      room.anchor = frontier;
    } catch {
      // The older position stands; a heal reads more than it needs and drops the doubles.
    }
  };

  const drop = (room: Room, error: CotalError): void => {
    room.refused = error;
    end(room);
    // The broker refused it late: the membership must not outlive the subscription (§7).
    if (room.isMember) void memberships?.leave(room.channel).catch(() => undefined);
    if (rooms.get(room.channel) !== room) return;
    rooms.delete(room.channel);
    events.tell({ type: "refused", error, channel: room.channel });
  };

  const open = (channel: string): Room => {
    const room: Room = {
      channel,
      class: "unknown",
      shortfall: undefined,
      isMember: false,
      isFrozen: false,
      frontier: undefined,
      position: undefined,
      caughtUp: false,
      anchor: undefined,
      sinceAnchor: 0,
      seam: [],
      tail: Promise.resolve({ count: 0, complete: true }),
      retries: new Set(),
      refused: undefined,
      gone: false,
      subscription: nc.subscribe(subjects.chatRead(channel), {
        callback: (error, message) => {
          if (error === null) receive(room, message);
          else drop(room, fromNats(error, `join ${channel.slice(0, 80)}`));
        },
      }),
    };
    return room;
  };

  /** Ends the seam: what came live meanwhile goes out, but for what history brought. */
  const closeSeam = (room: Room): void => {
    const waiting = room.seam ?? [];
    room.seam = undefined;
    if (room.gone) return;
    for (const delivery of waiting) surface(Lane.Live, room, delivery, { historical: false });
  };

  const read = async (room: Room, range: HistoryRange): Promise<number> => {
    let count = 0;
    for await (const stored of readHistory(options.reads, events, options.space, room.channel, range)) {
      if (room.gone) break;
      if (surface(Lane.History, room, stored.delivery, { historical: true, seq: stored.seq })) count += 1;
      await mailbox.room(Lane.History, HISTORY_ROOM);
    }
    return count;
  };

  /** Brings the room up to date once; one run at a time, tried again later until it succeeds. */
  const catchUp = (
    room: Room,
    rangeOf: () => Promise<HistoryRange | undefined>,
    waitMs = RETRY_MS,
  ): Promise<Replayed> => {
    const attempt = async (): Promise<Replayed> => {
      try {
        const range = await rangeOf();
        const count = range === undefined ? 0 : await read(room, range);
        room.position = Math.max(room.position ?? 0, range?.upToSeq ?? 0);
        room.caughtUp = true;
        return { count, complete: true };
      } catch (thrown) {
        const error = toCotalError(thrown);
        if (!room.gone) events.tell({ type: "replay-failed", channel: room.channel, error });
        if (!room.gone && isAway(error)) {
          const again = (): void => void catchUp(room, rangeOf, Math.min(2 * waitMs, MAX_RETRY_MS));
          room.retries.add(setTimeout(again, waitMs));
        }
        return { count: 0, complete: false };
      } finally {
        // Live copies never wait for a daemon that is away.
        closeSeam(room);
      }
    };
    room.tail = room.tail.then(attempt, attempt);
    return room.tail;
  };

  const { establish, learnLater } = establishing({ memberships, events, reads: options.reads });

  const joining = new Map<string, Promise<Joined>>();
  const join = async (given: string, joinOptions: JoinOptions = {}): Promise<Joined> => {
    const channel = channelPattern(given);
    const known = rooms.get(channel);
    if (known !== undefined) return { ...view(known), replayed: Promise.resolve({ count: 0, complete: true }) };
    // Two joins of one channel are one: a second subscription would only double the work.
    const begun = joining.get(channel) ?? enter(channel, joinOptions);
    joining.set(channel, begun);
    try {
      return await begun;
    } finally {
      joining.delete(channel);
    }
  };
  const enter = async (channel: string, joinOptions: JoinOptions): Promise<Joined> => {
    const settings = await readSettings(options.reads, channel);
    if (nc.isClosed() || nc.isDraining()) throw closed(channel);
    // The broker takes a.> under a list of a.* and delivers a part of it: the list itself decides.
    if (settings instanceof CotalError && settings.code === ErrorCode.PermissionDenied) {
      throw notJoined(channel, settings);
    }
    const room = open(channel);
    try {
      await flush(nc);
    } catch (thrown) {
      end(room);
      throw thrown;
    }
    // The refusal is told to the subscription's callback, before the answer to the flush.
    if (room.refused !== undefined) throw notJoined(channel, room.refused);
    rooms.set(channel, room);
    if (!(settings instanceof CotalError)) learn(room, settings, options.mode, events);
    else if (memberships !== undefined) doubt(room, settings, events);
    if (!isConcrete(channel)) {
      events.tell({ type: "shortfall", subject: channel, message: NO_REPLAY });
      closeSeam(room);
      if (settings instanceof CotalError && isAway(settings)) learnLater(room);
      await establish(room);
      return { ...view(room), replayed: Promise.resolve({ count: 0, complete: true }) };
    }
    let latest: Settings | CotalError | undefined = settings;
    const replayed = catchUp(room, async () => {
      if (latest instanceof CotalError) {
        // Told by the first attempt, and read anew by the next.
        const failed = latest;
        latest = undefined;
        throw failed;
      }
      if (latest === undefined) {
        learn(room, (latest = await options.reads.frontier(channel)), options.mode, events);
        void establish(room);
      }
      const range = replayRange(latest, joinOptions, options.now);
      if (range === undefined) return undefined;
      // What was posted between the watermark and the accepted subscription came neither way yet.
      const { frontier } = await options.reads.frontier(channel);
      return frontier === 0 ? undefined : { ...range, upToSeq: frontier };
    });
    await establish(room);
    return { ...view(room), replayed };
  };

  const missed = async (room: Room): Promise<HistoryRange | undefined> => {
    const fromSeq = (room.position ?? 0) + 1;
    const { frontier } = await options.reads.frontier(room.channel);
    room.anchor = undefined;
    return frontier < fromSeq ? undefined : { fromSeq, upToSeq: frontier };
  };
  const healed = (room: Room): boolean =>
    room.class === "durable" && !room.isMember && room.position !== undefined && isConcrete(room.channel);

  return {
    join,
    down: () => {
      // What comes after the return waits until history has brought what was missed.
      for (const room of rooms.values()) {
        room.isFrozen ||= room.isMember;
        if (healed(room)) room.seam ??= [];
      }
    },
    up: () => {
      for (const room of rooms.values()) {
        if (healed(room)) void catchUp(room, () => missed(room));
        else if (!room.isMember) events.tell({ type: "shortfall", subject: room.channel, message: GAP });
      }
    },
    leave: async (given) => {
      const channel = channelPattern(given);
      const room = rooms.get(channel);
      if (room === undefined) return false;
      end(room);
      rooms.delete(channel);
      await flush(nc);
      if (!room.isMember || memberships === undefined) return true;
      try {
        await memberships.leave(channel);
      } catch (thrown) {
        throw stillMember(channel, toCotalError(thrown));
      }
      return true;
    },
    joined: () => [...rooms.values()].map(view),
    stop: () => {
      for (const room of rooms.values()) end(room);
      rooms.clear();
    },
  };
}

/** The watermark and settings as they are now (§7), or why they could not be read. */
async function readSettings(reads: Reads, channel: string): Promise<Settings | CotalError> {
  try {
    return await reads.frontier(channel);
  } catch (thrown) {
    return toCotalError(thrown);
  }
}

function end(room: Room): void {
  room.gone = true;
  for (const retry of room.retries) clearTimeout(retry);
  room.subscription.unsubscribe();
}

/** A round trip: what the broker refused before it is known after it. */
async function flush(nc: NatsConnection): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(unconfirmed()), FLUSH_MS);
  });
  try {
    await Promise.race([nc.flush(), late]);
  } catch (thrown) {
    throw fromNats(thrown, "the channel");
  } finally {
    clearTimeout(timer);
  }
}

function unconfirmed(): CotalError {
  return new CotalError(ErrorCode.Unavailable, `the broker did not confirm it within ${FLUSH_MS} ms`, {
    outcome: Outcome.NotExecuted,
    next: "try again once the connection is up",
  });
}

function closed(channel: string): CotalError {
  return new CotalError(ErrorCode.Unavailable, `${channel.slice(0, 200)} was not joined: the connection is closed`, {
    outcome: Outcome.NotExecuted,
    next: "open a new session",
  });
}

function notJoined(channel: string, cause: CotalError): CotalError {
  if (cause.code !== ErrorCode.PermissionDenied) return cause;
  return new CotalError(ErrorCode.PermissionDenied, `this credential may not read #${channel.slice(0, 200)}`, {
    outcome: Outcome.NotExecuted,
    next: "join a channel of its read list, or ask the operator for more: cotal mint, or cotal actor grant where people sign in",
    cause,
  });
}
