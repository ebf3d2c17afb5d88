/**
 * The target of a request: body against subject, by mode (§13.2, §13.3).
 *
 * Invariants
 * 1. A target that is not asked for is refused, never ignored.
 * 2. The subject is the boundary. The body names what the subject can't (actor and UID in the owner
 *    modes); where both name it they agree. Whether the mapping is still so is asked later, right before
 *    the effect.
 */
import { ErrorCode, badRequest } from "../base/errors.ts";
import { type CommandContract, refuse } from "./check-contract.ts";
import { BodyTarget } from "./envelope.ts";
import { AuthzMode, type TargetBlock, isTriple } from "./modes.ts";
import type { CallTail } from "./rails.ts";
import type { RequestFrame } from "./read-envelope.ts";

type Addressed = Omit<CallTail, "nonce"> & { readonly target?: TargetBlock };

/** The target that the handler has to resolve; `undefined` for an untargeted command. */
export function checkTarget(
  subject: Addressed,
  request: RequestFrame,
  contract: CommandContract,
): BodyTarget | undefined {
  const block = subject.target;
  const mode = block?.mode;
  const declared = mode === undefined ? contract.modes.length === 0 : contract.modes.includes(mode);
  if (!declared) mismatch(`the command takes ${contract.modes.join(", ") || "no target"}`);
  if (block === undefined || block.mode === AuthzMode.Self) {
    if (request.target !== undefined) mismatch("the body names a target, and the subject has no room for one");
    // `self`: the caller's own triple, which the broker has authenticated.
    return block && { owner: subject.owner, actor: subject.actor, lifecycleUid: subject.uid };
  }
  if (request.target === undefined) mismatch("the body names no target");
  const target = readTarget(request.target);
  if (target.owner !== block.owner) mismatch("target.owner is not the subject's");
  if (isTriple(block) && (target.actor !== block.actor || target.lifecycleUid !== block.uid)) {
    mismatch("the target is not the subject's");
  }
  return target;
}

function readTarget(value: unknown): BodyTarget {
  const parsed = BodyTarget.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw badRequest(`target.${issue?.path.join(".") ?? ""} ${issue?.message ?? ""}`.trim());
}

function mismatch(message: string): never {
  return refuse(ErrorCode.TargetMismatch, message);
}
