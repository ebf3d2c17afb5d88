/**
 * Makes a stream anew at the sequences it had: for a restore, and for nothing else.
 *
 * Invariants
 * 1. A message is stored at the sequence that it is given with, or the whole run is refused. What was removed of the
 *    old stream is a hole of the new one too, so a cursor, a membership's interval and the number that a sender
 *    knows a request by mean what they meant.
 * 2. The stream is new: what was there under its name is deleted first, with its creation time (§8.1).
 * 3. A bounded number of publishes is in flight.
 */
import { type MsgHdrs, type NatsConnection, headers } from "@nats-io/transport-node";
import { jsApi } from "../protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../protocol/base/errors.ts";
import { apiRequest, numberIn, parseAnswer } from "./api.ts";
import { ApiCode, apiNumber } from "./errors.ts";
import { request } from "./requests.ts";
import type { StreamSpec } from "./resources.ts";
import { assertStream, publishFault } from "./write.ts";

const IN_FLIGHT = 256;
const ACK_TIMEOUT_MS = 30_000;

export type Restored = {
  readonly seq: number;
  readonly subject: string;
  readonly headers?: readonly (readonly [string, readonly string[]])[];
  readonly data: Uint8Array;
};

export type RecreateOptions = {
  readonly nc: NatsConnection;
  readonly spec: StreamSpec;
  /** Kept per subject from the start; ages are set afterwards, for a restored message is as old as its restore. */
  readonly maxPerSubject: number;
  /** The last sequence that the stream had given out. */
  readonly lastSeq: number;
  /** A subject of the stream that holds nothing else: it stands for what was removed, and is purged. */
  readonly hole: string;
};

/** Fills the stream with the messages, which come in the order of their sequences. */
export async function recreateStream(options: RecreateOptions, messages: AsyncIterable<Restored>): Promise<void> {
  const { nc, spec, lastSeq, hole } = options;
  await deleteStream(nc, spec.name);
  const pipe = createPipe(nc, spec.name);
  let next: number | undefined;
  for await (const message of messages) {
    next ??= await createAt(options, message.seq);
    for (; next < message.seq; next += 1) await pipe.store({ seq: next, subject: hole, data: NOTHING });
    await pipe.store(message);
    next += 1;
  }
  next ??= await createAt(options, lastSeq + 1);
  for (; next <= lastSeq; next += 1) await pipe.store({ seq: next, subject: hole, data: NOTHING });
  await pipe.done();
  await apiRequest(
    nc,
    jsApi.streamPurge(spec.name),
    `clear the holes of ${spec.name}`,
    { filter: hole },
    ACK_TIMEOUT_MS,
  );
}

/** True if it was there. */
export async function deleteStream(nc: NatsConnection, stream: string): Promise<boolean> {
  try {
    await apiRequest(nc, jsApi.streamDelete(stream), `delete stream ${stream}`, undefined, ACK_TIMEOUT_MS);
    return true;
  } catch (error) {
    if (apiNumber(error) !== ApiCode.StreamNotFound) throw error;
    return false;
  }
}

const NOTHING = new Uint8Array();

/** Returns the first sequence, which is the next one. */
async function createAt({ nc, spec, maxPerSubject }: RecreateOptions, firstSeq: number): Promise<number> {
  const { adjustable: _, ...config } = spec;
  await apiRequest(nc, jsApi.streamCreate(spec.name), `create stream ${spec.name}`, {
    ...config,
    max_msgs_per_subject: maxPerSubject,
    first_seq: firstSeq,
    pedantic: true,
  });
  return firstSeq;
}

function createPipe(nc: NatsConnection, stream: string) {
  let flying = 0;
  let fault: Error | undefined;
  let landed: (() => void) | undefined;
  const untilFewer = async (than: number): Promise<void> => {
    while (flying >= than && fault === undefined) {
      await new Promise<void>((resolve) => {
        landed = resolve;
      });
    }
    if (fault !== undefined) throw fault;
  };
  return {
    store: async (message: Restored): Promise<void> => {
      await untilFewer(IN_FLIGHT);
      flying += 1;
      void publishAt(nc, stream, message)
        .catch((thrown: unknown) => {
          fault ??= toCotalError(thrown);
        })
        .finally(() => {
          flying -= 1;
          landed?.();
        });
    },
    done: () => untilFewer(1),
  };
}

async function publishAt(nc: NatsConnection, stream: string, message: Restored): Promise<void> {
  const doing = `write to ${stream}`;
  let answer: Uint8Array;
  try {
    const options = { headers: blockOf(message), timeoutMs: ACK_TIMEOUT_MS };
    ({ data: answer } = await request(nc, message.subject, message.data, options));
  } catch (thrown) {
    throw publishFault(thrown, doing);
  }
  const ack = parseAnswer(answer, doing);
  assertStream(ack, stream, doing);
  const seq = numberIn(ack, "seq");
  if (seq === message.seq) return;
  throw new CotalError(ErrorCode.Conflict, `${doing}: ${seq} was given where ${message.seq} had to follow`, {
    outcome: Outcome.Unknown,
    next: "somebody else writes to this store: stop every daemon of the space, and restore again",
  });
}

function blockOf({ headers: given = [] }: Restored): MsgHdrs {
  const block = headers();
  for (const [name, values] of given) for (const value of values) block.append(name, value);
  return block;
}
