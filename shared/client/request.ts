/** What a request says, as bytes (§13.3): what it asks for, whom it is about, and who asks. */
import type { NatsConnection } from "@nats-io/transport-node";
import { badRequest } from "../protocol/base/errors.ts";
import { dotForm } from "../protocol/base/principals.ts";
import {
  type Bind,
  type BodyTarget,
  DeliveryClass,
  ENVELOPE_VERSION,
  MAX_DEADLINE_MS,
} from "../protocol/endpoint/envelope.ts";
import type { CallAddress, Caller } from "../protocol/endpoint/grammar.ts";
import { notWritable, tooLarge } from "./rail-errors.ts";

export type Digests = { readonly inputDigest: string; readonly outputDigest: string };

export type RailRequest = {
  readonly address: CallAddress;
  readonly args: unknown;
  /** Absent on `describe` alone. */
  readonly digests?: Digests;
  readonly target?: BodyTarget;
  readonly bind?: Bind;
  readonly traceparent?: string;
};

/** Who sends it, and on which connection. */
type Sender = { readonly nc: NatsConnection; readonly caller: Caller; readonly name: string };

/** A deadline can be changed, never removed (supplement D). */
export function checkDeadline(deadlineMs: number): void {
  if (Number.isInteger(deadlineMs) && deadlineMs >= 1 && deadlineMs <= MAX_DEADLINE_MS) return;
  throw badRequest(`a deadline is a whole number of milliseconds from 1 to ${MAX_DEADLINE_MS}`);
}

type Head = { readonly id: string; readonly replyExpected: boolean; readonly deadlineMs: number | undefined };

/** The request's bytes; refused here where the broker would not carry them. */
export function encodeRequest(
  { nc, caller, name }: Sender,
  request: RailRequest,
  head: Head,
  what: string,
): Uint8Array {
  const { address, args, digests, target, bind, traceparent } = request;
  const envelope = {
    v: ENVELOPE_VERSION,
    id: head.id,
    op: { endpoint: address.endpoint, command: address.command, ...digests },
    class: DeliveryClass.Ephemeral,
    replyExpected: head.replyExpected,
    target,
    bind,
    args,
    from: { id: dotForm(caller.principal), name },
    deadlineMs: head.deadlineMs,
    ...(traceparent === undefined ? {} : { correlation: { traceparent } }),
  };
  let bytes: Uint8Array;
  try {
    // Some five times as fast as a TextEncoder on texts of this size.
    bytes = Buffer.from(JSON.stringify(envelope));
  } catch (cause) {
    throw notWritable(what, cause);
  }
  const most = nc.info?.max_payload ?? Number.POSITIVE_INFINITY;
  if (bytes.length > most) throw tooLarge(what, bytes.length, most);
  return bytes;
}
