/**
 * Ends a session in good order, all within 5 s: pulls stop, what nobody will handle goes back, what
 * is in hand is finished and acknowledged, the offline record is written, the connection drained.
 *
 * Invariant: every wait has a bound of its own, and the bounds sum up to less than the whole.
 */
import type { Connection } from "../broker/connect.ts";
import type { DurableReader } from "./durable.ts";
import type { Readers } from "./inbox.ts";
import type { InboxItem } from "./item.ts";
import type { Mailbox } from "./mailbox.ts";
import type { PresenceWriter } from "./presence.ts";
import type { Publisher } from "./publisher.ts";

export type ShutdownParts = {
  readonly connection: Connection;
  readonly durables: readonly DurableReader[];
  readonly mailbox: Mailbox<InboxItem>;
  readonly readers: Readers;
  readonly publisher: Publisher;
  readonly presence: PresenceWriter;
  readonly stopParts: () => void;
};

const HANDLING_MS = 2800;
const RECEIPTS_MS = 500;
const OFFLINE_MS = 500;
const CONNECTION_MS = 800;
const LOOK_MS = 10;

export async function shutDown(parts: ShutdownParts): Promise<void> {
  const { connection, durables, mailbox, publisher, presence } = parts;
  const pulls = Promise.all(durables.map((durable) => durable.stopPulling()));
  for (const item of mailbox.close()) item.nak(0);
  await Promise.all([
    within(pulls, HANDLING_MS),
    parts.readers.idle(HANDLING_MS),
    until(() => durables.every((durable) => durable.held() === 0), HANDLING_MS),
  ]);
  // What a reader still has in hand can't be acknowledged any more: the next session gets it.
  for (const durable of durables) durable.giveBack();
  await publisher.settled(RECEIPTS_MS);
  if (connection.isUp()) await presence.offline(OFFLINE_MS);
  parts.stopParts();
  await connection.drain(CONNECTION_MS);
  await connection.closed;
}

/** Waits for the work, not for its success: a connection that falls meanwhile ends the session too. */
export function within(work: Promise<unknown>, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    const done = (): void => {
      clearTimeout(timer);
      resolve();
    };
    work.then(done, done);
  });
}

async function until(done: () => boolean, ms: number): Promise<void> {
  const end = performance.now() + ms;
  while (!done() && performance.now() < end) {
    await new Promise((resolve) => {
      setTimeout(resolve, LOOK_MS);
    });
  }
}
