/**
 * Calls a command of an endpoint on the class rail (§13.2, §13.3).
 *
 * Invariants
 * 1. The exact nonce subject is subscribed before the request is published.
 * 2. The outcome of every failure is stated as far as it is known: refused before publication and
 *    no-responders are `not-executed`, silence is `unknown`, a reply says it itself.
 * 3. No call is repeated by this file.
 */
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { drawNonce, dotForm, type RandomBytes } from "../protocol/base/principals.ts";
import { type Caller, endpointSubjects, parseReplySubject } from "../protocol/endpoint/grammar.ts";
import { DEFAULT_DEADLINE_MS, ENVELOPE_VERSION, EndpointReply, replyError } from "../protocol/endpoint/envelope.ts";
import type { DenialWatch } from "./denials.ts";
import { statusOf } from "./wire.ts";

export type CallerOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly caller: Caller;
  /** Display name in `from`. */
  readonly name: string;
  readonly inboxPrefix: string;
  readonly denials: DenialWatch;
  readonly random: RandomBytes;
};

export type CallResult = { readonly data: unknown; readonly instanceId: string; readonly epoch: number };

export type Call = (
  endpoint: string,
  command: string,
  args: unknown,
  options?: { readonly deadlineMs?: number; readonly traceparent?: string },
) => Promise<CallResult>;

/** A caller bound to one connection and one identity. */
export function createCaller(options: CallerOptions): Call {
  const rails = endpointSubjects(options.space);
  return async (endpoint, command, args, { deadlineMs = DEFAULT_DEADLINE_MS, traceparent } = {}) => {
    const nonce = drawNonce(options.random);
    const id = drawNonce(options.random);
    const subject = rails.one(endpoint, command, options.caller, nonce);
    const request = {
      v: ENVELOPE_VERSION,
      id,
      op: { endpoint, command },
      class: "ephemeral",
      replyExpected: true,
      args,
      from: { id: dotForm(options.caller.principal), name: options.name },
      deadlineMs,
      ...(traceparent === undefined ? {} : { correlation: { traceparent } }),
    };
    const message = await exchange(options, {
      subject,
      replySubject: rails.replyTo(options.caller, nonce),
      sentinel: `${options.inboxPrefix}.nr.${nonce}`,
      payload: JSON.stringify(request),
      deadlineMs,
      what: `${endpoint} ${command}`,
    });
    return readReply(message, endpoint, id);
  };
}

type Exchange = {
  readonly subject: string;
  readonly replySubject: string;
  readonly sentinel: string;
  readonly payload: string;
  readonly deadlineMs: number;
  readonly what: string;
};

function exchange({ nc, denials }: CallerOptions, call: Exchange): Promise<Msg> {
  if (nc.isClosed() || nc.isDraining()) return Promise.reject(closed(call.what));
  return new Promise((resolve, reject) => {
    const settle = (end: () => void): void => {
      clearTimeout(timer);
      unwatchPublish();
      unwatchReply();
      reply.unsubscribe();
      sentinel.unsubscribe();
      end();
    };
    const denied = (): void =>
      settle(() =>
        reject(
          new CotalError(ErrorCode.PermissionDenied, `this credential may not call ${call.what}`, {
            outcome: Outcome.NotExecuted,
            next: "use a credential whose profile holds this command",
          }),
        ),
      );
    const reply = nc.subscribe(call.replySubject, {
      callback: (error, message) => {
        if (error === null) settle(() => resolve(message));
      },
    });
    const sentinel = nc.subscribe(call.sentinel, {
      callback: (error, message) => {
        if (error === null && statusOf(message) === 503) settle(() => reject(nobody(call.what)));
      },
    });
    const unwatchPublish = denials.watch("publish", call.subject, denied);
    const unwatchReply = denials.watch("subscription", call.replySubject, denied);
    const timer = setTimeout(() => settle(() => reject(silence(call))), call.deadlineMs);
    try {
      nc.publish(call.subject, call.payload, { reply: call.sentinel });
    } catch (cause) {
      settle(() => reject(closed(call.what, cause)));
    }
  });
}

function closed(what: string, cause?: unknown): CotalError {
  return new CotalError(ErrorCode.Unavailable, `${what} was not sent: the connection is closed`, {
    outcome: Outcome.NotExecuted,
    next: "open a new session",
    ...(cause === undefined ? {} : { cause }),
  });
}

function nobody(what: string): CotalError {
  return new CotalError(ErrorCode.Unavailable, `nothing serves ${what} in this space`, {
    outcome: Outcome.NotExecuted,
    next: "start its daemon (cotal up), or run cotal status to see what is missing",
  });
}

function silence(call: Exchange): CotalError {
  return new CotalError(ErrorCode.DeadlineExceeded, `no answer to ${call.what} within ${call.deadlineMs} ms`, {
    outcome: Outcome.Unknown,
    next: "it may have run; look before you repeat it",
  });
}

function readReply(message: Msg, endpoint: string, id: string): CallResult {
  const from = parseReplySubject(message.subject);
  let value: unknown;
  try {
    value = message.json();
  } catch {
    value = undefined;
  }
  const parsed = EndpointReply.safeParse(value);
  if (from === undefined || from.endpoint !== endpoint || !parsed.success || parsed.data.id !== id) {
    throw new CotalError(ErrorCode.Internal, `the answer of ${endpoint} does not parse`, { outcome: Outcome.Unknown });
  }
  if (!parsed.data.ok) throw replyError(parsed.data as Extract<EndpointReply, { ok: false }>);
  return { data: parsed.data["data"], instanceId: from.instanceId, epoch: from.epoch };
}
