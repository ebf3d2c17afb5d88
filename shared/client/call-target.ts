/** Whom a targeted command is about (§13.2): tokens of the subject, and what the body says beside them. */
import { badRequest } from "../protocol/base/errors.ts";
import { type Principal, principal } from "../protocol/base/principals.ts";
import type { CommandDocument } from "../protocol/contract/documents.ts";
import type { BodyTarget } from "../protocol/endpoint/envelope.ts";
import { AuthzMode, type TargetBlock } from "../protocol/endpoint/grammar.ts";

export type CallTarget =
  | { readonly mode: typeof AuthzMode.Self }
  | ({ readonly mode: Exclude<AuthzMode, typeof AuthzMode.Self> } & BodyTarget);

export type Addressed = {
  readonly block?: TargetBlock;
  readonly body?: BodyTarget;
  /** Whom it is about, where that is somebody else. */
  readonly who?: Principal;
};

/** Refuses a target that the command does not have, and its lack where it has one. */
export function addressedTo(
  command: Pick<CommandDocument, "name" | "targeted" | "modes">,
  target?: CallTarget,
): Addressed {
  const modes = (command.modes ?? []).join(", ");
  if (target === undefined) {
    if (!command.targeted) return {};
    throw badRequest(
      `${command.name} is about somebody: it is not said about whom`,
      `give a target of the modes ${modes}`,
    );
  }
  if (!command.targeted) throw badRequest(`${command.name} has no target`, "leave the target out");
  if (command.modes?.includes(target.mode) !== true) {
    throw badRequest(`${command.name} takes no target of the mode ${target.mode}`, `it takes ${modes}`);
  }
  if (target.mode === AuthzMode.Self) return { block: { mode: target.mode } };
  const { mode, ...body } = target;
  const { owner, actor, lifecycleUid: uid } = body;
  const who = principal(owner, actor);
  const isExact = mode === AuthzMode.Handle || mode === AuthzMode.Exact;
  return { who, body, block: isExact ? { mode, owner, actor, uid } : { mode, owner } };
}
