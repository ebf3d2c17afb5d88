/** What a server writes for each command of its contract, typed from the declaration. */
import type { Args, ClusterDeclaration, CommandName, Result } from "../protocol/contract/declare.ts";
import type { BodyTarget } from "../protocol/endpoint/envelope.ts";
import type { Caller } from "../protocol/endpoint/grammar.ts";

/** What a handler knows of a call. */
export type CallContext = {
  readonly caller: Caller;
  /** The caller's dot-form. */
  readonly from: string;
  readonly requestId: string;
  /** Of a targeted command: whom it is for, as resolved a moment ago. */
  readonly target: BodyTarget | undefined;
  /** Aborted at the caller's deadline. */
  readonly signal: AbortSignal;
  readonly traceparent: string | undefined;
};

/**
 * The last word before the handler, for whatever a server asks of every command: a budget, an approval. It
 * sees parsed arguments, and throws a `CotalError` to refuse; then nothing ran.
 */
export type Guard = (command: string, args: unknown, call: CallContext) => Promise<void>;

/** Throws a `CotalError` to refuse; what it says of the outcome is believed, silence is `unknown`. */
export type Handler = (args: never, call: CallContext) => Promise<unknown>;

/** One handler for each command of a cluster: the parsed arguments in, a value of the wire out. */
export type Handlers<C extends ClusterDeclaration> = {
  readonly [N in CommandName<C>]: (args: Args<C, N>, call: CallContext) => Promise<Result<C, N>>;
};

/** Handlers by name, whatever cluster they belong to. */
export type HandlerTable = Readonly<Record<string, Handler>>;

/** Checks handlers against their cluster; clusters of one endpoint are then spread into one table. */
export function handlersOf<C extends ClusterDeclaration>(_cluster: C, handlers: Handlers<C>): HandlerTable {
  return handlers as HandlerTable;
}
