/**
 * Drains a durable of a trusted daemon's own, one message at a time in the order in which they come.
 *
 * For the store side only: a client pulls singly (`client/pull.ts`, H62).
 *
 * Invariants
 * 1. A message is acknowledged after it was handled, or given back; it is never lost and may come again.
 * 2. What the broker says is told from a message by the subject it comes on, which nobody chooses who
 *    publishes: never by a status line or an empty body, which a stored message can carry.
 * 3. Whatever goes wrong, the durable is bound anew, its shape proved (§13.9), and the draining goes on.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { AckBody, jsApi, nakBody, parseAck } from "../protocol/base/broker-subjects.ts";
import type { ConsumerSpec } from "./durables.ts";
import { ensureConsumer } from "./ensure.ts";
import { newInbox } from "./inbox.ts";

/** What becomes of a message: it is done with, for good or for bad, or it is to come again. */
export type Handled = "done" | "never" | "later";

export type Pulled = {
  readonly subject: string;
  readonly data: Uint8Array;
  /** `undefined`: a block that can't be read. */
  readonly headerNames: readonly string[] | undefined;
  readonly seq: number;
};

export type DrainOptions = {
  readonly nc: NatsConnection;
  readonly spec: ConsumerSpec;
  /** Never rejects. */
  readonly handle: (message: Pulled) => Promise<Handled>;
  /** Binding or pulling failed; it is tried again. */
  readonly onFault: (thrown: unknown) => void;
};

export type Draining = {
  /** The durable was looked for once: it is there, or `onFault` was told why not. */
  readonly begun: Promise<void>;
  /** Pulls no more, waits a little for the message in hand, gives back what came after it. */
  readonly stop: () => Promise<void>;
};

const EXPIRES_MS = 5000;
/** How long after its expiry the broker may take to say so. */
const GRACE_MS = 2000;
const AGAIN_MS = 1000;
/** A broker that is silent holds up no stop: what was in hand comes again. */
const STOP_MS = 2000;
/** Before a message that could not be handled comes again. */
const LATER_MS = 500;

export function drain(options: DrainOptions): Draining {
  const stopping = new AbortController();
  const first = bind(options);
  const ended = run(options, stopping.signal, first);
  return {
    begun: first.then(() => undefined),
    stop: async () => {
      stopping.abort();
      await Promise.race([ended, sleep(STOP_MS, undefined, { ref: false })]);
    },
  };
}

/** Is it there, in its shape? Made, if it was not. */
async function bind({ nc, spec, onFault }: DrainOptions): Promise<boolean> {
  try {
    await ensureConsumer(nc, spec);
    return true;
  } catch (thrown) {
    onFault(thrown);
    return false;
  }
}

async function run(options: DrainOptions, stopping: AbortSignal, first: Promise<boolean>): Promise<void> {
  const { nc, onFault } = options;
  let bound = await first;
  while (!stopping.aborted && !nc.isClosed()) {
    try {
      bound = (bound || (await bind(options))) && (await pull(options, stopping));
    } catch (thrown) {
      bound = false;
      if (!stopping.aborted) onFault(thrown);
    }
    if (!bound) await pause(AGAIN_MS, stopping);
  }
}

/** One pull to its end. False: the durable did not answer as one that is there. */
async function pull({ nc, spec, handle }: DrainOptions, stopping: AbortSignal): Promise<boolean> {
  const batch = spec.config.max_batch;
  const inbox = newInbox(nc);
  const answers = nc.subscribe(inbox, { max: batch + 1 });
  const end = (): void => void answers.drain().catch(() => undefined);
  stopping.addEventListener("abort", end, { once: true });
  const overdue = setTimeout(() => answers.unsubscribe(), EXPIRES_MS + GRACE_MS);
  let left = batch;
  let answered = stopping.aborted;
  try {
    const body = { batch, expires: EXPIRES_MS * 1_000_000 };
    nc.publish(jsApi.next(spec.stream, spec.name), JSON.stringify(body), { reply: inbox });
    for await (const message of answers) {
      if (message.subject === inbox) {
        const code = statusOf(message);
        // Expired, or nothing there: the durable has spoken. All else: it is gone, moved, or refuses.
        return code === 408 || code === 404;
      }
      answered = true;
      overdue.refresh();
      await take(nc, message, stopping.aborted ? giveBack : handle);
      left -= 1;
      if (left === 0) return true;
    }
    return answered || stopping.aborted;
  } finally {
    clearTimeout(overdue);
    stopping.removeEventListener("abort", end);
    answers.unsubscribe();
  }
}

const giveBack = (): Promise<Handled> => Promise.resolve("later");

async function take(nc: NatsConnection, message: Msg, handle: DrainOptions["handle"]): Promise<void> {
  const { subject, data, reply } = message;
  const seq = parseAck(reply)?.streamSequence;
  if (reply === undefined || seq === undefined) return;
  const handled = await handle({ subject, data, headerNames: headerNamesOf(message), seq });
  nc.publish(reply, ANSWER[handled]);
}

const ANSWER: Readonly<Record<Handled, string>> = {
  done: AckBody.Ack,
  never: AckBody.Term,
  later: nakBody(LATER_MS),
};

/** nats.js decodes headers on first use and throws on a block that any publisher can send. */
function headerNamesOf(message: Msg): readonly string[] | undefined {
  try {
    return message.headers?.keys() ?? [];
  } catch {
    return undefined;
  }
}

function statusOf(message: Msg): number {
  try {
    return message.headers?.code ?? 0;
  } catch {
    return 0;
  }
}

async function pause(ms: number, stopping: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal: stopping }).catch(() => undefined);
}
