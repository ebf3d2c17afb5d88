/**
 * What an endpoint serves: each command of its contract with the handler it has, proved before the first
 * subscription stands.
 *
 * Invariants
 * 1. Every command of the contract has its handler, and no handler stands without a command.
 * 2. A governed command is not served: the signature of its attachment can't be verified yet, and what can't
 *    be verified is refused before its effect (supplement A). A journal command is not served here: its work
 *    comes through submissions (§13.5).
 * 3. A command with a target needs somebody who says whether that target is still so (§13.1).
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import type { CompiledCommand, Contract } from "../protocol/contract/contract.ts";
import { isGoverned } from "../protocol/contract/traits.ts";
import type { CommandContract } from "../protocol/endpoint/check-contract.ts";
import { AuthzMode, DESCRIBE } from "../protocol/endpoint/grammar.ts";
import type { Handler, HandlerTable } from "./handlers.ts";

export type ServedCommand = {
  readonly compiled: CompiledCommand;
  /** What a request has to agree with. */
  readonly contract: CommandContract;
  readonly handle: Handler;
};

/** The bootstrap's own: it pins no digest, so it has none. */
export const DESCRIBE_CONTRACT: CommandContract = {
  class: "ephemeral",
  modes: [],
  action: false,
  inputDigest: "",
  outputDigest: "",
};

export function servedCommands(
  contract: Contract,
  handlers: HandlerTable,
  checksTargets: boolean,
): ReadonlyMap<string, ServedCommand> {
  const strange = Object.keys(handlers).find((name) => !contract.commands.has(name));
  if (strange !== undefined) throw unservable(`there is a handler ${strange}, and no such command`);
  return new Map(
    [...contract.commands].map(([name, compiled]) => {
      const handle = Object.hasOwn(handlers, name) ? handlers[name] : undefined;
      if (handle === undefined) throw unservable(`the command ${name} has no handler`);
      checkServable(compiled, checksTargets);
      return [name, { compiled, contract: contractOf(compiled), handle }];
    }),
  );
}

function checkServable({ document }: CompiledCommand, checksTargets: boolean): void {
  const { name, class: kind, traits = [], modes = [] } = document;
  const governed = traits.find(({ urn }) => isGoverned(urn));
  if (governed !== undefined) {
    throw unservable(`${name} carries the governed trait ${governed.urn}, whose signature can't be verified yet`);
  }
  if (kind !== "ephemeral") throw unservable(`${name} is of the class ${kind}, which is not served on the rails`);
  if (!checksTargets && modes.some((mode) => mode !== AuthzMode.Self)) {
    throw unservable(`${name} has a target, and nobody says whether a target is still so`);
  }
  if (name === DESCRIBE) throw unservable("describe is built in");
}

function contractOf({ document }: CompiledCommand): CommandContract {
  const { class: kind, modes = [], action, inputDigest, outputDigest } = document;
  return { class: kind, modes, action: action !== undefined, inputDigest, outputDigest };
}

function unservable(why: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `this endpoint is not served: ${why}`, {
    outcome: Outcome.NotExecuted,
    next: "mend its contract or its handlers, and start it again",
  });
}
