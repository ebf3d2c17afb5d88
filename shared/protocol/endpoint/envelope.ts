/**
 * The versioned envelope of §13.3: request and reply of a command.
 *
 * Invariants
 * 1. Both sides parse with these schemas and nothing else.
 * 2. `from.id` must equal the subject's sender; the subject is the boundary, the body only agrees.
 * 3. An error reply that names no outcome means `unknown`.
 */
import { z } from "zod";
import { COMMAND_TOKEN, DIGEST, ID_TOKEN } from "../base/grammar.ts";
import { CotalError, ErrorCode, Outcome, isErrorCode } from "../base/errors.ts";
import { EndpointRef } from "../chat/message.ts";

export const ENVELOPE_VERSION = 1;

/** Default and largest deadline of a call, in milliseconds (supplement D, decision H18). */
export const DEFAULT_DEADLINE_MS = 15_000;
export const MAX_DEADLINE_MS = 600_000;

export const EndpointRequest = z.looseObject({
  v: z.literal(ENVELOPE_VERSION),
  id: z.string().regex(ID_TOKEN),
  op: z.looseObject({
    endpoint: z.string(),
    command: z.string().regex(COMMAND_TOKEN),
    inputDigest: z.string().regex(DIGEST).optional(),
    outputDigest: z.string().regex(DIGEST).optional(),
  }),
  class: z.enum(["ephemeral", "journal"]),
  replyExpected: z.boolean(),
  args: z.unknown().optional(),
  target: z.unknown().optional(),
  bind: z.looseObject({ instanceId: z.string(), epoch: z.number() }).optional(),
  from: EndpointRef,
  deadlineMs: z.number().int().min(1).optional(),
  correlation: z
    .looseObject({
      traceparent: z.string().max(128).optional(),
      tracestate: z.string().max(512).optional(),
      baggage: z.string().max(8192).optional(),
    })
    .optional(),
});
export type EndpointRequest = z.infer<typeof EndpointRequest>;

export const EndpointReply = z.union([
  z.looseObject({ v: z.literal(ENVELOPE_VERSION), id: z.string(), ok: z.literal(true), data: z.unknown().optional() }),
  z.looseObject({
    v: z.literal(ENVELOPE_VERSION),
    id: z.string(),
    ok: z.literal(false),
    error: z.looseObject({
      code: z.string().max(64),
      message: z.string(),
      next: z.string().optional(),
      details: z.array(z.looseObject({ kind: z.string() })).optional(),
      outcome: z.enum([Outcome.Executed, Outcome.NotExecuted, Outcome.Unknown]).optional(),
    }),
  }),
]);
export type EndpointReply = z.infer<typeof EndpointReply>;

/** An error as a reply carries it. */
export function errorReply(id: string, error: CotalError): EndpointReply {
  return {
    v: ENVELOPE_VERSION,
    id,
    ok: false,
    error: {
      code: error.code,
      message: error.message,
      outcome: error.outcome ?? Outcome.Unknown,
      ...(error.next === undefined ? {} : { next: error.next }),
      ...(error.details.length === 0 ? {} : { details: [...error.details] }),
    },
  };
}

/** The error of a refused call, as a caller throws it; a foreign code becomes `internal`. */
export function replyError(reply: Extract<EndpointReply, { ok: false }>): CotalError {
  const { code, message, next, outcome, details } = reply.error;
  return new CotalError(isErrorCode(code) ? code : ErrorCode.Internal, message, {
    outcome: outcome ?? Outcome.Unknown,
    ...(next === undefined ? {} : { next }),
    ...(details === undefined ? {} : { details }),
  });
}
