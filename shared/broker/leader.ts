/**
 * Leader reads: `STREAM.MSG.GET`, never a direct get. Only these gate a write, or say "absent" (§13.9).
 */
import type { MsgHdrs, NatsConnection } from "@nats-io/transport-node";
import { jsApi } from "../protocol/base/broker-subjects.ts";
import { badRequest } from "../protocol/base/errors.ts";
import { type Json, apiRequest, numberIn, objectIn } from "./api.ts";
import { ApiCode, apiNumber } from "./errors.ts";
import { parseHeaders } from "./stored-headers.ts";

export type StoredEntry = {
  readonly subject: string;
  readonly seq: number;
  readonly timeMs: number;
  readonly headers: MsgHdrs | undefined;
  readonly data: Uint8Array;
};

/** The last message of one subject as the stream's leader has it. */
export function leaderLast(nc: NatsConnection, stream: string, subject: string): Promise<StoredEntry | undefined> {
  // A pattern would answer with somebody else's row.
  if (subject.split(".").some((token) => token === "*" || token === ">" || token === "")) {
    return Promise.reject(badRequest("a leader read takes one literal subject"));
  }
  return leaderRead(nc, stream, { last_by_subj: subject });
}

/** The message at one sequence, from the leader. */
export function leaderGet(nc: NatsConnection, stream: string, seq: number): Promise<StoredEntry | undefined> {
  return leaderRead(nc, stream, { seq });
}

/** The first message at or after a sequence whose subject matches the filter, from the leader. */
export function leaderNext(
  nc: NatsConnection,
  stream: string,
  filter: string,
  fromSeq: number,
): Promise<StoredEntry | undefined> {
  return leaderRead(nc, stream, { seq: fromSeq, next_by_subj: filter });
}

/** A read by the API's own request body. */
export async function leaderRead(nc: NatsConnection, stream: string, body: object): Promise<StoredEntry | undefined> {
  let answer: Json;
  try {
    answer = await apiRequest(nc, jsApi.messageGet(stream), `read from ${stream}`, body);
  } catch (error) {
    const number = apiNumber(error);
    if (number === ApiCode.NoMessageFound || number === ApiCode.SequenceNotFound) return undefined;
    throw error;
  }
  const message = objectIn(answer, "message");
  const { hdrs, data } = message;
  return {
    subject: String(message["subject"]),
    seq: numberIn(message, "seq"),
    timeMs: Date.parse(String(message["time"])),
    headers: typeof hdrs === "string" ? parseHeaders(Buffer.from(hdrs, "base64")) : undefined,
    data: typeof data === "string" ? Buffer.from(data, "base64") : new Uint8Array(),
  };
}
