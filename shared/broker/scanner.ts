/**
 * A sealed scanner (supplement E): one connection and one literal consumer name, and with them every last row of some
 * patterns of one stream, in a few round trips however many there are.
 *
 * Invariants
 * 1. The consumer is ephemeral, in memory, last-per-subject and pulled; it is made for one scan and deleted after it.
 *    What a process that died has left under the name goes first, so no scan goes on where another one stopped.
 * 2. One scan at a time: whoever comes meanwhile waits.
 * 3. It is whole or it fails: deliveries are counted, and the end is the broker's word that nothing is left. A row's
 *    own bytes or headers never end a scan.
 * 4. The end of the connection is the end of the scanner: nothing here dials.
 *
 * A replica may serve it. Whoever decides on a scan must meet in it the row that he wrote last (`shared/ledger/scan.ts`).
 */
import type { Msg, MsgHdrs } from "@nats-io/transport-node";
import { type AckInfo, jsApi, parseAck } from "../protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../protocol/base/errors.ts";
import { API_TIMEOUT_MS, apiRequest } from "./api.ts";
import type { Connection } from "./connection.ts";
import { ApiCode, apiNumber } from "./errors.ts";
import { newInbox } from "./inbox.ts";

export type ScannedEntry = {
  readonly subject: string;
  readonly seq: number;
  /** `unreadable`: nats.js refuses to decode them. */
  readonly headers: MsgHdrs | undefined | "unreadable";
  readonly data: Uint8Array;
};

export type Scanner = {
  /** Every last message of these subjects and patterns, at least two, in the order of their writes. */
  readonly scan: (filters: readonly [string, string], onEntry: (entry: ScannedEntry) => void) => Promise<void>;
};

/** Messages of one pull: what may be under way to us at once. */
const PULL = 500;
/** For how long the broker keeps the consumer of a process that died. */
const LEFT_NS = 30_000_000_000;

export function createScanner(
  { nc, closed }: Pick<Connection, "nc" | "closed">,
  { stream, consumer }: { readonly stream: string; readonly consumer: string },
): Scanner {
  const doing = `scan ${stream}`;
  let last: Promise<unknown> = Promise.resolve();
  const died = closed.then(() => {
    throw new CotalError(ErrorCode.Unavailable, `${doing}: the scanner's connection has ended`, {
      outcome: Outcome.NotExecuted,
      next: "ask again, once the authority plane is held anew",
    });
  });
  died.catch(() => undefined);

  const remove = async (): Promise<void> => {
    try {
      await apiRequest(nc, jsApi.consumerDelete(stream, consumer), doing);
    } catch (error) {
      if (apiNumber(error) !== ApiCode.ConsumerNotFound) throw error;
    }
  };

  const make = (filters: readonly string[]): Promise<unknown> =>
    apiRequest(nc, jsApi.consumerCreate(stream, consumer), doing, {
      stream_name: stream,
      action: "create",
      config: {
        name: consumer,
        deliver_policy: "last_per_subject",
        ack_policy: "none",
        mem_storage: true,
        num_replicas: 1,
        inactive_threshold: LEFT_NS,
        filter_subjects: filters,
      },
    });

  const pulled = (onEntry: (entry: ScannedEntry) => void): Promise<void> =>
    new Promise((resolve, reject) => {
      const inbox = newInbox(nc);
      let count = 0;
      const end = (error?: unknown): void => {
        clearTimeout(stalled);
        subscription.unsubscribe();
        if (error === undefined) resolve();
        else reject(toCotalError(error));
      };
      const stalled = setTimeout(() => end(unfinished(doing, "the broker stopped answering")), API_TIMEOUT_MS);
      const pull = (): void =>
        nc.publish(jsApi.next(stream, consumer), JSON.stringify({ batch: PULL, no_wait: true }), { reply: inbox });
      const onMessage = (message: Msg): void => {
        // A row has the subject that it is stored under; only an answer about a pull has the pull's.
        if (message.subject === inbox) {
          return end(message.headers?.code === 404 ? undefined : unfinished(doing, "the broker gave it up"));
        }
        const at = parseAck(message.reply);
        if (at?.consumerSequence !== count + 1) return end(unfinished(doing, "a row was lost on the way"));
        count += 1;
        onEntry(entryOf(message, at));
        stalled.refresh();
        if (count % PULL === 0) pull();
      };
      const subscription = nc.subscribe(inbox, {
        callback: (error, message) => {
          try {
            if (error === null) onMessage(message);
            else end(error);
          } catch (thrown) {
            end(thrown);
          }
        },
      });
      died.catch(end);
      pull();
    });

  const run = async (filters: readonly [string, string], onEntry: (entry: ScannedEntry) => void): Promise<void> => {
    await remove();
    await make(filters);
    try {
      await pulled(onEntry);
    } finally {
      // What can't be deleted now is before the next scan, or by the broker.
      await remove().catch(() => undefined);
    }
  };

  return {
    scan: (filters, onEntry) => {
      const mine = last.then(() => Promise.race([run(filters, onEntry), died]));
      last = mine.catch(() => undefined);
      return mine;
    },
  };
}

function entryOf(message: Msg, { streamSequence }: AckInfo): ScannedEntry {
  const { subject, data } = message;
  return { subject, seq: streamSequence, headers: headersOf(message), data };
}

function headersOf(message: Msg): ScannedEntry["headers"] {
  try {
    return message.headers;
  } catch {
    return "unreadable";
  }
}

function unfinished(doing: string, why: string): CotalError {
  return new CotalError(ErrorCode.Unavailable, `${doing}: ${why}`, { outcome: Outcome.NotExecuted, next: "ask again" });
}
