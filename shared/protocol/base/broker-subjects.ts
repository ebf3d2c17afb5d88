/**
 * The broker's own subjects: JetStream API, acks, KV, object store, system account, inboxes.
 *
 * No other file spells one. Which credential may use which is the matrix's business
 * (`shared/grants/`); this file only builds.
 */
import { connId } from "./principals.ts";

const JS = "$JS.API";
const KV = "$KV";

/** JetStream API subjects. */
export const jsApi = {
  all: `${JS}.>`,
  info: `${JS}.INFO`,
  streamCreate: (stream: string) => `${JS}.STREAM.CREATE.${stream}`,
  streamUpdate: (stream: string) => `${JS}.STREAM.UPDATE.${stream}`,
  streamInfo: (stream: string) => `${JS}.STREAM.INFO.${stream}`,
  streamDelete: (stream: string) => `${JS}.STREAM.DELETE.${stream}`,
  streamPurge: (stream: string) => `${JS}.STREAM.PURGE.${stream}`,
  messageGet: (stream: string) => `${JS}.STREAM.MSG.GET.${stream}`,
  messageDelete: (stream: string) => `${JS}.STREAM.MSG.DELETE.${stream}`,
  directGet: (stream: string) => `${JS}.DIRECT.GET.${stream}`,
  directGetLast: (stream: string, subject: string) => `${JS}.DIRECT.GET.${stream}.${subject}`,
  consumerCreate: (stream: string, consumer: string) => `${JS}.CONSUMER.CREATE.${stream}.${consumer}`,
  consumerCreateFiltered: (stream: string, consumer: string, filter: string) =>
    `${JS}.CONSUMER.CREATE.${stream}.${consumer}.${filter}`,
  consumerCreateBare: (stream: string) => `${JS}.CONSUMER.CREATE.${stream}`,
  consumerCreateDurable: (stream: string, consumer: string) => `${JS}.CONSUMER.DURABLE.CREATE.${stream}.${consumer}`,
  consumerInfo: (stream: string, consumer: string) => `${JS}.CONSUMER.INFO.${stream}.${consumer}`,
  consumerDelete: (stream: string, consumer: string) => `${JS}.CONSUMER.DELETE.${stream}.${consumer}`,
  consumerNames: (stream: string) => `${JS}.CONSUMER.NAMES.${stream}`,
  consumerList: (stream: string) => `${JS}.CONSUMER.LIST.${stream}`,
  next: (stream: string, consumer: string) => `${JS}.CONSUMER.MSG.NEXT.${stream}.${consumer}`,
} as const;

/** Ack subjects of one durable: the grant, and the export. */
export const jsAck = {
  of: (stream: string, consumer: string) => `$JS.ACK.${stream}.${consumer}.>`,
  stream: (stream: string) => `$JS.ACK.${stream}.>`,
} as const;

/** Subject of one KV key. */
export function kvKey(bucket: string, key: string): string {
  return `${KV}.${bucket}.${key}`;
}

/** All keys of a bucket. */
export function kvAll(bucket: string): string {
  return `${KV}.${bucket}.>`;
}

/** The key inside a KV subject of that bucket, or `undefined`. */
export function kvKeyOf(bucket: string, subject: string): string | undefined {
  const lead = `${KV}.${bucket}.`;
  return subject.startsWith(lead) ? subject.slice(lead.length) : undefined;
}

/** Chunks and metadata of an object store (ADR-20). */
export const objectChunks = (bucket: string, id: string) => `$O.${bucket}.C.${id}`;
export const objectMeta = (bucket: string, name: string) => `$O.${bucket}.M.${name}`;

/** The system account's subjects. */
export const sys = {
  all: "$SYS.>",
  claimsUpdate: "$SYS.REQ.CLAIMS.UPDATE",
  claimsLookup: (account: string) => `$SYS.REQ.ACCOUNT.${account}.CLAIMS.LOOKUP`,
  accountConnections: (account: string) => `$SYS.REQ.ACCOUNT.${account}.CONNZ`,
  ping: (what: "STATSZ" | "VARZ" | "CONNZ" | "JSZ") => `$SYS.REQ.SERVER.PING.${what}`,
  server: (id: string, what: string) => `$SYS.REQ.SERVER.${id}.${what}`,
  userAuth: "$SYS.REQ.USER.AUTH",
  /** Asked inside an account, every server answers with its connections of that account only. */
  ownConnections: "$SYS.REQ.ACCOUNT.PING.CONNZ",
} as const;

/** The reply-inbox prefix of a connection (§10, decision H61): set before any request. */
export function inboxPrefix(lifecycleUid: string, nonce: string): string {
  return `_INBOX_${connId(lifecycleUid, nonce)}`;
}

/** The one subscribe grant of that inbox. */
export function inboxGrant(lifecycleUid: string, nonce: string): string {
  return `${inboxPrefix(lifecycleUid, nonce)}.>`;
}

/** What an ack subject says of the delivery it belongs to. */
export type AckInfo = {
  readonly stream: string;
  readonly consumer: string;
  readonly deliveryCount: number;
  readonly streamSequence: number;
  /** Counts what the consumer has given, from 1. */
  readonly consumerSequence: number;
  readonly pending: number;
};

/**
 * Splits an ack subject, in the form of nine tokens or in the one with domain and account hash
 * (eleven or more). `undefined` for anything else.
 */
export function parseAck(reply: string | undefined): AckInfo | undefined {
  if (reply === undefined || !reply.startsWith("$JS.ACK.")) return undefined;
  const tokens = reply.split(".");
  const offset = tokens.length >= 11 ? 4 : 2;
  const stream = tokens[offset];
  const consumer = tokens[offset + 1];
  if (stream === undefined || consumer === undefined) return undefined;
  const deliveryCount = Number(tokens[offset + 2]);
  const streamSequence = Number(tokens[offset + 3]);
  const consumerSequence = Number(tokens[offset + 4]);
  const pending = Number(tokens[offset + 6]);
  // One by one and without arrays: every pulled message goes through here.
  if (!Number.isSafeInteger(deliveryCount) || !Number.isSafeInteger(streamSequence)) return undefined;
  if (!Number.isSafeInteger(consumerSequence) || !Number.isSafeInteger(pending)) return undefined;
  return { stream, consumer, deliveryCount, streamSequence, consumerSequence, pending };
}

/** Bodies of an ack (§8): done, later, never, still working. */
export const AckBody = { Ack: "+ACK", Term: "+TERM", Progress: "+WPI" } as const;

/** Done, and a pull of the same durable in the same breath; it is answered at the reply subject. */
export function nextBody(pull: string): string {
  return `+NXT ${pull}`;
}

/** A delayed nak; the delay is in milliseconds. */
export function nakBody(delayMs: number): string {
  return `-NAK ${JSON.stringify({ delay: Math.round(delayMs * 1e6) })}`;
}
