/**
 * One atomic batch: all of its messages are stored, or none.
 *
 * nats.js's own batch helper drops expectations in silence, so the headers are written here. Only a
 * stream of trusted writers allows batches (DLV).
 *
 * Invariants
 * 1. At most 1,000 messages, and one expectation per subject (measured; the broker refuses more).
 * 2. Messages go out in one run with the commit last, on one connection, so the broker sees them in order.
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

export async function publishBatch(
  nc: NatsConnection,
  stream: string,
  messages: readonly BatchMessage[],
  timeoutMs: number = COMMIT_TIMEOUT_MS,
): Promise<Committed> {
  const last = messages.at(-1);
  assertLawful(messages);
  if (last === undefined) throw badRequest("a batch holds at least one message");
  const doing = `commit a batch to ${stream}`;
  const id = nuid.next();
  let answer: Uint8Array;
  try {
    messages.slice(0, -1).forEach((message, index) => {
      nc.publish(message.subject, message.data, { headers: batchHeaders(stream, id, index + 1, message) });
    });
    const commit = batchHeaders(stream, id, messages.length, last);
    commit.set(Header.BatchCommit, "1");
    ({ data: answer } = await nc.request(last.subject, last.data, { headers: commit, timeout: timeoutMs }));
  } catch (thrown) {
    throw publishFault(thrown, doing);
  }
  const ack = parseAnswer(answer, doing);
  assertStream(ack, stream, doing);
  return { lastSeq: numberIn(ack, "seq"), count: numberIn(ack, "count") };
}

function assertLawful(messages: readonly BatchMessage[]): void {
  if (messages.length > MAX_BATCH_MESSAGES) throw badRequest(`a batch holds at most ${MAX_BATCH_MESSAGES} messages`);
  const pinned = messages.filter(({ expectedSeq }) => expectedSeq !== undefined).map(({ subject }) => subject);
  if (new Set(pinned).size !== pinned.length) throw badRequest("a batch holds one expectation per subject");
}

function batchHeaders(stream: string, id: string, sequence: number, message: BatchMessage): MsgHdrs {
  const sent = headers();
  for (const [name, value] of Object.entries(message.headers ?? {})) sent.set(name, value);
  sent.set(Header.BatchId, id);
  sent.set(Header.BatchSequence, String(sequence));
  sent.set(Header.ExpectedStream, stream);
  if (message.expectedSeq !== undefined) sent.set(Header.ExpectedLastSubjectSequence, String(message.expectedSeq));
  return sent;
}
