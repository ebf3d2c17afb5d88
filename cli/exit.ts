/**
 * Exit codes of the CLI, a contract that scripts rely on: 0 done, 1 refused, 2 usage, 3 unreachable,
 * 4 timed out, 5 doctor found something.
 */
import {
  CotalError,
  type CotalErrorOptions,
  ErrorCode,
  Outcome,
  toCotalError,
} from "../shared/protocol/base/errors.ts";

export const Exit = { Done: 0, Refused: 1, Usage: 2, Unreachable: 3, TimedOut: 4, Findings: 5 } as const;
export type Exit = (typeof Exit)[keyof typeof Exit];

/** The command was written wrongly; nothing was asked of anybody. */
export class UsageError extends CotalError {
  constructor(message: string, options: CotalErrorOptions = {}) {
    super(ErrorCode.BadRequest, message, { outcome: Outcome.NotExecuted, ...options });
  }
}

/** The exit code of a thrown value. */
export function exitOf(thrown: unknown): Exit {
  if (thrown instanceof UsageError) return Exit.Usage;
  switch (toCotalError(thrown).code) {
    case ErrorCode.Unavailable:
      return Exit.Unreachable;
    case ErrorCode.DeadlineExceeded:
      return Exit.TimedOut;
    default:
      return Exit.Refused;
  }
}

/** Reads an argument: what a parser refuses there is a matter of usage. */
export function argument<T>(read: () => T): T {
  try {
    return read();
  } catch (thrown) {
    if (!(thrown instanceof CotalError) || thrown.code !== ErrorCode.BadRequest) throw thrown;
    throw new UsageError(thrown.message, thrown.next === undefined ? {} : { next: thrown.next });
  }
}

/** A whole number within bounds, from the text of an option. */
export function wholeNumber(name: string, min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max) return value;
    throw new UsageError(`${name} takes a whole number from ${min} to ${max}, not ${JSON.stringify(text)}`);
  };
}

/** Entries of an option that takes several, separated by commas. */
export function listOf(text: string): string[] {
  return text
    .split(",")
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");
}

/** The same of an option that may also be given several times. */
export function collectList(text: string, before: readonly string[] = []): string[] {
  return [...before, ...listOf(text)];
}
