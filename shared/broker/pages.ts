/**
 * Pages of a stream by batched direct gets: for history and listings, never for a decision.
 *
 * Invariants
 * 1. A page is bounded in messages and bytes, and says itself whether there is more. Absence follows
 *    only from pages that were read to `done`.
 * 2. The end of a batch is told by what the broker adds to every copy, never by an empty body or a
 *    status line, which a sender can forge (`stored-headers.ts`).
 * 3. A message that nats.js can't decode costs one leader read, not the page.
 */
import type { Msg, MsgHdrs, NatsConnection, Subscription } from "@nats-io/transport-node";
import { jsApi } from "../protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { Header } from "../protocol/base/headers.ts";
import { API_TIMEOUT_MS } from "./api.ts";
import { fromApi, fromNats } from "./errors.ts";
import { answersOf } from "./inbox.ts";
import { type StoredEntry, leaderNext, leaderRead } from "./leader.ts";
import { provenanceOf, withoutProvenance } from "./stored-headers.ts";

export type PageRequest = {
  /** A subject or pattern of the stream. */
  readonly filter: string;
  /** First sequence to look at; 1 if left out. Not together with `startTimeMs`. */
  readonly fromSeq?: number;
  readonly startTimeMs?: number;
  /** Nothing above this sequence. */
  readonly upToSeq?: number;
  /** At most this many messages. */
  readonly batch: number;
  /** A page ends with the message that passes this many bytes. */
  readonly maxBytes?: number;
};

export type Page = {
  readonly messages: readonly StoredEntry[];
  /** Nothing was left when this page was made. */
  readonly done: boolean;
  /** Where the next page starts, unless done. */
  readonly nextSeq?: number;
};

const MAX_BATCH = 1000;
const MAX_BYTES = 4 * 1024 * 1024;

/** One page in stream order, by a batched direct get (a replica may answer). */
export async function directPage(nc: NatsConnection, stream: string, request: PageRequest): Promise<Page> {
  const batch = Math.max(1, Math.min(request.batch, MAX_BATCH));
  const body = {
    next_by_subj: request.filter,
    batch,
    max_bytes: Math.max(1, Math.min(request.maxBytes ?? MAX_BYTES, MAX_BYTES)),
    ...(request.startTimeMs === undefined
      ? { seq: Math.max(1, request.fromSeq ?? 1) }
      : { start_time: new Date(request.startTimeMs).toISOString() }),
  };
  const doing = `read a page of ${stream}`;
  const subscription = answersOf(nc, batch + 1);
  try {
    nc.publish(jsApi.directGet(stream), JSON.stringify(body), { reply: subscription.getSubject() });
    const read = await collect(subscription, doing, request.upToSeq ?? Infinity);
    return read.unreadable ? await passUnreadable(nc, stream, request, read.messages) : pageOf(read);
  } catch (thrown) {
    throw fromNats(thrown, doing);
  } finally {
    subscription.unsubscribe();
  }
}

/** How many messages of a subject are stored since then (a replica may answer). */
export async function directCount(
  nc: NatsConnection,
  stream: string,
  filter: string,
  sinceMs: number,
): Promise<number> {
  const doing = `count in ${stream}`;
  const subscription = answersOf(nc, 2);
  const deadline = setTimeout(() => subscription.unsubscribe(), API_TIMEOUT_MS);
  const body = { next_by_subj: filter, batch: 1, start_time: new Date(sinceMs).toISOString() };
  try {
    nc.publish(jsApi.directGet(stream), JSON.stringify(body), { reply: subscription.getSubject() });
    let first = 0;
    for await (const message of subscription) {
      const headers = headersOf(message);
      if (headers !== "unreadable" && provenanceOf(headers) === undefined) return first + leftAfter(headers, doing);
      first = 1;
    }
  } catch (thrown) {
    throw fromNats(thrown, doing);
  } finally {
    clearTimeout(deadline);
    subscription.unsubscribe();
  }
  throw unfinished(doing);
}

type Collected = {
  readonly messages: StoredEntry[];
  /** How many are left behind the last one. */
  readonly left: number;
  /** The next message has headers that nats.js refuses to decode. */
  readonly unreadable: boolean;
};

function pageOf({ messages, left }: Collected): Page {
  const last = messages.at(-1);
  if (left === 0 || last === undefined) return { messages, done: true };
  return { messages, done: false, nextSeq: last.seq + 1 };
}

async function collect(answers: Subscription, doing: string, upToSeq: number): Promise<Collected> {
  const messages: StoredEntry[] = [];
  const deadline = setTimeout(() => answers.unsubscribe(), API_TIMEOUT_MS);
  try {
    for await (const message of answers) {
      deadline.refresh();
      const headers = headersOf(message);
      if (headers === "unreadable") return { messages, left: 1, unreadable: true };
      const copy = provenanceOf(headers);
      if (copy === undefined || headers === undefined) {
        return { messages, left: leftAfter(headers, doing), unreadable: false };
      }
      if (copy.seq > upToSeq) return { messages, left: 0, unreadable: false };
      const { subject, seq, timeMs } = copy;
      messages.push({ subject, seq, timeMs, headers: withoutProvenance(headers), data: message.data });
    }
  } finally {
    clearTimeout(deadline);
  }
  throw unfinished(doing);
}

function unfinished(doing: string): CotalError {
  return new CotalError(ErrorCode.DeadlineExceeded, `${doing}: the broker did not finish it`, {
    outcome: Outcome.NotExecuted,
    next: "read again",
  });
}

function headersOf(message: Msg): MsgHdrs | undefined | "unreadable" {
  try {
    return message.headers;
  } catch {
    return "unreadable";
  }
}

/** Reads a status: how many messages a finished batch left, or what was refused. */
function leftAfter(status: MsgHdrs | undefined, doing: string): number {
  const code = status?.code ?? 0;
  if (code === 204) return Number(status?.get(Header.NumPending) ?? 0);
  if (code === 404) return 0;
  if (code === 503) {
    throw new CotalError(ErrorCode.Unavailable, `${doing}: no server answers direct gets of this stream`, {
      outcome: Outcome.NotExecuted,
      next: "check that the stream exists and allows direct gets; cotal doctor compares both",
    });
  }
  throw fromApi({ code: code === 408 ? 400 : code, description: status?.description ?? "no status" }, doing);
}

/** The leader's answer carries headers as bytes, which we parse ourselves: the page ends behind it. */
async function passUnreadable(
  nc: NatsConnection,
  stream: string,
  request: PageRequest,
  messages: readonly StoredEntry[],
): Promise<Page> {
  const last = messages.at(-1)?.seq;
  const next =
    last === undefined && request.startTimeMs !== undefined
      ? await leaderRead(nc, stream, {
          next_by_subj: request.filter,
          start_time: new Date(request.startTimeMs).toISOString(),
        })
      : await leaderNext(nc, stream, request.filter, last === undefined ? (request.fromSeq ?? 1) : last + 1);
  if (next === undefined || next.seq > (request.upToSeq ?? Infinity)) return { messages, done: true };
  return { messages: [...messages, next], done: false, nextSeq: next.seq + 1 };
}
