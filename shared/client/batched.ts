/**
 * Publishes acks and pulls in one go at the end of a turn of the event loop.
 *
 * Why: nats.js writes to the socket in the microtask after the first publish, so a reader that
 * acknowledges item by item costs one system call each (measured: a fifth of an inbox's time).
 */
import type { NatsConnection } from "@nats-io/transport-node";

export type Batched = {
  readonly publish: (subject: string, body: string | Uint8Array, reply?: string) => void;
  /** Publishes what waits, now: before a drain or a close. */
  readonly flush: () => void;
};

type Waiting = { readonly subject: string; readonly body: string | Uint8Array; readonly reply: string | undefined };

export function createBatched(nc: NatsConnection): Batched {
  let waiting: Waiting[] = [];
  const flush = (): void => {
    const batch = waiting;
    waiting = [];
    try {
      for (const { subject, body, reply } of batch) nc.publish(subject, body, reply === undefined ? {} : { reply });
    } catch {
      // The connection is closed: what was not acknowledged stays pending and is delivered again.
    }
  };
  return {
    flush,
    publish: (subject, body, reply) => {
      if (waiting.push({ subject, body, reply }) === 1) setImmediate(flush);
    },
  };
}
