/**
 * The history limit of a stream (§8): how long, and how many per subject. `null` is none.
 *
 * Invariants
 * 1. The least age is the stream's own duplicate window (2 minutes for chat and DM, 2 hours for DLV,
 *    §8); the most is 3650 days; whole seconds. A count is at least 1.
 * 2. Reading accepts whatever stands there.
 * 3. Only these two fields change. The broker's update takes the whole configuration and no condition,
 *    so it is read right before and again after; a change that did not stay is a `conflict`.
 * 4. Lowering removes at once. The broker (2.14.0) forgets to when the count was none before, so a
 *    count above all others is set on the way (`ABOVE_ALL`).
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { jsApi } from "../protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, Outcome, badRequest } from "../protocol/base/errors.ts";
import { hasHistoryLimit } from "../protocol/base/names.ts";
import { type Json, apiRequest, numberIn } from "./api.ts";
import { type StreamState, streamState } from "./ensure.ts";

export type HistoryLimits = {
  readonly maxAgeSeconds: number | null;
  readonly maxPerSubject: number | null;
};

const SECOND_NS = 1e9;
/** A count that bounds nothing: what an interrupted change may leave behind, and so read as none. */
const ABOVE_ALL = Number.MAX_SAFE_INTEGER;
const MAX_AGE_SECONDS = 3650 * 86_400;

export async function historyLimits(nc: NatsConnection, stream: string): Promise<HistoryLimits> {
  return limitsOf((await streamState(nc, stream)).config);
}

function limitsOf(config: Json): HistoryLimits {
  const age = numberIn(config, "max_age");
  const count = numberIn(config, "max_msgs_per_subject");
  return {
    maxAgeSeconds: age <= 0 ? null : age / SECOND_NS,
    maxPerSubject: count <= 0 || count >= ABOVE_ALL ? null : count,
  };
}

/** Reads the stream; refuses what it could not be set to. */
export async function lawfulHere(nc: NatsConnection, stream: string, limits: HistoryLimits): Promise<StreamState> {
  if (!hasHistoryLimit(stream)) throw badRequest(`stream ${JSON.stringify(stream.slice(0, 80))} has no history limit`);
  const state = await streamState(nc, stream);
  assertLawful(limits, numberIn(state.config, "duplicate_window") / SECOND_NS);
  return state;
}

/** Sets both parts. What lies past a lowered limit is removed at once, read or not (§8). */
export async function setHistoryLimits(nc: NatsConnection, stream: string, limits: HistoryLimits): Promise<void> {
  const { config } = await lawfulHere(nc, stream, limits);
  const update = (fields: object): Promise<Json> =>
    apiRequest(nc, jsApi.streamUpdate(stream), `set the history limit of ${stream}`, { ...config, ...fields });
  if (limitsOf(config).maxPerSubject === null && limits.maxPerSubject !== null) {
    await update({ max_msgs_per_subject: ABOVE_ALL });
  }
  await update({
    max_age: limits.maxAgeSeconds === null ? 0 : limits.maxAgeSeconds * SECOND_NS,
    max_msgs_per_subject: limits.maxPerSubject ?? -1,
  });
  const now = await historyLimits(nc, stream);
  if (now.maxAgeSeconds === limits.maxAgeSeconds && now.maxPerSubject === limits.maxPerSubject) return;
  throw new CotalError(ErrorCode.Conflict, `another change of ${stream}'s history limit came between`, {
    outcome: Outcome.Unknown,
    next: "read the limit again and decide on what is there now",
  });
}

function assertLawful({ maxAgeSeconds, maxPerSubject }: HistoryLimits, leastSeconds: number): void {
  const lawfulAge =
    maxAgeSeconds === null ||
    (Number.isSafeInteger(maxAgeSeconds) && maxAgeSeconds >= leastSeconds && maxAgeSeconds <= MAX_AGE_SECONDS);
  if (!lawfulAge) {
    throw badRequest(
      `a history age of ${maxAgeSeconds} seconds is not allowed here`,
      `use whole seconds from ${leastSeconds} to ${MAX_AGE_SECONDS} (3650 days), or none`,
    );
  }
  if (
    maxPerSubject !== null &&
    (!Number.isSafeInteger(maxPerSubject) || maxPerSubject < 1 || maxPerSubject >= ABOVE_ALL)
  ) {
    throw badRequest(`a history count of ${maxPerSubject} is not allowed`, "use a whole number from 1, or none");
  }
}
