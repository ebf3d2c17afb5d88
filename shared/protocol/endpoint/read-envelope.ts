/**
 * Bytes of the endpoint rails into envelopes (§13.3).
 *
 * Invariants
 * 1. Reading never throws: bytes come out typed, or as a named refusal that says `not-executed`.
 * 2. The order is fixed: JSON, version, shape. What a request has to agree with is not judged here.
 * 3. The target of a request stays as it was sent: on a command without target any target at all is
 *    refused as such, whatever it looks like (`check-request.ts`).
 */
import { z } from "zod";
import { isBounded } from "../base/canonical.ts";
import { ID_TOKEN } from "../base/grammar.ts";
import { CotalError, ErrorCode, Outcome, badRequest } from "../base/errors.ts";
import { ENVELOPE_VERSION, EndpointEvent, EndpointReply, EndpointRequest } from "./envelope.ts";
import { parsePlaneSubject, type PlaneSubject } from "./planes.ts";

const RequestFrame = EndpointRequest.extend({ target: z.unknown().optional() });

/** A request in its shape; its target is not read yet. */
export type RequestFrame = z.infer<typeof RequestFrame>;

type Refused = { readonly ok: false; readonly error: CotalError };

export type RequestReading =
  | { readonly ok: true; readonly request: RequestFrame }
  /** `id` to echo, empty if none can be read. A cast is not answered even if it is malformed. */
  | (Refused & { readonly id: string; readonly replyExpected: boolean });

export function readRequest(bytes: Uint8Array): RequestReading {
  const read = readShape(bytes, RequestFrame, "the request");
  if (read.ok) return { ok: true, request: read.value };
  const { id, replyExpected } = isObject(read.raw) ? read.raw : {};
  return {
    ok: false,
    error: read.error,
    id: typeof id === "string" && ID_TOKEN.test(id) ? id : "",
    replyExpected: replyExpected !== false,
  };
}

export type ReplyReading = { readonly ok: true; readonly reply: EndpointReply } | Refused;

/** A reply that does not read says nothing about the effect. */
export function readReply(bytes: Uint8Array): ReplyReading {
  const read = readShape(bytes, EndpointReply, "the reply");
  if (read.ok) return { ok: true, reply: read.value };
  const { message, code, cause } = read.error;
  const known = code === ErrorCode.UnsupportedVersion ? code : ErrorCode.Internal;
  return { ok: false, error: new CotalError(known, message, { outcome: Outcome.Unknown, cause }) };
}

export type EventSubject = Extract<PlaneSubject, { plane: "epe" }>;

export type EventReading =
  | { readonly ok: true; readonly subject: EventSubject; readonly event: EndpointEvent }
  | Refused;

/** An event, with who published it read off the subject. */
export function readEvent(subject: string, bytes: Uint8Array): EventReading {
  const from = parsePlaneSubject(subject);
  if (from?.plane !== "epe") return { ok: false, error: badRequest("the subject is no event's") };
  const read = readShape(bytes, EndpointEvent, "the event");
  if (!read.ok) return { ok: false, error: read.error };
  if (read.value.topic !== from.topic) {
    return { ok: false, error: badRequest("the event's topic is not what its subject says") };
  }
  return { ok: true, subject: from, event: read.value };
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

type Shaped<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly error: CotalError; readonly raw: unknown };

function readShape<T>(bytes: Uint8Array, shape: z.ZodType<T>, what: string): Shaped<T> {
  let raw: unknown;
  try {
    raw = JSON.parse(utf8.decode(bytes));
  } catch (cause) {
    return refuse(raw, new CotalError(ErrorCode.BadRequest, `${what} is not UTF-8 JSON`, { ...NOTHING_RAN, cause }));
  }
  if (!isObject(raw)) return refuse(raw, badRequest(`${what} is no object`));
  if (raw["v"] !== ENVELOPE_VERSION) return refuse(raw, foreignVersion(what));
  if (!isBounded(raw)) return refuse(raw, badRequest(`${what} nests too deep, or holds a number out of range`));
  const parsed = shape.safeParse(raw);
  if (parsed.success) return { ok: true, value: parsed.data };
  const issue = parsed.error.issues[0];
  return refuse(raw, badRequest(`${what}: ${issue?.path.join(".") ?? ""} ${issue?.message ?? ""}`.trim()));
}

const NOTHING_RAN = { outcome: Outcome.NotExecuted } as const;

function foreignVersion(what: string): CotalError {
  return new CotalError(ErrorCode.UnsupportedVersion, `${what} is of another version than ${ENVELOPE_VERSION}`, {
    ...NOTHING_RAN,
    next: `send v: ${ENVELOPE_VERSION}`,
  });
}

function refuse(raw: unknown, error: CotalError): { readonly ok: false; readonly error: CotalError; raw: unknown } {
  return { ok: false, error, raw };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
