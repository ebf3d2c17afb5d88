/**
 * The durable membership of a joined channel (§7): asked for once the broker has taken the subscription, and again
 * later where that may help.
 *
 * Invariants
 * 1. A channel that was left while it was asked is left durably too.
 * 2. What falls short is told when it is another than before, and so is its end.
 * 3. Where asking again helps nobody, nothing is asked again.
 */
import { ErrorCode, toCotalError } from "../protocol/base/errors.ts";
import { effectiveConfig } from "../protocol/chat/channel-config.ts";
import type { Events } from "./events.ts";
import { type Memberships, asksForMembership, shortfallOf } from "./memberships.ts";
import type { Reads } from "./reads.ts";
import { MAX_RETRY_MS, RETRY_MS, type Room, isAway } from "./room.ts";

export type EstablishingParts = {
  /** Where there is somebody to ask; not in an open space. */
  readonly memberships: Memberships | undefined;
  readonly events: Events;
  readonly reads: Reads;
};

export type Establishing = {
  /** Resolves when the first asking is over, however it ended. */
  readonly establish: (room: Room) => Promise<void>;
  /** Of a pattern, which no catching-up asks for: what it is like is asked again until somebody says. */
  readonly learnLater: (room: Room) => void;
};

export function establishing({ memberships, events, reads }: EstablishingParts): Establishing {
  const establish = async (room: Room, waitMs = RETRY_MS): Promise<void> => {
    const { channel, frontier } = room;
    if (memberships === undefined || room.isMember || room.gone || frontier === undefined) return;
    if (!asksForMembership(channel, room.class)) return;
    try {
      await memberships.join(channel, frontier);
      if (room.gone) {
        await memberships.leave(channel);
        return;
      }
      room.isMember = true;
      if (room.shortfall !== undefined) events.tell({ type: "joined-durable", channel });
      room.shortfall = undefined;
    } catch (thrown) {
      const error = toCotalError(thrown);
      const message = shortfallOf(error);
      if (room.gone) return;
      if (message !== room.shortfall) events.tell({ type: "shortfall", subject: channel, message });
      room.shortfall = message;
      if (!isAway(error) || (error.code === ErrorCode.FailedPrecondition && waitMs === RETRY_MS)) return;
      const again = async (): Promise<void> => {
        if (error.code === ErrorCode.FailedPrecondition) await relearn(room);
        await establish(room, Math.min(2 * waitMs, MAX_RETRY_MS));
      };
      room.retries.add(setTimeout(() => void again(), waitMs));
    }
  };
  const learnLater = (room: Room, waitMs = RETRY_MS): void => {
    const again = async (): Promise<void> => {
      await relearn(room);
      if (room.frontier === undefined) learnLater(room, Math.min(2 * waitMs, MAX_RETRY_MS));
      else await establish(room);
    };
    room.retries.add(setTimeout(() => void again(), waitMs));
  };
  /** The cursor may lie too far back by now, or the channel be another class. */
  const relearn = async (room: Room): Promise<void> => {
    try {
      const { frontier, config, defaults } = await reads.frontier(room.channel);
      room.frontier = frontier;
      room.class = effectiveConfig(config, defaults).deliveryClass;
    } catch {
      // The next try asks with what is known.
    }
  };
  return { establish: (room) => establish(room), learnLater: (room) => learnLater(room) };
}
