/** Empties a durable by single pulls with nats.js alone: what the inbox of a session is compared with. */
import type { NatsConnection } from "@nats-io/transport-node";
import { AckBody, jsApi } from "../../shared/protocol/base/broker-subjects.ts";
import { perSecond } from "./jobs.ts";

const EXPIRES_NS = 2e9;

export type Pulls = {
  readonly stream: string;
  readonly durable: string;
  /** A subject of one's own inbox. */
  readonly reply: string;
  /** So many are there. */
  readonly count: number;
  /** So many are asked for at once. */
  readonly pulls: number;
};

/** Each is acknowledged as it comes; how many a second. */
export async function drainByPulls(nc: NatsConnection, { stream, durable, reply, count, pulls }: Pulls) {
  const next = jsApi.next(stream, durable);
  const body = JSON.stringify({ batch: 1, expires: EXPIRES_NS });
  const inbox = nc.subscribe(reply);
  const began = performance.now();
  let asked = 0;
  const pull = (): void => {
    if (asked >= count) return;
    asked += 1;
    nc.publish(next, body, { reply });
  };
  for (let out = 0; out < pulls; out += 1) pull();
  let taken = 0;
  for await (const message of inbox) {
    if (message.reply === undefined) throw new Error("an answer without a message");
    nc.publish(message.reply, AckBody.Ack);
    taken += 1;
    if (taken === count) break;
    pull();
  }
  const rate = perSecond(count, began);
  await nc.flush();
  return rate;
}
