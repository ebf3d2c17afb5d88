/**
 * What a caller says when a request ends without an answer (§13.3 "Effect outcome", §13.5). Each says what is
 * known of the effect: of the four local classes only silence is `unknown`.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { DESCRIBE, isCoreEndpoint } from "../protocol/endpoint/grammar.ts";
import { outcomeOf } from "../protocol/endpoint/outcome.ts";

/** Detail of a refusal by the broker: which subject it refused. */
const REFUSED_SUBJECT = "ai.cotal.ep.refused-subject";

/** Detail of the broker's word that nobody is there. */
const NOBODY = "ai.cotal.ep.nobody-there";

const UNPUBLISHED = outcomeOf({ seen: "unpublished" });
const NOTHING = outcomeOf({ seen: "nothing" });

/** The broker refused the request's own subject: nobody received it. */
export function deniedCall(what: string, subject: string): CotalError {
  return new CotalError(
    ErrorCode.PermissionDenied,
    `this credential may not call ${what}: the broker refuses ${subject}`,
    {
      outcome: UNPUBLISHED,
      next: "use a credential whose profile holds this command",
      details: [{ kind: REFUSED_SUBJECT, subject }],
    },
  );
}

/** The broker refused the way back; the request itself went out. */
export function deniedReply(what: string, subject: string): CotalError {
  return new CotalError(
    ErrorCode.PermissionDenied,
    `this credential may not hear the answer of ${what}: the broker refuses ${subject}`,
    {
      outcome: NOTHING,
      next: "use a credential minted for the caller it calls as; what was asked may have been done",
      details: [{ kind: REFUSED_SUBJECT, subject }],
    },
  );
}

export function closedBefore(what: string, cause?: unknown): CotalError {
  return new CotalError(ErrorCode.Unavailable, `${what} was not sent: the connection is closed`, {
    outcome: UNPUBLISHED,
    next: "open a new session",
    ...(cause === undefined ? {} : { cause }),
  });
}

export function closedAfter(what: string): CotalError {
  return new CotalError(ErrorCode.Unavailable, `the connection was closed before ${what} was answered`, {
    outcome: NOTHING,
    next: "it may have run; look before you repeat it",
  });
}

/** The broker's own word on the reserved sentinel. */
export function nobodyThere(endpoint: string, what: string): CotalError {
  return new CotalError(ErrorCode.Unavailable, `nothing serves ${what} in this space`, {
    outcome: outcomeOf({ seen: "no-responders", onSentinel: true }),
    next: isCoreEndpoint(endpoint)
      ? "start its daemon (cotal up), or run cotal status to see what is missing"
      : "cotal endpoints lists what has registered; whoever runs that endpoint has to start it",
    details: [{ kind: NOBODY }],
  });
}

/** Was nobody there to be asked? Then nothing was done, and whoever comes may be asked the same. */
export function isNobodyThere(thrown: unknown): boolean {
  return thrown instanceof CotalError && thrown.details.some(({ kind }) => kind === NOBODY);
}

/** How a command is named to a person: `describe` stands for the endpoint itself. */
export function named(endpoint: string, command: string): string {
  return command === DESCRIBE ? endpoint : `${endpoint} ${command}`;
}

export function silence(what: string, deadlineMs: number): CotalError {
  return new CotalError(ErrorCode.DeadlineExceeded, `no answer to ${what} within ${deadlineMs} ms`, {
    outcome: NOTHING,
    next: "it may have run; look before you repeat it",
  });
}

export function tooManyPending(what: string, most: number): CotalError {
  return new CotalError(ErrorCode.ResourceExhausted, `${what} was not sent: ${most} calls wait for an answer already`, {
    outcome: UNPUBLISHED,
    next: "wait for some of them; call less at once",
  });
}

export function notWritable(what: string, cause: unknown): CotalError {
  return new CotalError(ErrorCode.BadRequest, `the arguments of ${what} can't be written as JSON`, {
    outcome: UNPUBLISHED,
    cause,
  });
}

export function tooLarge(what: string, bytes: number, most: number): CotalError {
  return new CotalError(
    ErrorCode.BadRequest,
    `the request ${what} takes ${bytes} bytes, and the broker carries ${most}`,
    {
      outcome: UNPUBLISHED,
      next: "send less at once",
    },
  );
}

/** The same refusal, of a command that was never put on the wire. */
export function neverSent(error: CotalError): CotalError {
  if (error.outcome === Outcome.NotExecuted) return error;
  const { code, message, next, details, extension } = error;
  return new CotalError(code, message, {
    outcome: UNPUBLISHED,
    details,
    cause: error,
    ...(next === undefined ? {} : { next }),
    ...(extension === undefined ? {} : { extension }),
  });
}
