/**
 * Publishes acks and pulls in one go, a turn of the event loop after the first of them, or a few turns while each
 * brings more.
 *
 * Why: nats.js writes to the socket in the microtask after the first publish, so a reader that
 * acknowledges item by item costs one system call each (measured: a fifth of an inbox's time).
 *
 * Invariant: a turn that brings nothing more sends what waits, and so do so many that the broker could run out of pulls.
 */
import type { NatsConnection } from "@nats-io/transport-node";

export type Batched = {
  readonly publish: (subject: string, body: string | Uint8Array, reply?: string) => void;
  /** Publishes what waits, now: before a drain or a close. */
  readonly flush: () => void;
};

/** A pull and an acknowledgement each: a quarter of the pulls that may be out. */
const MOST = 24;

type Waiting = { readonly subject: string; readonly body: string | Uint8Array; readonly reply: string | undefined };

export function createBatched(nc: Pick<NatsConnection, "publish">): Batched {
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
  /** More came in this turn: more may come in the next one. */
  const turn = (before: number): void => {
    const now = waiting.length;
    if (now > before && now < MOST) setImmediate(turn, now);
    else flush();
  };
  return {
    flush,
    publish: (subject, body, reply) => {
      if (waiting.push({ subject, body, reply }) === 1) setImmediate(turn, 0);
    },
  };
}
