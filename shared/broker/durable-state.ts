/**
 * How far a durable has come, as the broker counts it: numbers and times, never a message.
 *
 * Invariant: a removal by the stream's limit counts for the broker like an ack (measured on 2.14). So a message is
 * confirmed only where it lies at or below `floorSeq` and is still stored; and `settledAt` may be such a removal.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { jsApi } from "../protocol/base/broker-subjects.ts";
import { type Json, apiRequest, numberIn, objectIn } from "./api.ts";
import { ApiCode, apiNumber } from "./errors.ts";

export type DurableState = {
  /** Stored for it, and handed to nobody yet. */
  readonly waiting: number;
  /** Handed out, and not settled. */
  readonly out: number;
  /** Of `out`, those that were handed out more than once. */
  readonly redelivered: number;
  /** It never gets what lies below. */
  readonly startSeq: number;
  /** What of its subject lies above has been handed to nobody. */
  readonly deliveredSeq: number;
  /** What of its subject lies at or below is settled. */
  readonly floorSeq: number;
  /** Nothing above the floor is settled: each that was handed out is still out. */
  readonly isInOrder: boolean;
  /** Epoch milliseconds; left out where it has not happened since the broker began to serve this durable. */
  readonly deliveredAt?: number;
  readonly settledAt?: number;
};

/** `undefined`: there is no such durable. */
export async function durableState(
  nc: NatsConnection,
  stream: string,
  name: string,
): Promise<DurableState | undefined> {
  let answer: Json;
  try {
    answer = await apiRequest(nc, jsApi.consumerInfo(stream, name), `look at consumer ${name}`);
  } catch (error) {
    if (apiNumber(error) === ApiCode.ConsumerNotFound) return undefined;
    throw error;
  }
  const [delivered, floor] = [objectIn(answer, "delivered"), objectIn(answer, "ack_floor")];
  const start = objectIn(answer, "config")["opt_start_seq"];
  const out = numberIn(answer, "num_ack_pending");
  return {
    waiting: numberIn(answer, "num_pending"),
    out,
    redelivered: numberIn(answer, "num_redelivered"),
    startSeq: typeof start === "number" ? start : 1,
    deliveredSeq: numberIn(delivered, "stream_seq"),
    floorSeq: numberIn(floor, "stream_seq"),
    isInOrder: numberIn(delivered, "consumer_seq") - numberIn(floor, "consumer_seq") === out,
    ...timed("deliveredAt", delivered),
    ...timed("settledAt", floor),
  };
}

function timed<Name extends "deliveredAt" | "settledAt">(name: Name, { last_active: at }: Json) {
  return typeof at === "string" ? ({ [name]: Date.parse(at) } as { readonly [N in Name]: number }) : {};
}
