/**
 * One atomic batch: all of its messages are stored, or none.
 *
 * nats.js's own batch helper drops expectations in silence, so the headers are written here. Only a
 * stream of trusted writers allows batches (DLV).
 *
 * Invariants
 * 1. At most 1,000 messages, and one expectation per subject (measured; the broker refuses more).
 * 2. Messages go out in one run, the commit after them, on one connection, so the broker sees them in order.
 * 3. Any failed expectation, gap or lost leader leaves nothing behind: the commit's answer is the only
 *    proof. Silence means that nobody knows, and the fence (the marker's sequence) tells the next run.
 */
import { type MsgHdrs, type NatsConnection, headers, nuid } from "@nats-io/transport-node";
import { badRequest } from "../protocol/base/errors.ts";
import { Header } from "../protocol/base/headers.ts";
import { numberIn, parseAnswer } from "./api.ts";
import { assertStream, publishFault } from "./write.ts";

export const MAX_BATCH_MESSAGES = 1000;

export type BatchMessage = {
  readonly subject: string;
  readonly data: Uint8Array;
  readonly headers?: Readonly<Record<string, string>>;
  /** The sequence this subject must be at; 0 for a new one. */
  readonly expectedSeq?: number;
};

export type Committed = {
  /** Sequence of the batch's last message. */
  readonly lastSeq: number;
  readonly count: number;
};

const COMMIT_TIMEOUT_MS = 10_000;

/** Messages that the broker holds, none of them stored. Without a commit it forgets them after seconds. */
export type Staged = {
  /** Stores all of them, with this one as the last; or none. */
  readonly commit: (last: BatchMessage, timeoutMs?: number) => Promise<Committed>;
};

/** Sends all of a batch but its last message, which may depend on what is not known yet. */
export function stageBatch(nc: NatsConnection, stream: string, messages: readonly BatchMessage[]): Staged {
  if (messages.length >= MAX_BATCH_MESSAGES) throw badRequest(`a batch holds at most ${MAX_BATCH_MESSAGES} messages`);
  const pinned = messages.filter(({ expectedSeq }) => expectedSeq !== undefined).map(({ subject }) => subject);
  assertOnce(pinned);
  const doing = `commit a batch to ${stream}`;
  const id = nuid.next();
  const blocks = createBlocks(id);
  try {
    for (const [at, message] of messages.entries()) {
      nc.publish(message.subject, message.data, { headers: blocks.of(message, at + 1) });
    }
  } catch (thrown) {
    throw publishFault(thrown, doing);
  }
  return {
    commit: async (last, timeoutMs = COMMIT_TIMEOUT_MS) => {
      if (last.expectedSeq !== undefined) assertOnce([...pinned, last.subject]);
      const commit = fixedHeaders(stream, id, last);
      commit.set(Header.BatchSequence, String(messages.length + 1));
      commit.set(Header.BatchCommit, "1");
      let answer: Uint8Array;
      try {
        ({ data: answer } = await nc.request(last.subject, last.data, { headers: commit, timeout: timeoutMs }));
      } catch (thrown) {
        throw publishFault(thrown, doing);
      }
      const ack = parseAnswer(answer, doing);
      assertStream(ack, stream, doing);
      return { lastSeq: numberIn(ack, "seq"), count: numberIn(ack, "count") };
    },
  };
}

/** A whole batch at once. Nothing is sent of one that the broker would refuse. */
export async function publishBatch(
  nc: NatsConnection,
  stream: string,
  messages: readonly BatchMessage[],
  timeoutMs?: number,
): Promise<Committed> {
  const last = messages.at(-1);
  if (last === undefined) throw badRequest("a batch holds at least one message");
  assertOnce(messages.filter(({ expectedSeq }) => expectedSeq !== undefined).map(({ subject }) => subject));
  return stageBatch(nc, stream, messages.slice(0, -1)).commit(last, timeoutMs);
}

function assertOnce(pinned: readonly string[]): void {
  if (new Set(pinned).size !== pinned.length) throw badRequest("a batch holds one expectation per subject");
}

/**
 * What all messages of one kind in a batch have in common: everything but their number. The stream is expected by
 * the last one, for all: each reader of a copy pays for every header of it.
 */
function fixedHeaders(stream: string | undefined, id: string, message: BatchMessage): MsgHdrs {
  const sent = headers();
  for (const [name, value] of Object.entries(message.headers ?? {})) sent.set(name, value);
  sent.set(Header.BatchId, id);
  if (stream !== undefined) sent.set(Header.ExpectedStream, stream);
  if (message.expectedSeq !== undefined) sent.set(Header.ExpectedLastSubjectSequence, String(message.expectedSeq));
  return sent;
}

/**
 * Header blocks of a batch. A thousand copies of a post differ in their number alone, and building each block anew
 * costs more than everything else here: the common part is checked and written once, by the library.
 */
function createBlocks(id: string) {
  let bytes: Uint8Array = new Uint8Array();
  let common = "";
  let of: BatchMessage["headers"];
  let known = false;
  // The library asks for the bytes while it is given the message, before the next one is written.
  const shared = Object.assign(headers(), { encode: () => bytes });
  return {
    of: (message: BatchMessage, sequence: number): MsgHdrs => {
      if (!known || of !== message.headers || message.expectedSeq !== undefined) {
        common = textOf(fixedHeaders(undefined, id, message));
        of = message.headers;
        known = message.expectedSeq === undefined;
      }
      bytes = encoder.encode(`${common}${Header.BatchSequence}: ${sequence}\r\n\r\n`);
      return shared;
    },
  };
}

/** A header block without its end, as it goes over the wire. */
function textOf(of: MsgHdrs): string {
  const lines = of.keys().flatMap((name) => of.values(name).map((value) => `${name}: ${value}`));
  return ["NATS/1.0", ...lines, ""].join("\r\n");
}

const encoder = new TextEncoder();
