/**
 * What a caller makes of one message on its reply subject (§13.2, §13.3).
 *
 * Invariants
 * 1. Who answered is read off the subject. A message whose subject, caller, nonce or id is not this
 *    call's is no answer to it.
 * 2. A bound call takes an effect from the incarnation it bound to and from no other. A refusal that says
 *    "you bound to another" may come from anywhere but that incarnation.
 * 3. An answer that is rejected keeps what it says of the effect; an incoherent one says nothing.
 */
import { CotalError, ErrorCode, Outcome } from "../base/errors.ts";
import { type Bind, type EndpointReply } from "./envelope.ts";
import { DetailKind } from "./error-codes.ts";
import { outcomeOf } from "./outcome.ts";
import type { CallTail } from "./rails.ts";
import { readReply } from "./read-envelope.ts";
import { type EndpointReplySubject, type Incarnation, parseReplySubject } from "./reply-subject.ts";

/** A call that waits for its answer. */
export type Asked = CallTail & {
  readonly space: string;
  readonly endpoint: string;
  readonly id: string;
  readonly bind?: Bind;
};

export type Answer =
  | { readonly ok: true; readonly by: Incarnation; readonly reply: EndpointReply }
  | { readonly ok: false; readonly error: CotalError };

export function readAnswer(asked: Asked, subject: string, bytes: Uint8Array): Answer {
  const by = parseReplySubject(subject);
  if (by === undefined || !SAME.every((field) => by[field] === asked[field])) {
    return reject(ErrorCode.Internal, "the answer's subject is not this call's", Outcome.Unknown);
  }
  const read = readReply(bytes);
  if (!read.ok) return read;
  const { reply } = read;
  // Who refuses what he could not read has no id to echo; the subject's nonce is this call's alone.
  const isUnread = !reply.ok && reply.id === "";
  if (reply.id !== asked.id && !isUnread)
    return reject(ErrorCode.Internal, "the answer's id is not this call's", Outcome.Unknown);
  return (asked.bind && boundFault(asked.bind, by, reply)) ?? { ok: true, by: incarnationOf(by), reply };
}

const SAME = ["space", "endpoint", "owner", "actor", "uid", "generation", "nonce"] as const;

function boundFault(bind: Bind, by: EndpointReplySubject, reply: EndpointReply): Answer | undefined {
  const isBound = by.instanceId === bind.instanceId && by.epoch === bind.epoch;
  const refusesBind = !reply.ok && reply.error.details?.some(({ kind }) => kind === DetailKind.BindRefused) === true;
  if (isBound && refusesBind) {
    // To believe it would be to repeat a command on the word of who should have run it.
    return reject(ErrorCode.Internal, "the incarnation that was bound to refuses its own bind", Outcome.Unknown);
  }
  if (isBound || refusesBind) return undefined;
  const code = by.instanceId === bind.instanceId ? ErrorCode.Expired : ErrorCode.FailedPrecondition;
  return reject(code, "another incarnation than the bound one answered", outcomeOf({ seen: "reply", reply }), [
    { kind: DetailKind.UnboundResponder, ...incarnationOf(by) },
  ]);
}

function incarnationOf({ instanceId, epoch }: Incarnation): Incarnation {
  return { instanceId, epoch };
}

function reject(
  code: ErrorCode,
  message: string,
  outcome: Outcome,
  details: readonly { readonly kind: string }[] = [],
): Answer {
  return { ok: false, error: new CotalError(code, message, { outcome, details }) };
}
