/**
 * All durables of a stream, with what they have out: pages of the broker's own list, 256 in one answer.
 *
 * Invariant: a list that the broker calls incomplete (a group of a cluster without a leader) is `unavailable`, never
 * a shorter list.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { z } from "zod";
import { jsApi } from "../protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Json, apiRequest } from "./api.ts";

const Info = z.looseObject({
  name: z.string(),
  config: z.record(z.string(), z.unknown()),
  delivered: z.looseObject({ stream_seq: z.number(), last_active: z.string().optional() }),
  ack_floor: z.looseObject({ stream_seq: z.number() }),
  num_ack_pending: z.number(),
  num_redelivered: z.number(),
  num_waiting: z.number(),
  num_pending: z.number(),
});

/** One durable as it stands. Sequences are the stream's. */
export type ConsumerState = {
  readonly name: string;
  readonly config: Json;
  /** Everything up to here is acknowledged. */
  readonly ackFloor: number;
  readonly delivered: number;
  /** Epoch milliseconds of the last delivery; `undefined` before the first. */
  readonly lastActive: number | undefined;
  /** Given away and not acknowledged. */
  readonly out: number;
  readonly redelivered: number;
  /** Pulls that stand. */
  readonly waiting: number;
  /** Not given away yet. */
  readonly pending: number;
};

const Page = z.looseObject({
  total: z.number(),
  consumers: z.array(Info).nullish(),
  missing: z.array(z.string()).nullish(),
});

export async function* consumersOf(nc: NatsConnection, stream: string): AsyncGenerator<ConsumerState> {
  for (let offset = 0; ;) {
    const answer = await apiRequest(nc, jsApi.consumerList(stream), `list the durables of ${stream}`, { offset });
    const { total, consumers, missing } = Page.parse(answer);
    if ((missing?.length ?? 0) > 0) throw leaderless(stream, missing?.[0] ?? "");
    const page = consumers ?? [];
    for (const one of page) yield stateOf(one);
    offset += page.length;
    if (page.length === 0 || offset >= total) return;
  }
}

function stateOf(info: z.infer<typeof Info>): ConsumerState {
  const active = info.delivered.last_active;
  return {
    name: info.name,
    config: info.config,
    ackFloor: info.ack_floor.stream_seq,
    delivered: info.delivered.stream_seq,
    lastActive: active === undefined ? undefined : Date.parse(active),
    out: info.num_ack_pending,
    redelivered: info.num_redelivered,
    waiting: info.num_waiting,
    pending: info.num_pending,
  };
}

function leaderless(stream: string, name: string): CotalError {
  return new CotalError(ErrorCode.Unavailable, `${name} of ${stream} has no leader`, {
    outcome: Outcome.NotExecuted,
    next: "wait until every server of the cluster is back, then ask again",
  });
}
