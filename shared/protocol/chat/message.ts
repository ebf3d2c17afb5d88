/**
 * `CotalMessage` (§5): its shape, what a publisher must build, what a reader accepts.
 *
 * Invariants
 * 1. Bytes from the wire go through `readDelivery` once and come out typed or as a named refusal.
 * 2. The order of the checks is fixed: provenance headers, subject, JSON, sender, envelope.
 * 3. The delivery kind comes from the subject; routing fields in the payload are advisory (§4).
 * 4. Reading costs about what parsing the text costs, whatever a hostile sender wrote: the checks
 *    are by hand, and a property test holds them equal to the published schema.
 */
import { z } from "zod";
import { isBounded } from "../base/canonical.ts";
import { parseJson } from "../base/json.ts";
import { hasProvenance } from "../base/headers.ts";
import { badRequest } from "../base/errors.ts";
import { type DeliverySubject, isSurfaceable, parseSubject } from "../base/subjects.ts";
import { type Part, Part as PartSchema, checkParts, isPart } from "./parts.ts";

export const EndpointRef = z.looseObject({
  id: z.string(),
  name: z.string(),
  role: z.string().optional(),
});
export type EndpointRef = { id: string; name: string; role?: string | undefined };

const base = {
  id: z.string(),
  ts: z.number(),
  space: z.string(),
  from: EndpointRef,
  mentions: z.array(z.string()).optional(),
  parts: z.array(PartSchema),
  replyTo: z.string().optional(),
  contextId: z.string().optional(),
};

/** A field that must not be there. In JSON Schema: allowed by no value. */
const absent = z.never().optional();

/** The published shape: exactly one routing field. Exported as JSON Schema draft-07 (§5). */
export const CotalMessage = z.xor([
  z.looseObject({ ...base, channel: z.string(), to: absent, toService: absent }),
  z.looseObject({ ...base, to: z.string(), channel: absent, toService: absent }),
  z.looseObject({ ...base, toService: z.string(), channel: absent, to: absent }),
]);

export type CotalMessage = {
  id: string;
  ts: number;
  space: string;
  from: EndpointRef;
  channel?: string;
  to?: string;
  toService?: string;
  mentions?: string[];
  parts: Part[];
  replyTo?: string;
  contextId?: string;
};

/**
 * Why a delivery was refused. The first three are §5's; the last two are ours (decision H19).
 * Each is a permanent anomaly: terminated, counted, never surfaced.
 */
export const RejectReason = {
  MalformedSubject: "malformed-subject",
  SenderMismatch: "sender-mismatch",
  MalformedJson: "malformed-json",
  MalformedEnvelope: "malformed-envelope",
  StoredCopy: "stored-copy",
} as const;
export type RejectReason = (typeof RejectReason)[keyof typeof RejectReason];

/** How a message was addressed, from the delivering subject (§4). */
export const MessageKind = { Channel: "channel", Dm: "dm", Anycast: "anycast" } as const;
export type MessageKind = (typeof MessageKind)[keyof typeof MessageKind];

const KIND_OF = { chat: MessageKind.Channel, inst: MessageKind.Dm, svc: MessageKind.Anycast } as const;

/** A message that may be surfaced, with what its subject says about it. */
export type Delivery = {
  readonly kind: MessageKind;
  /** The sender's dot-form, from the subject. */
  readonly from: string;
  /** The concrete channel, the recipient's dot-form, or the role: from the subject. */
  readonly target: string;
  readonly subject: DeliverySubject;
  readonly message: CotalMessage;
};

export type ReadResult =
  | { readonly ok: true; readonly delivery: Delivery }
  | { readonly ok: false; readonly reason: RejectReason; readonly detail: string };

/** Subjects that were found to be surfaceable: a sender writes many messages to a channel. */
const known = new Map<string, DeliverySubject>();
const KNOWN = 512;

/**
 * Reads one delivery. Never throws. `headerNames` are those of the message on the wire; pass none
 * for a copy read from a stream by oneself.
 */
export function readDelivery(subject: string, payload: Uint8Array, headerNames: Iterable<string> = []): ReadResult {
  if (hasProvenance(headerNames)) return refuse(RejectReason.StoredCopy, "carries a stored-message header");
  const split = known.get(subject) ?? parseSubject(subject);
  if (split === undefined) return refuse(RejectReason.MalformedSubject, "does not parse");
  if (!known.has(subject)) {
    if (!isSurfaceable(split)) return refuse(RejectReason.MalformedSubject, "no owner in the owner slot");
    if (known.size >= KNOWN) known.clear();
    known.set(subject, split);
  }
  const value = parseJson(payload);
  if (value === undefined) return refuse(RejectReason.MalformedJson, "not UTF-8 JSON");
  if (!isBounded(value)) return refuse(RejectReason.MalformedJson, "nests too deep, or holds a number out of range");
  return readEnvelope(split, value);
}

function readEnvelope(subject: DeliverySubject, value: unknown): ReadResult {
  if (!isObject(value)) return refuse(RejectReason.MalformedEnvelope, "not an object");
  const from = value["from"];
  if (!isObject(from) || from["id"] === undefined) return refuse(RejectReason.SenderMismatch, "from is missing");
  if (from["id"] !== subject.sender) {
    return refuse(RejectReason.SenderMismatch, "from.id is not the subject's sender");
  }
  const fault = envelopeFault(value, from);
  if (fault !== undefined) return refuse(RejectReason.MalformedEnvelope, fault);
  const parts = value["parts"] as { kind: string }[];
  const mentions = value["mentions"] as unknown[] | undefined;
  // The object is ours alone, fresh from the parser: it is narrowed in place, not copied.
  // Unknown part kinds are kept out of sight; a core kind without its shape goes with them (§5).
  if (!parts.every(isPart)) value["parts"] = parts.filter(isPart);
  if (mentions?.every(isText) === false) value["mentions"] = mentions.filter(isText);
  return {
    ok: true,
    delivery: {
      kind: KIND_OF[subject.kind],
      from: subject.sender,
      target: subject.rest,
      subject,
      // `envelopeFault` has checked every field of the type.
      message: value as unknown as CotalMessage,
    },
  };
}

const ROUTING = ["channel", "to", "toService"] as const;

/**
 * What a reader insists on: the published shape, but for two leniencies. A mention that is no
 * string, and a part that it cannot show, are left out and do not cost the message.
 */
function envelopeFault(m: Record<string, unknown>, from: Record<string, unknown>): string | undefined {
  if (typeof m["id"] !== "string") return "id is not a string";
  if (!Number.isFinite(m["ts"])) return "ts is not a number";
  if (typeof m["space"] !== "string") return "space is not a string";
  if (typeof from["name"] !== "string") return "from.name is not a string";
  if (!isOptionalText(from["role"])) return "from.role is not a string";
  const routes = ROUTING.filter((field) => m[field] !== undefined);
  const route = routes[0];
  if (route === undefined || routes.length > 1) return `${routes.length} routing fields`;
  if (typeof m[route] !== "string") return `${route} is not a string`;
  if (!isOptionalText(m["replyTo"])) return "replyTo is not a string";
  if (!isOptionalText(m["contextId"])) return "contextId is not a string";
  if (m["mentions"] !== undefined && !Array.isArray(m["mentions"])) return "mentions is not a list";
  if (!Array.isArray(m["parts"])) return "parts is not a list";
  if (!m["parts"].every((part) => isObject(part) && typeof part["kind"] === "string")) return "a part has no kind";
  return undefined;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}

function isOptionalText(value: unknown): boolean {
  return value === undefined || typeof value === "string";
}

function refuse(reason: RejectReason, detail: string): ReadResult {
  return { ok: false, reason, detail };
}

/**
 * Checks a message about to be sent against the published shape; throws `bad-request`. The types
 * promise most of it already, but a caller in plain JavaScript keeps no promise.
 */
export function checkMessage(message: CotalMessage): void {
  const routes = ROUTING.filter((field) => message[field] !== undefined);
  if (routes.length !== 1) {
    throw badRequest(`a message has exactly one of channel, to and toService, and this has ${routes.length}`);
  }
  if (!isObject(message.from) || !isText(message.from["id"])) throw badRequest("from.id is not a string");
  const fault = envelopeFault({ ...message, parts: [] }, message.from);
  if (fault !== undefined) throw badRequest(fault);
  if (message.id === "") throw badRequest("a message needs an id of its own");
  if (message.mentions?.every(isText) === false) throw badRequest("a mention is not a string");
  if (!Array.isArray(message.parts)) throw badRequest("parts is not a list");
  checkParts(message.parts);
}
