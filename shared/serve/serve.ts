/**
 * The first rail: serves untargeted commands of one endpoint (§13.2, §13.3).
 *
 * Invariants
 * 1. The order of the checks is the contract's: provenance, subject, version, op, class, sender,
 *    bind, arguments. Nothing runs before all have passed, and a refusal says `not-executed`.
 * 2. The reply rides the rail derived from the request subject; a transport reply target is ignored.
 * 3. What runs at once is bounded, in all and for one caller, so that nobody takes the others' share;
 *    over it the answer is `resource-exhausted`, not memory.
 * 4. `stop` takes no new request and lets every running one answer.
 * 5. Nothing that a caller sends, a handler returns, or the connection does makes `answer` reject: a
 *    rejection that nobody hears ends the process, and with it every other space.
 */
import type { Msg, NatsConnection, Subscription } from "@nats-io/transport-node";
import type { z } from "zod";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../protocol/base/errors.ts";
import { hasProvenance } from "../protocol/base/headers.ts";
import {
  type Caller,
  type EndpointRequestSubject,
  Route,
  endpointSubjects,
  endpointToken,
  parseRequestSubject,
} from "../protocol/endpoint/grammar.ts";
import {
  DEFAULT_DEADLINE_MS,
  ENVELOPE_VERSION,
  type EndpointReply,
  MAX_DEADLINE_MS,
  errorReply,
} from "../protocol/endpoint/envelope.ts";
import { type RequestFrame, readRequest } from "../protocol/endpoint/read-envelope.ts";
import { createShare } from "./share.ts";

/** What a handler knows of a call. */
export type CallContext = {
  readonly caller: Caller;
  /** The caller's dot-form. */
  readonly from: string;
  readonly requestId: string;
  /** Aborted at the caller's deadline. */
  readonly signal: AbortSignal;
  readonly traceparent: string | undefined;
};

/** One command: its argument schema and what it does. Throws a `CotalError` to refuse. */
export type Command = {
  readonly input: z.ZodType;
  readonly handle: (args: never, call: CallContext) => Promise<unknown>;
};

/** Declares a command with its argument type inferred. */
export function command<Input extends z.ZodType>(
  input: Input,
  handle: (args: z.output<Input>, call: CallContext) => Promise<unknown>,
): Command {
  return { input, handle: handle as Command["handle"] };
}

/** What happened to a request, for logs and metrics. */
export type ServedEvent = {
  readonly command: string;
  readonly from: string;
  readonly requestId: string;
  /** `ok`, an error code, or `dropped` for a message that is no request. */
  readonly result: string;
  readonly milliseconds: number;
};

export type ServeOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly endpoint: string;
  readonly instanceId: string;
  readonly epoch: number;
  readonly commands: Readonly<Record<string, Command>>;
  /** Requests that may run at once. */
  readonly concurrency: number;
  /** Requests of one caller that may run at once. */
  readonly perCaller: number;
  readonly onServed: (event: ServedEvent) => void;
  readonly now: () => number;
};

export type ServedEndpoint = {
  /** Stops intake, waits for what runs, then resolves. */
  readonly stop: () => Promise<void>;
};

/** Starts serving; resolves once the broker has taken every subscription. */
export async function serveEndpoint(options: ServeOptions): Promise<ServedEndpoint> {
  /** Everything that is being answered, refusals too: what `stop` waits for. */
  const running = new Set<Promise<void>>();
  /** Requests that run. A refusal is none, or a burst of one caller's would fill the place of others. */
  let admitted = 0;
  const share = createShare(options.perCaller);
  const rails = endpointSubjects(options.space);
  const queue = endpointToken(options.endpoint);
  const take = (error: Error | null, message: Msg): void => {
    if (error !== null) return;
    const request = parseRequestSubject(message.subject);
    if (request === undefined || isStoredCopy(message)) {
      options.onServed({ command: "", from: "", requestId: "", result: "dropped", milliseconds: 0 });
      return;
    }
    const from = `${request.owner}.${request.actor}`;
    const full = admitted >= options.concurrency || !share.take(from);
    if (!full) admitted += 1;
    const work = answer(options, rails, request, message, full).finally(() => {
      running.delete(work);
      if (full) return;
      admitted -= 1;
      share.give(from);
    });
    running.add(work);
  };
  const subscriptions: Subscription[] = Object.keys(options.commands).flatMap((name) => [
    options.nc.subscribe(rails.serveOne(options.endpoint, name), { queue, callback: take }),
    options.nc.subscribe(rails.serveInst(options.endpoint, options.instanceId, name), { callback: take }),
  ]);
  await options.nc.flush();
  return {
    stop: async () => {
      // A subscription of a connection that is closed has nothing left to give, and says so by throwing.
      await Promise.allSettled(subscriptions.map(async (subscription) => subscription.drain()));
      await Promise.all(running);
    },
  };
}

/** A header block that nats.js can't read throws here: nothing is known of it, so it is refused too. */
function isStoredCopy(message: Msg): boolean {
  try {
    return hasProvenance(message.headers?.keys() ?? []);
  } catch {
    return true;
  }
}

async function answer(
  options: ServeOptions,
  rails: ReturnType<typeof endpointSubjects>,
  subject: EndpointRequestSubject,
  message: Msg,
  full: boolean,
): Promise<void> {
  const started = options.now();
  const from = `${subject.owner}.${subject.actor}`;
  let requestId = "";
  let expected = true;
  let reply: EndpointReply;
  let result = "ok";
  try {
    const read = readRequest(message.data);
    requestId = read.ok ? read.request.id : read.id;
    expected = read.ok ? read.request.replyExpected : read.replyExpected;
    if (!read.ok) throw read.error;
    const { request } = read;
    const declared = checkEnvelope(options, subject, request);
    if (full) throw busy();
    reply = await run(declared, subject, request, from);
  } catch (thrown) {
    const error = toCotalError(thrown);
    result = error.code;
    reply = errorReply(requestId, error);
  }
  if (expected) {
    const target = rails.reply(subject, options.instanceId, options.epoch);
    result = send(options.nc, target, reply) ?? result;
  }
  options.onServed({ command: subject.command, from, requestId, result, milliseconds: options.now() - started });
}

/** Publishes a reply; one that can't go out is replaced by a refusal, whose code is handed back. */
function send(nc: NatsConnection, target: string, reply: EndpointReply): ErrorCode | undefined {
  const bytes = encode(reply, nc.info?.max_payload ?? Number.POSITIVE_INFINITY);
  const refusal = bytes instanceof CotalError ? bytes : undefined;
  try {
    nc.publish(target, bytes instanceof CotalError ? JSON.stringify(errorReply(reply.id, bytes)) : bytes);
    return refusal?.code;
  } catch {
    // The connection is closed: the caller hears nothing, which means "unknown" to him.
    return ErrorCode.Unavailable;
  }
}

/** The reply's bytes, or why there are none that could go out. */
function encode(reply: EndpointReply, limit: number): Uint8Array | CotalError {
  try {
    const bytes = new TextEncoder().encode(JSON.stringify(reply));
    if (bytes.length <= limit) return bytes;
  } catch (cause) {
    // What nests too deep for the stack, for example.
    return new CotalError(ErrorCode.Internal, "the answer can't be written as JSON", {
      outcome: Outcome.Executed,
      cause,
    });
  }
  return new CotalError(ErrorCode.ResourceExhausted, "the answer is larger than the broker's max_payload", {
    outcome: Outcome.Executed,
    next: "ask for a smaller page",
  });
}

function checkEnvelope(options: ServeOptions, subject: EndpointRequestSubject, request: RequestFrame): Command {
  if (request.op.endpoint !== subject.endpoint || request.op.command !== subject.command) {
    throw refused(ErrorCode.OpMismatch, "op is not what the subject says");
  }
  const declared = Object.hasOwn(options.commands, subject.command) ? options.commands[subject.command] : undefined;
  if (declared === undefined) throw refused(ErrorCode.Unimplemented, `no command ${subject.command}`);
  if (request.class !== "ephemeral") throw refused(ErrorCode.ClassMismatch, "this command is ephemeral");
  if (request.from.id !== `${subject.owner}.${subject.actor}`) {
    throw refused(ErrorCode.SenderMismatch, "from.id is not the subject's sender");
  }
  if (request.target !== undefined || subject.target !== undefined)
    throw refused(ErrorCode.TargetMismatch, "this command has no target");
  if (request.replyExpected && request.deadlineMs === undefined) {
    throw refused(ErrorCode.BadRequest, "a call needs deadlineMs");
  }
  checkBind(options, subject, request);
  return declared;
}

function checkBind(options: ServeOptions, subject: EndpointRequestSubject, request: RequestFrame): void {
  const { bind } = request;
  if (bind === undefined) return;
  if (subject.route === Route.Inst && bind.instanceId !== subject.instanceId) {
    throw refused(ErrorCode.BadRequest, "bind names another instance than the subject");
  }
  const details = [{ kind: "ai.cotal.ep.bind-refused" }];
  if (bind.instanceId !== options.instanceId) {
    throw new CotalError(ErrorCode.FailedPrecondition, "another instance received this", {
      outcome: Outcome.NotExecuted,
      details,
    });
  }
  if (bind.epoch !== options.epoch) {
    throw new CotalError(ErrorCode.Expired, "this instance is at another epoch", {
      outcome: Outcome.NotExecuted,
      details,
    });
  }
}

async function run(
  declared: Command,
  subject: EndpointRequestSubject,
  request: RequestFrame,
  from: string,
): Promise<EndpointReply> {
  const args = declared.input.safeParse(request.args ?? {});
  if (!args.success) {
    const issue = args.error.issues[0];
    throw refused(ErrorCode.BadRequest, `args.${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""}`);
  }
  const deadline = Math.min(request.deadlineMs ?? DEFAULT_DEADLINE_MS, MAX_DEADLINE_MS);
  const call: CallContext = {
    caller: { principal: { owner: subject.owner, actor: subject.actor }, uid: subject.uid },
    from,
    requestId: request.id,
    signal: AbortSignal.timeout(deadline),
    traceparent: request.correlation?.traceparent,
  };
  const data = await declared.handle(args.data as never, call);
  return { v: ENVELOPE_VERSION, id: request.id, ok: true, ...(data === undefined ? {} : { data }) };
}

function refused(code: ErrorCode, message: string): CotalError {
  return new CotalError(code, message, { outcome: Outcome.NotExecuted });
}

function busy(): CotalError {
  return new CotalError(
    ErrorCode.ResourceExhausted,
    "as many requests are running as this instance takes, in all or from one caller",
    {
      outcome: Outcome.NotExecuted,
      next: "ask again in a moment",
    },
  );
}
