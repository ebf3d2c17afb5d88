/**
 * The count that a member's subject keeps, which every copy is stamped with (§8): read at most five seconds before
 * the copy is written.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { historyLimits } from "../../../shared/broker/limits.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";

export type Stamp = () => Promise<string>;

/** Leaves time for the batch that is written with it. */
const FRESH_MS = 2500;
const NONE = "none";

export function createStamp(nc: NatsConnection, space: string, now: () => number = () => performance.now()): Stamp {
  let stamp = NONE;
  let readAt = Number.NEGATIVE_INFINITY;
  return async () => {
    if (now() - readAt < FRESH_MS) return stamp;
    const began = now();
    const { maxPerSubject } = await historyLimits(nc, spaceNames(space).dlv);
    stamp = maxPerSubject === null ? NONE : String(maxPerSubject);
    readAt = began;
    return stamp;
  };
}
