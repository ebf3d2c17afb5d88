/** Waits until the broker has had its say about what was published. */
import { setImmediate as turn } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import { closedAfter, silence } from "./rail-errors.ts";

/**
 * What the broker says of a publish comes on the same socket ahead of its answer to a ping, and reaches its
 * watch a turn later. A cast whose refusal could not come is not told as sent.
 */
export async function flushed(nc: NatsConnection, deadlineMs: number, what: string): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(silence(what, deadlineMs)), deadlineMs);
  });
  const gone = (): never => {
    throw closedAfter(what);
  };
  try {
    await Promise.race([nc.flush().catch(gone), late]);
    await turn();
  } finally {
    clearTimeout(timer);
  }
}
