/**
 * The versioned envelope of §13.3: request, reply and event.
 *
 * Siblings: `read-envelope.ts` turns bytes into these shapes, `check-request.ts` holds a request against
 * its subject and contract, `outcome.ts` says what is known of an effect.
 *
 * Invariants
 * 1. Both sides parse with these schemas and nothing else. They are open: an unknown field is ignored
 *    (§11).
 * 2. `from.id` must equal the subject's sender; the subject is the boundary, the body only agrees.
 * 3. Nothing in an envelope widens what the credential permits (monotonic attenuation).
 */
import { z } from "zod";
import {
  COMMAND_TOKEN,
  DIGEST,
  ERROR_CODE,
  ID_TOKEN,
  LIFECYCLE_UID,
  OWNER_TOKEN,
  PRINCIPAL_TOKEN,
  REVERSE_DNS,
} from "../base/grammar.ts";
import { digestOf } from "../base/canonical.ts";
import { CotalError, ErrorCode, Outcome, isErrorCode } from "../base/errors.ts";
import { EndpointRef } from "../chat/message.ts";
import { isExtensionCode } from "./error-codes.ts";

export const ENVELOPE_VERSION = 1;

/** Default and largest deadline of a call, in milliseconds (supplement D, decision H18). */
export const DEFAULT_DEADLINE_MS = 15_000;
export const MAX_DEADLINE_MS = 600_000;

/** What a submission asks for; a record is a state contract, never a request class. */
export const DeliveryClass = { Ephemeral: "ephemeral", Journal: "journal" } as const;
export type DeliveryClass = (typeof DeliveryClass)[keyof typeof DeliveryClass];

const v = z.literal(ENVELOPE_VERSION);
const count = z.int().nonnegative();
/** A field that must not be there. In JSON Schema: allowed by no value. */
const absent = z.never().optional();

/** W3C Trace Context, carried on; a malformed member is the tracer's to ignore. */
export const Correlation = z.looseObject({
  traceparent: z.string().max(128).optional(),
  tracestate: z.string().max(512).optional(),
  baggage: z.string().max(8192).optional(),
});
export type Correlation = z.infer<typeof Correlation>;

/** The target that a caller expects; the mapping as it is now decides (§13.1). */
export const BodyTarget = z.looseObject({
  owner: z.string().regex(OWNER_TOKEN),
  actor: z.string().regex(PRINCIPAL_TOKEN),
  lifecycleUid: z.string().regex(LIFECYCLE_UID),
  mappingRevision: count.optional(),
});
export type BodyTarget = z.infer<typeof BodyTarget>;

/** The incarnation that a caller resolved against (§13.2, bound-incarnation fence). */
export const Bind = z.looseObject({ instanceId: z.string().regex(LIFECYCLE_UID), epoch: count });
export type Bind = z.infer<typeof Bind>;

export const EndpointRequest = z.looseObject({
  v,
  id: z.string().regex(ID_TOKEN),
  op: z.looseObject({
    endpoint: z.string(),
    command: z.string().regex(COMMAND_TOKEN),
    inputDigest: z.string().regex(DIGEST).optional(),
    outputDigest: z.string().regex(DIGEST).optional(),
  }),
  class: z.enum(DeliveryClass),
  replyExpected: z.boolean(),
  goalId: z.string().regex(ID_TOKEN).optional(),
  target: BodyTarget.optional(),
  bind: Bind.optional(),
  args: z.unknown().optional(),
  from: EndpointRef,
  deadlineMs: z.int().min(1).optional(),
  correlation: Correlation.optional(),
  /** A lone surrogate has no UTF-8, so two such slots would share one digest. */
  auth: z
    .string()
    .refine((slot) => slot.isWellFormed(), "holds a lone surrogate")
    .optional(),
});
export type EndpointRequest = z.infer<typeof EndpointRequest>;

/** One entry of `error.details`. */
const Detail = z.looseObject({ kind: z.string().regex(REVERSE_DNS) });

export const EndpointReply = z.union([
  z.looseObject({
    v,
    id: z.string(),
    ok: z.literal(true),
    data: z.unknown().optional(),
    error: absent,
    receipt: z.string().optional(),
  }),
  z.looseObject({
    v,
    id: z.string(),
    ok: z.literal(false),
    data: absent,
    error: z.looseObject({
      code: z.string().regex(ERROR_CODE),
      message: z.string(),
      next: z.string().optional(),
      details: z.array(Detail).optional(),
      outcome: z.enum(Outcome).optional(),
    }),
    receipt: z.string().optional(),
  }),
]);
export type EndpointReply = z.infer<typeof EndpointReply>;
export type ErrorReply = Extract<EndpointReply, { ok: false }>;

/** An error as a reply carries it. A detail that may not stand there would cost the caller the rest: it is left out. */
export function errorReply(id: string, error: CotalError): ErrorReply {
  const details = error.details.filter(({ kind }) => REVERSE_DNS.test(kind));
  const { extension } = error;
  return {
    v: ENVELOPE_VERSION,
    id,
    ok: false,
    error: {
      code: extension !== undefined && isExtensionCode(extension) ? extension : error.code,
      message: error.message,
      outcome: error.outcome ?? Outcome.Unknown,
      ...(error.next === undefined ? {} : { next: error.next }),
      ...(details.length === 0 ? {} : { details }),
    },
  };
}

/** The error of a refused call, as a caller throws it. A foreign code becomes `internal` with an `extension`. */
export function replyError(reply: ErrorReply): CotalError {
  const { code, message, next, outcome, details } = reply.error;
  return new CotalError(isErrorCode(code) ? code : ErrorCode.Internal, message, {
    outcome: outcome ?? Outcome.Unknown,
    ...(isErrorCode(code) ? {} : { extension: code }),
    ...(next === undefined ? {} : { next }),
    ...(details === undefined ? {} : { details }),
  });
}

/** What an instance tells while it works (§13.4: an event is no fact). `ts` in Unix milliseconds. */
export const EndpointEvent = z.looseObject({
  v,
  topic: z.string(),
  ts: count,
  data: z.unknown(),
  correlation: Correlation.optional(),
});
export type EndpointEvent = z.infer<typeof EndpointEvent>;

/** Digest of the `auth` slot over its bytes as carried: nothing is trimmed or put into a canonical form. */
export function authDigest(auth: string | undefined): string | undefined {
  return auth === undefined ? undefined : digestOf(auth);
}
