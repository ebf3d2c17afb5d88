/**
 * What a command file gets to see of the command line: its options, an output, a way to end.
 *
 * A command is one file with one `register…` function: it declares its arguments and options and
 * hands over a handler. Everything around the handler (errors, exit codes, `--json`) is here.
 */
import { type Command } from "commander";
import { type Exit } from "./exit.ts";
import { type Output, createOutput } from "./output.ts";
import { type CommonOptions, type Target, resolveTarget } from "./target.ts";

export type Invocation<O> = {
  readonly options: O & CommonOptions;
  readonly out: Output;
  /** Reads `--server`, `--space` and `--state`; a problem there is a usage error. */
  readonly target: () => Target;
};

/** A handler's result: an exit code, or nothing for 0. */
export type Handler<O> = (invocation: Invocation<O>, ...args: string[]) => Promise<Exit | void>;

/** Runs the handler with the options of the command and of all above it. */
export function handle<O extends object>(command: Command, run: Handler<O>): void {
  command.action(async (...given: unknown[]) => {
    const options = command.optsWithGlobals<O & CommonOptions>();
    const args = given.slice(0, command.registeredArguments.length).flatMap(textsOf);
    const code = await run(
      { options, out: createOutput(options.json === true), target: () => resolveTarget(options) },
      ...args,
    );
    if (typeof code === "number") process.exitCode = code;
  });
}

/** A variadic argument comes as a list, an optional one as nothing. */
function textsOf(value: unknown): string[] {
  if (typeof value === "string") return [value];
  return Array.isArray(value) ? value.filter((one) => typeof one === "string") : [];
}
