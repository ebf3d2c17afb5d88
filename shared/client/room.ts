/**
 * One joined channel: what is known of it, what it promises, and where its replay begins (§7).
 *
 * Invariant: the effective class comes from `effectiveConfig` alone, and a channel is never said to
 * be joined durable before both the broker has accepted the subscription and the daemon has written the
 * membership.
 */
import type { Subscription } from "@nats-io/transport-node";
import { type CotalError, ErrorCode } from "../protocol/base/errors.ts";
import { isConcrete } from "../protocol/base/channels.ts";
import { type DeliveryClass, effectiveConfig } from "../protocol/chat/channel-config.ts";
import type { Delivery } from "../protocol/chat/message.ts";
import type { Events } from "./events.ts";
import type { HistoryRange } from "./history.ts";
import type { Mode } from "./identity.ts";
import { shortfallOf } from "./memberships.ts";
import type { Reads } from "./reads.ts";

export type JoinOptions = {
  /** Replay retained messages; by default as the channel is configured (§7). */
  readonly replay?: boolean;
  /**
   * Read on from this CHAT sequence in place of the configured window: for a host that kept where
   * it had got to (§7; field case 11).
   */
  readonly fromSeq?: number;
};

export type Joined = {
  /** The channel or pattern as it is on the wire. */
  readonly channel: string;
  /** `joined durable` once the broker's subscription and the membership both stand (§7). */
  readonly state: "joined live" | "joined durable";
  /** The channel's effective class; unknown where its settings could not be read. */
  readonly class: DeliveryClass | "unknown";
  /** In words, why the durable backstop is not there, when the channel asks for one (§7). */
  readonly shortfall?: string;
  /** The watermark; replay covers what lies at or below it. */
  readonly frontier?: number;
  /**
   * Everything at or below this CHAT sequence has been in the inbox. A host that keeps it joins the
   * next time with `fromSeq: position + 1` and gets no old backlog again (§7).
   */
  readonly position?: number;
  /**
   * Resolves when the first reading of history is over, with how many messages it brought. More
   * than a thousand come only while the inbox is being read: history waits and is never dropped.
   */
  readonly replayed: Promise<Replayed>;
};

/** `complete: false`: it failed, the reason is an event, and it is tried again in the background. */
export type Replayed = { readonly count: number; readonly complete: boolean };

export type Settings = Awaited<ReturnType<Reads["frontier"]>>;

export type Room = {
  readonly channel: string;
  readonly subscription: Subscription;
  class: DeliveryClass | "unknown";
  shortfall: string | undefined;
  /** The daemon has written the durable membership. */
  isMember: boolean;
  /** Copies bring what was missed, in their own time: the position is told no further. */
  isFrozen: boolean;
  frontier: number | undefined;
  /** Everything at or below it was surfaced or is not ours. */
  position: number | undefined;
  /** A replay has ended well, so the position may be told. */
  caughtUp: boolean;
  /** Becomes the position at the next anchor: one anchor late, so no live copy is on its way. */
  anchor: number | undefined;
  sinceAnchor: number;
  /** Live copies that wait for a replay to end. */
  seam: Delivery[] | undefined;
  /** The last catching-up; the next begins after it. */
  tail: Promise<Replayed>;
  readonly retries: Set<NodeJS.Timeout>;
  refused: CotalError | undefined;
  gone: boolean;
};

/** What may come right by itself is tried again: after the first, and at twice the time up to the second. */
export const RETRY_MS = 1000;
export const MAX_RETRY_MS = 30_000;

const OPEN_SPACE =
  "durable backstop unavailable: an open space keeps no copies for who is away; history has what was missed";

export const GAP = "what was posted here while the connection was down is not shown";

export const NO_REPLAY = "history is read one channel at a time, so a pattern brings no replay";

/** Takes the watermark and the effective class (§7), and says what falls short whoever is asked. */
export function learn(room: Room, settings: Settings, mode: Mode, events: Events): void {
  const told = room.shortfall;
  room.frontier = settings.frontier;
  room.position = settings.frontier;
  room.class = effectiveConfig(settings.config, settings.defaults).deliveryClass;
  // What was feared of a channel that nobody could tell about holds of a durable one alone.
  if (room.class !== "durable" && isConcrete(room.channel)) room.shortfall = undefined;
  if (isWide(room.channel)) room.shortfall = WIDE;
  else if (room.class === "durable" && mode === "open") room.shortfall = OPEN_SPACE;
  if (room.shortfall !== undefined && room.shortfall !== told && !room.isMember) {
    events.tell({ type: "shortfall", subject: room.channel, message: room.shortfall });
  }
}

/** Nobody can say what the channel is like: it may be durable, and then its backstop is not there (§7). */
export function doubt(room: Room, error: CotalError, events: Events): void {
  room.shortfall = isWide(room.channel) ? WIDE : shortfallOf(error);
  events.tell({ type: "shortfall", subject: room.channel, message: room.shortfall });
}

const WIDE = "a subscription with * or the root > takes no durable membership: it is joined live only";

/** `*` anywhere, or the root `>` (§7): no durable membership. */
function isWide(channel: string): boolean {
  return channel === ">" || channel.split(".").includes("*");
}

/** Is a reading that failed worth another try? A refusal is not. */
export function isAway(error: CotalError): boolean {
  return error.code !== ErrorCode.PermissionDenied && error.code !== ErrorCode.BadRequest;
}

/** Where the replay of a join begins: at the channel's configured window (§7). */
export function replayRange(
  settings: Settings,
  { replay, fromSeq }: JoinOptions,
  now: () => number,
): Omit<HistoryRange, "upToSeq"> | undefined {
  const config = effectiveConfig(settings.config, settings.defaults);
  if (!(replay ?? config.replay)) return undefined;
  if (fromSeq !== undefined) return { fromSeq };
  return config.replayWindowMs === undefined ? {} : { sinceMs: Math.max(0, now() - config.replayWindowMs) };
}

export function view(room: Room): Omit<Joined, "replayed"> {
  return {
    channel: room.channel,
    state: room.isMember ? "joined durable" : "joined live",
    class: room.class,
    ...(room.shortfall === undefined ? {} : { shortfall: room.shortfall }),
    ...(room.frontier === undefined ? {} : { frontier: room.frontier }),
    ...(room.caughtUp && room.position !== undefined ? { position: room.position } : {}),
  };
}
