/**
 * Everything that a responder can hold against a request without asking anybody (§13.2, §13.3).
 *
 * Invariants
 * 1. The order is the contract's (supplement K): op, class, verb, sender, bind, target, digests. Before it
 *    come provenance, subject, version and shape; after it the target's currency, arguments, guard.
 * 2. Every refusal here says `not-executed`.
 * 3. Who asks and for whom comes from the subject. Nothing in the body adds to it (monotonic attenuation).
 */
import { CotalError, ErrorCode, Outcome, badRequest } from "../base/errors.ts";
import { dotForm } from "../base/principals.ts";
import { type CommandContract, checkClass, checkDigests, checkVerb, refuse } from "./check-contract.ts";
import { checkTarget } from "./check-target.ts";
import { type BodyTarget, DeliveryClass, authDigest } from "./envelope.ts";
import { DetailKind } from "./error-codes.ts";
import { DESCRIBE } from "./names.ts";
import { type Caller, callerOf } from "./rails.ts";
import type { RequestFrame } from "./read-envelope.ts";
import type { Incarnation } from "./reply-subject.ts";
import { type EndpointRequestSubject, Route } from "./request-subject.ts";

/** A request that agrees with its subject and with its contract. */
export type CheckedRequest = {
  readonly request: RequestFrame;
  readonly caller: Caller;
  /** Expected, not resolved; of `self` the caller. `undefined` for an untargeted command. */
  readonly target: BodyTarget | undefined;
  readonly authDigest: string | undefined;
};

/** `contract` of the subject's command; `undefined` if this endpoint has no such command. */
export function checkRequest(
  subject: EndpointRequestSubject,
  request: RequestFrame,
  contract: CommandContract | undefined,
  self: Incarnation,
): CheckedRequest {
  checkOp(subject, request);
  if (contract === undefined) refuse(ErrorCode.Unimplemented, `there is no command ${subject.command} here`);
  checkClass(request, contract, DeliveryClass.Ephemeral);
  checkVerb(request, contract);
  const caller = callerOf(subject);
  if (request.from.id !== dotForm(caller.principal)) {
    refuse(ErrorCode.SenderMismatch, "from.id is not the subject's sender");
  }
  checkBind(subject, request, self);
  const target = checkTarget(subject, request, contract);
  checkDigests(request, contract);
  return { request, caller, target, authDigest: authDigest(request.auth) };
}

function checkOp(subject: EndpointRequestSubject, { op }: RequestFrame): void {
  if (op.endpoint === subject.endpoint && op.command === subject.command) return;
  refuse(ErrorCode.OpMismatch, "op is not what the subject says");
}

/** The bound-incarnation fence: another instance, or another epoch of this one, did not run it. */
function checkBind(subject: EndpointRequestSubject, { bind }: RequestFrame, self: Incarnation): void {
  if (bind === undefined) return;
  if (subject.command === DESCRIBE) throw badRequest("describe is not bound: what it answers is what one binds to");
  if (subject.route === Route.All) throw badRequest("a scatter is not bound: it is for every incarnation");
  if (subject.route === Route.Inst && bind.instanceId !== subject.instanceId) {
    throw badRequest("bind names another instance than the subject");
  }
  if (bind.instanceId !== self.instanceId) {
    throw bindRefused(ErrorCode.FailedPrecondition, "another instance received this");
  }
  if (bind.epoch !== self.epoch) throw bindRefused(ErrorCode.Expired, "this instance is at another epoch");
}

function bindRefused(code: ErrorCode, message: string): CotalError {
  return new CotalError(code, message, {
    outcome: Outcome.NotExecuted,
    next: "resolve the endpoint again and ask again: nothing ran",
    details: [{ kind: DetailKind.BindRefused }],
  });
}
