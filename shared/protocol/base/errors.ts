/**
 * The error catalogue (§13.3) and the one error class of the project.
 *
 * A code is the contract: nothing tells errors apart by their text. Every error says what is
 * wrong, and `next` says what the reader can do about it.
 */

/** The codes of §13.3, in its order. */
export const ErrorCode = {
  BadRequest: "bad-request",
  UnsupportedVersion: "unsupported-version",
  OpMismatch: "op-mismatch",
  ClassMismatch: "class-mismatch",
  TargetMismatch: "target-mismatch",
  SenderMismatch: "sender-mismatch",
  Unauthenticated: "unauthenticated",
  PermissionDenied: "permission-denied",
  NotFound: "not-found",
  AlreadyExists: "already-exists",
  Conflict: "conflict",
  ContractMismatch: "contract-mismatch",
  ContractInvalid: "contract-invalid",
  FailedPrecondition: "failed-precondition",
  DeadlineExceeded: "deadline-exceeded",
  Cancelled: "cancelled",
  Expired: "expired",
  Unavailable: "unavailable",
  Unimplemented: "unimplemented",
  ResourceExhausted: "resource-exhausted",
  Internal: "internal",
} as const;
export type ErrorCode = (typeof ErrorCode)[keyof typeof ErrorCode];

const CODES: ReadonlySet<string> = new Set(Object.values(ErrorCode));

/** True for a code of the catalogue. */
export function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === "string" && CODES.has(value);
}

/** What is known of a command's effect (§13.3 "Effect outcome"). */
export const Outcome = {
  Executed: "executed",
  NotExecuted: "not-executed",
  Unknown: "unknown",
} as const;
export type Outcome = (typeof Outcome)[keyof typeof Outcome];

/** One entry of `error.details`: `kind` is a reverse-DNS name (§13.3). */
export type ErrorDetail = { readonly kind: string; readonly [key: string]: unknown };

/** Kind of the detail that says when to ask again: `{ ms }`, milliseconds from the answer. */
export const RETRY_AFTER = "ai.cotal.retry-after";

export type CotalErrorOptions = {
  /** One sentence: what the reader can do now. */
  readonly next?: string;
  readonly outcome?: Outcome;
  readonly details?: readonly ErrorDetail[];
  /** The code of an extension, a reverse-DNS name (§13.3): `code` is then the nearest of the catalogue. */
  readonly extension?: string;
  readonly cause?: unknown;
};

/** The error every public function of the project throws. Never carries a secret or a payload. */
export class CotalError extends Error {
  override readonly name = "CotalError";
  readonly code: ErrorCode;
  readonly next: string | undefined;
  readonly outcome: Outcome | undefined;
  readonly details: readonly ErrorDetail[];
  readonly extension: string | undefined;

  constructor(code: ErrorCode, message: string, options: CotalErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.next = options.next;
    this.outcome = options.outcome;
    this.details = options.details ?? [];
    this.extension = options.extension;
  }
}

/** `bad-request`, the refusal of nearly every parser. Nothing has run, and it says so. */
export function badRequest(message: string, next?: string): CotalError {
  return new CotalError(ErrorCode.BadRequest, message, {
    outcome: Outcome.NotExecuted,
    ...(next === undefined ? {} : { next }),
  });
}

/** The same error with another word on the effect. */
export function withOutcome(error: CotalError, outcome: Outcome): CotalError {
  const { code, message, next, details, extension, cause } = error;
  return new CotalError(code, message, {
    outcome,
    details,
    ...(next === undefined ? {} : { next }),
    ...(extension === undefined ? {} : { extension }),
    ...(cause === undefined ? {} : { cause }),
  });
}

/** Any thrown value as a `CotalError`; an unknown one becomes `internal` with its cause kept. */
export function toCotalError(thrown: unknown): CotalError {
  if (thrown instanceof CotalError) return thrown;
  // No `String(thrown)`: an object without a usable `toString` would throw here.
  const message =
    thrown instanceof Error
      ? thrown.message
      : typeof thrown === "string"
        ? thrown
        : "something that is no error was thrown";
  return new CotalError(ErrorCode.Internal, message, { cause: thrown });
}
