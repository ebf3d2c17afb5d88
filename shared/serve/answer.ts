/**
 * One request from its bytes to its reply (§13.3, supplement K).
 *
 * Invariants
 * 1. The order is the contract's: version, shape, op, class, verb, sender, bind, target, digests, then the
 *    target's currency, the arguments, the guard, the handler. Nothing runs before all have passed.
 * 2. The outcome is told by where it stopped: before the handler `not-executed`, after it `executed`, within
 *    it what the handler says of itself.
 * 3. A value is judged once on each side, by the Zod shape that the published schema was made from. The shape
 *    takes no value that the schema refuses, and may refuse more: what JSON Schema can't say is still held.
 * 4. An answer that is not what the contract says does not leave: `internal`, outcome `executed`.
 */
import type { z } from "zod";
import { CotalError, ErrorCode, Outcome, badRequest, toCotalError, withOutcome } from "../protocol/base/errors.ts";
import { dotForm } from "../protocol/base/principals.ts";
import { type TrustedView, describeFor } from "../protocol/contract/descriptor.ts";
import { type CheckedRequest, checkRequest } from "../protocol/endpoint/check-request.ts";
import {
  type BodyTarget,
  DEFAULT_DEADLINE_MS,
  ENVELOPE_VERSION,
  type EndpointReply,
  errorReply,
} from "../protocol/endpoint/envelope.ts";
import { type Caller, DESCRIBE, type EndpointRequestSubject, type Incarnation } from "../protocol/endpoint/grammar.ts";
import { Seam, responderOutcome } from "../protocol/endpoint/outcome.ts";
import { readRequest } from "../protocol/endpoint/read-envelope.ts";
import type { Contract } from "../protocol/contract/contract.ts";
import type { CallContext, Guard } from "./handlers.ts";
import { DESCRIBE_CONTRACT, type ServedCommand } from "./served.ts";

/** Somebody who answers: who he is, and what he serves. */
export type Responder = {
  readonly endpoint: string;
  readonly self: Incarnation;
  readonly contract: Contract;
  readonly commands: ReadonlyMap<string, ServedCommand>;
  /** The store revision of this instance's service record; `undefined` until it is registered. */
  readonly registrationRevision: () => number | undefined;
  readonly publicDescriptor: boolean;
  /** What a trusted party says of a caller, just now; `undefined` where none can be had. */
  readonly view: (caller: Caller) => Promise<TrustedView | undefined>;
  /** Throws if the target is no more what it was; asked right before the arguments are read. */
  readonly checkTarget: (target: BodyTarget, caller: Caller) => Promise<void>;
  readonly guard: Guard | undefined;
};

export type Answered = {
  readonly requestId: string;
  /** `ok`, or an error code. */
  readonly result: string;
  /** Left out for a cast. */
  readonly reply?: EndpointReply;
};

/** Never rejects. `takePlace` is asked once a request may run at all. */
export async function answerTo(
  responder: Responder,
  subject: EndpointRequestSubject,
  bytes: Uint8Array,
  takePlace: () => boolean,
): Promise<Answered> {
  const read = readRequest(bytes);
  if (!read.ok) return answered(read.id, read.replyExpected, refusal(read.error, Seam.BeforeDispatch));
  const { id, replyExpected } = read.request;
  const step: Step = { seam: Seam.BeforeDispatch };
  try {
    const isDescribe = subject.command === DESCRIBE;
    const command = responder.commands.get(subject.command);
    const contract = isDescribe ? DESCRIBE_CONTRACT : command?.contract;
    const checked = checkRequest(subject, read.request, contract, responder.self);
    if (!takePlace()) throw busy();
    const data =
      command === undefined || isDescribe
        ? await described(responder, checked.caller)
        : await run(responder, command, checked, step);
    return answered(id, replyExpected, data);
  } catch (thrown) {
    return answered(id, replyExpected, refusal(toCotalError(thrown), step.seam));
  }
}

/** The answer to a request that nobody reads: it has no id, for that stands in the body. */
export function tooLong(most: number): Required<Answered> {
  const asked = badRequest(`a request of this command has at most ${most} bytes`, "ask for less at a time");
  const error = refusal(asked, Seam.BeforeDispatch);
  return { requestId: "", result: error.code, reply: errorReply("", error) };
}

/** Where a request is: what its refusal says of the outcome. */
type Step = { seam: Seam };

async function described(responder: Responder, caller: Caller): Promise<unknown> {
  const { endpoint, contract, publicDescriptor } = responder;
  const registrationRevision = responder.registrationRevision();
  if (registrationRevision === undefined) {
    throw new CotalError(ErrorCode.Unavailable, "this instance is not registered yet", {
      next: "ask again in a moment",
    });
  }
  const view = publicDescriptor ? undefined : await responder.view(caller);
  return describeFor({ endpoint, registrationRevision, contract, publicDescriptor }, view);
}

async function run(
  responder: Responder,
  { compiled: { declaration }, handle }: ServedCommand,
  checked: CheckedRequest,
  step: Step,
): Promise<unknown> {
  const { request, caller, target } = checked;
  const end = performance.now() + (request.deadlineMs ?? DEFAULT_DEADLINE_MS);
  if (target !== undefined) {
    await responder.checkTarget(target, caller);
    if (performance.now() >= end) throw tooLate();
  }
  const args = readArgs(declaration.input, request.args);
  const call = new Running(checked, end);
  if (responder.guard !== undefined) {
    await responder.guard(declaration.name, args, call);
    if (performance.now() >= end) throw tooLate();
  }
  step.seam = Seam.InHandler;
  const data = await handle(args as never, call);
  step.seam = Seam.AfterHandler;
  checkData(declaration.output, data);
  return data;
}

/** The signal is made when it is asked for: most handlers never look, and a timer each would outlive them. */
class Running implements CallContext {
  readonly caller: Caller;
  readonly from: string;
  readonly requestId: string;
  readonly target: BodyTarget | undefined;
  readonly traceparent: string | undefined;
  readonly #end: number;
  #signal: AbortSignal | undefined;

  /** `end`: when its deadline passes, on the clock of `performance`. */
  constructor({ request, caller, target }: CheckedRequest, end: number) {
    this.caller = caller;
    this.from = dotForm(caller.principal);
    this.requestId = request.id;
    this.target = target;
    this.traceparent = request.correlation?.traceparent;
    this.#end = end;
  }

  get signal(): AbortSignal {
    return (this.#signal ??= AbortSignal.timeout(Math.max(0, Math.ceil(this.#end - performance.now()))));
  }
}

/** An absent value counts as `null` (supplement A). */
function readArgs(shape: z.ZodType | undefined, args: unknown): unknown {
  if (shape === undefined) {
    if (args === undefined || args === null) return undefined;
    throw badRequest("this command takes no arguments", "leave args out");
  }
  const read = shape.safeParse(args ?? null);
  if (read.success) return read.data;
  const issue = read.error.issues[0];
  throw badRequest(`${["args", ...(issue?.path ?? [])].join(".")}: ${issue?.message ?? ""}`, "see its input schema");
}

/** What stands in the answer is not told: who wrote the handler finds it by the place. */
function checkData(shape: z.ZodType | undefined, data: unknown): void {
  if (shape === undefined) {
    if (data !== undefined && data !== null) throw badAnswer("data", "the command answers nothing");
    return;
  }
  const read = shape.safeParse(data ?? null);
  if (read.success) return;
  const issue = read.error.issues[0];
  throw badAnswer(["data", ...(issue?.path ?? [])].join("."), issue?.code ?? "");
}

function badAnswer(where: string, what: string): CotalError {
  return new CotalError(ErrorCode.Internal, `the answer is not what the contract says, at ${where}: ${what}`, {
    next: "it ran; report this to whoever runs the endpoint",
  });
}

function refusal(error: CotalError, seam: Seam): CotalError {
  return withOutcome(error, responderOutcome(seam, error.outcome));
}

function answered(requestId: string, isCall: boolean, data: unknown): Answered {
  const result = data instanceof CotalError ? data.code : "ok";
  if (!isCall) return { requestId, result };
  if (data instanceof CotalError) return { requestId, result, reply: errorReply(requestId, data) };
  const body = data === undefined ? {} : { data };
  return { requestId, result, reply: { v: ENVELOPE_VERSION, id: requestId, ok: true, ...body } };
}

/** Nobody waits any more: to begin now would be an effect that no one hears of. */
function tooLate(): CotalError {
  return new CotalError(ErrorCode.DeadlineExceeded, "your deadline passed before the command could begin");
}

function busy(): CotalError {
  return new CotalError(
    ErrorCode.ResourceExhausted,
    "as many requests are running as this instance takes, in all or from one caller",
    { outcome: Outcome.NotExecuted, next: "ask again in a moment" },
  );
}
