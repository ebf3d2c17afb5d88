/**
 * What a request owes to the contract of its command: class, verb, goal, digests (§13.3). The rails and
 * the submission plane ask the same.
 */
import { CotalError, ErrorCode, Outcome, badRequest } from "../base/errors.ts";
import { DeliveryClass, MAX_DEADLINE_MS } from "./envelope.ts";
import type { AuthzMode } from "./modes.ts";
import { DESCRIBE } from "./names.ts";
import type { RequestFrame } from "./read-envelope.ts";

/** What a command has declared, as far as the envelope has to agree with it (supplement A). */
export type CommandContract = {
  readonly class: DeliveryClass;
  /** None: the command is untargeted. */
  readonly modes: readonly AuthzMode[];
  /** Its submissions carry a goal (§13.6). */
  readonly action: boolean;
  readonly inputDigest: string;
  readonly outputDigest: string;
};

/** A refusal before anything ran. */
export function refuse(code: ErrorCode, message: string, next?: string): never {
  throw new CotalError(code, message, {
    outcome: Outcome.NotExecuted,
    ...(next === undefined ? {} : { next }),
  });
}

/** `carries` is what the plane is for: journaled work goes through submissions (§13.5). */
export function checkClass(request: RequestFrame, contract: CommandContract, carries: DeliveryClass): void {
  if (request.class !== contract.class) {
    refuse(ErrorCode.ClassMismatch, `the command is ${contract.class}`, "describe the endpoint and ask again");
  }
  if (contract.class !== carries) refuse(ErrorCode.ClassMismatch, `a ${contract.class} command is not asked for here`);
}

/** The verb is `replyExpected`; who waits says how long. A journal's deadline is bounded by its own plane. */
export function checkVerb(request: RequestFrame, contract: CommandContract): void {
  const { deadlineMs } = request;
  const waits = request.replyExpected || contract.class === DeliveryClass.Journal;
  if (waits && deadlineMs === undefined) throw badRequest("deadlineMs is missing", "say how long you wait");
  if (contract.class === DeliveryClass.Ephemeral && (deadlineMs ?? 0) > MAX_DEADLINE_MS) {
    throw badRequest(`deadlineMs is more than ${MAX_DEADLINE_MS}`, `wait ${MAX_DEADLINE_MS} ms at most`);
  }
  if (contract.action && request.goalId === undefined) throw badRequest("an action needs a goalId");
  if (!contract.action && request.goalId !== undefined) throw badRequest("only an action has a goalId");
}

/** Both sides are pinned on every command but `describe`; a missing digest is a mismatch like a wrong one. */
export function checkDigests({ op }: RequestFrame, contract: CommandContract): void {
  if (op.command === DESCRIBE) return;
  for (const side of ["inputDigest", "outputDigest"] as const) {
    if (op[side] === contract[side]) continue;
    const what = op[side] === undefined ? "is missing" : "is not the one served here";
    refuse(ErrorCode.ContractMismatch, `op.${side} ${what}`, "describe the endpoint and ask again");
  }
}
