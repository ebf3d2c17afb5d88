/**
 * Stores that an earlier version made: what they lack is turned on in place.
 *
 * Siblings: `ensure.ts` finds the differences and changes nothing; `limits.ts` changes what an operator may.
 *
 * Invariants
 * 1. Only what stands in `TURNED_ON` is changed: one field of one store, from off to on, which the broker
 *    does without touching a message and never takes back. Any other difference stays one (supplement H).
 * 2. Safe to run again, and by several at once: each sends the same end.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { jsApi } from "../protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type BucketKey, bucketStream, spaceNames } from "../protocol/base/names.ts";
import { apiRequest } from "./api.ts";
import { type Drift, streamState } from "./ensure.ts";
import type { StreamSettings } from "./resources.ts";

/** What an earlier version left off, by bucket. */
const TURNED_ON: Partial<Record<BucketKey, readonly (keyof StreamSettings)[]>> = {
  // H24: evidence leaves under a marker that has a life, and nothing is deleted by its sequence.
  auth: ["allow_msg_ttl", "deny_delete"],
};

/** True for a difference that an earlier version explains, and that can be mended in place. */
export function isUpgrade(space: string, { stream, field, expected, found }: Drift): boolean {
  const isOff = expected === true && (found === false || found === undefined);
  return isOff && fieldsOf(space, stream).some((one) => one === field);
}

function fieldsOf(space: string, stream: string): readonly (keyof StreamSettings)[] {
  const { bucket } = spaceNames(space);
  const keys = Object.keys(bucket).filter((key): key is BucketKey => key in bucket);
  const key = keys.find((one) => bucketStream(bucket[one]) === stream);
  return (key === undefined ? undefined : TURNED_ON[key]) ?? [];
}

/** Turns these on; throws if the broker refuses, or if one did not stay on. */
export async function upgradeStores(nc: NatsConnection, space: string, steps: readonly Drift[]): Promise<void> {
  const lawful = steps.filter((step) => isUpgrade(space, step));
  for (const stream of new Set(lawful.map((step) => step.stream))) {
    const fields = lawful.filter((step) => step.stream === stream).map(({ field }) => field);
    const { config } = await streamState(nc, stream);
    const on = Object.fromEntries(fields.map((field) => [field, true]));
    await apiRequest(nc, jsApi.streamUpdate(stream), `bring ${stream} up to date`, { ...config, ...on });
    const { config: now } = await streamState(nc, stream);
    const off = fields.find((field) => now[field] !== true);
    if (off === undefined) continue;
    throw new CotalError(ErrorCode.Conflict, `${stream} was to be brought up to date, and its ${off} is still off`, {
      outcome: Outcome.Unknown,
      next: "another version may run beside this one: end it, then start again",
    });
  }
}
