/**
 * Why a daemon's process ended, as its exit code.
 *
 * An orchestrator and an operator see the code first. So it is a table: each code has one meaning and
 * one advice, and every error code of the catalogue leads to exactly one of them.
 */
import { type ErrorCode, toCotalError } from "../protocol/base/errors.ts";

export const ExitCode = {
  Clean: 0,
  Refused: 1,
  BadConfiguration: 2,
  BrokerUnreachable: 3,
  DrainCutShort: 4,
  /** `EX_SOFTWARE` of sysexits. */
  Internal: 70,
} as const;
export type ExitCode = (typeof ExitCode)[keyof typeof ExitCode];

export const EXIT_CODES: Readonly<Record<ExitCode, { readonly meaning: string; readonly next: string }>> = {
  0: { meaning: "ended on request, with nothing left in flight", next: "nothing to do" },
  1: {
    meaning: "refused: a precondition does not hold",
    next: "read the last error of the log; starting again alone does not help",
  },
  2: { meaning: "the configuration is not valid", next: "set the variables that the log names" },
  3: {
    meaning: "the broker was not reached in time",
    next: "check the broker and its address; starting again may help",
  },
  4: {
    meaning: "the drain was cut short, by its deadline or by a second signal",
    next: "what was in flight is delivered again; raise COTAL_DRAIN_MS if this repeats",
  },
  70: { meaning: "a fault of the program", next: "read the last error of the log, and report it" },
};

const { Refused, BadConfiguration, BrokerUnreachable, Internal } = ExitCode;

const BY_ERROR: Readonly<Record<ErrorCode, ExitCode>> = {
  "bad-request": BadConfiguration,
  "unsupported-version": Refused,
  "op-mismatch": Refused,
  "class-mismatch": Refused,
  "target-mismatch": Refused,
  "sender-mismatch": Refused,
  unauthenticated: Refused,
  "permission-denied": Refused,
  "not-found": Refused,
  "already-exists": Refused,
  conflict: Refused,
  "contract-mismatch": Refused,
  "contract-invalid": Refused,
  "failed-precondition": Refused,
  // A start waits for nothing but the broker and what is behind it.
  "deadline-exceeded": BrokerUnreachable,
  unavailable: BrokerUnreachable,
  cancelled: Refused,
  expired: Refused,
  unimplemented: Refused,
  "resource-exhausted": Refused,
  internal: Internal,
};

/** The exit code of a thrown value; anything that is no `CotalError` is a fault of the program. */
export function exitCodeOf(cause: unknown): ExitCode {
  return BY_ERROR[toCotalError(cause).code];
}
