/**
 * JetStream as bare requests: what the broker itself answers, without a client library's opinion.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { publishOptions } from "./probe.ts";

export type Answer = { readonly [key: string]: unknown } & {
  readonly error?: { readonly code: number; readonly err_code?: number; readonly description?: string };
};

/** One API request; the body is JSON, text, or nothing. */
export async function api(nc: NatsConnection, verb: string, body?: object | string): Promise<Answer> {
  const data = body === undefined ? "" : typeof body === "string" ? body : JSON.stringify(body);
  return asked(nc, `$JS.API.${verb}`, data, {});
}

async function asked(nc: NatsConnection, subject: string, data: string, options: object): Promise<Answer> {
  try {
    return (await nc.request(subject, data, { timeout: 5000, ...options })).json<Answer>();
  } catch (cause) {
    throw new Error(`no answer to ${subject}`, { cause });
  }
}

/** Makes a stream; throws what the broker refuses. */
export async function makeStream(nc: NatsConnection, name: string, config: object): Promise<Answer> {
  return expectDone(await api(nc, `STREAM.CREATE.${name}`, { name, storage: "file", retention: "limits", ...config }));
}

/** Makes a pull durable; throws what the broker refuses. */
export async function makeDurable(
  nc: NatsConnection,
  stream: string,
  name: string,
  config: object = {},
): Promise<Answer> {
  const body = {
    stream_name: stream,
    action: "create",
    config: { name, durable_name: name, ack_policy: "explicit", deliver_policy: "all", max_deliver: -1, ...config },
  };
  return expectDone(await api(nc, `CONSUMER.CREATE.${stream}.${name}`, body));
}

function expectDone(answer: Answer): Answer {
  if (answer.error !== undefined) throw new Error(`the broker refused: ${JSON.stringify(answer.error)}`);
  return answer;
}

/** A publish that waits for its PubAck, or for what stands in its place. */
export async function put(
  nc: NatsConnection,
  subject: string,
  data: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<Answer> {
  return asked(nc, subject, data, publishOptions({ headers }));
}

export type Entry = { readonly seq: number; readonly subject: string; readonly data: string; readonly hdrs: string };

/** Everything a stream holds, by sequence: what an attack left behind shows here. */
export async function dump(nc: NatsConnection, stream: string): Promise<Entry[]> {
  const entries: Entry[] = [];
  for (let seq = 1; ;) {
    const answer = await api(nc, `STREAM.MSG.GET.${stream}`, { seq, next_by_subj: ">" });
    const message = answer["message"] as { seq: number; subject: string; data?: string; hdrs?: string } | undefined;
    if (message === undefined) return entries;
    const text = (value: string | undefined): string => Buffer.from(value ?? "", "base64").toString();
    entries.push({ seq: message.seq, subject: message.subject, data: text(message.data), hdrs: text(message.hdrs) });
    seq = message.seq + 1;
  }
}

export type StreamFacts = {
  readonly messages: number;
  readonly lastSeq: number;
  readonly consumers: number;
  readonly config: Record<string, unknown>;
};

/** A stream's state, or `undefined` if there is none. */
export async function streamFacts(nc: NatsConnection, stream: string): Promise<StreamFacts | undefined> {
  const answer = await api(nc, `STREAM.INFO.${stream}`);
  if (answer.error !== undefined) return undefined;
  const state = answer["state"] as { messages: number; last_seq: number; consumer_count: number };
  return {
    messages: state.messages,
    lastSeq: state.last_seq,
    consumers: state.consumer_count,
    config: answer["config"] as Record<string, unknown>,
  };
}
