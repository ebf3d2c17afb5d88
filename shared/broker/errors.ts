/**
 * The one place where an error of the broker or of its client library becomes a `CotalError`.
 *
 * Invariants
 * 1. Classes and numbers decide, never English text: texts change between releases.
 * 2. The outcome is honest. A refusal means that nothing was stored; silence, or a connection that
 *    went away in between, means that nobody knows (§13.3 "Effect outcome").
 * 3. What the server says about somebody else's subject (the last sequence of a lost CAS) is not
 *    passed on: it is an oracle about that subject.
 */
import { JetStreamApiError } from "@nats-io/jetstream";
import {
  AuthorizationError,
  ClosedConnectionError,
  ConnectionError,
  DrainingConnectionError,
  InvalidArgumentError,
  InvalidOperationError,
  InvalidSubjectError,
  NoRespondersError,
  PermissionViolationError,
  ProtocolError,
  RequestError,
  TimeoutError,
  UserAuthenticationExpiredError,
} from "@nats-io/transport-node";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";

/** Kind of the detail that carries a JetStream error number. */
const API_DETAIL = "ai.cotal.broker.api";
/** Kind of the detail that names the refused operation and its subject. */
const PERMISSION_DETAIL = "ai.cotal.broker.permission";

/** JetStream error numbers that code here asks for by name. */
export const ApiCode = {
  ConsumerNotFound: 10014,
  NoMessageFound: 10037,
  SequenceNotFound: 10043,
  MessageDeleteFailed: 10057,
  StreamNameExists: 10058,
  StreamNotFound: 10059,
  StreamStoreFailed: 10077,
  WrongLastSequence: 10071,
  ConsumerExists: 10148,
} as const;

/** Our code for JetStream error numbers; a number outside goes by its status class. */
const BY_NUMBER: ReadonlyMap<number, ErrorCode> = new Map(
  (
    [
      [ErrorCode.Conflict, [10070, 10071, 10164, 10201]],
      [ErrorCode.NotFound, [10014, 10037, 10043, 10059, 10149]],
      [ErrorCode.AlreadyExists, [10013, 10058, 10148]],
      // 10077 is any failure to store; in practice a limit that was reached.
      [
        ErrorCode.ResourceExhausted,
        [10002, 10023, 10026, 10027, 10028, 10047, 10053, 10077, 10122, 10167, 10210, 10211],
      ],
      [ErrorCode.BadRequest, [10003, 10025, 10052, 10054, 10097, 10165, 10175, 10177, 10179, 10199, 10200]],
      [
        ErrorCode.FailedPrecondition,
        [10010, 10036, 10057, 10060, 10065, 10074, 10100, 10109, 10110, 10111, 10120, 10166, 10174, 10185, 10188],
      ],
      // 10039 and 10076 are also said for seconds after a cluster lost a stream's leader.
      [
        ErrorCode.Unavailable,
        [
          10004, 10005, 10006, 10007, 10008, 10009, 10039, 10041, 10076, 10118, 10119, 10158, 10163, 10176, 10194,
          10195,
        ],
      ],
    ] as const
  ).flatMap(([code, numbers]) => numbers.map((number): [number, ErrorCode] => [number, code])),
);

const BY_STATUS: ReadonlyMap<number, ErrorCode> = new Map([
  [400, ErrorCode.BadRequest],
  [404, ErrorCode.NotFound],
  [409, ErrorCode.Conflict],
  [413, ErrorCode.ResourceExhausted],
  [429, ErrorCode.ResourceExhausted],
  [503, ErrorCode.Unavailable],
]);

const NEXT: Partial<Record<ErrorCode, string>> = {
  [ErrorCode.Conflict]: "read the row again and decide on what is there now",
  [ErrorCode.ResourceExhausted]: "free or add storage for the broker's account, or raise the limit that was reached",
  [ErrorCode.Unavailable]: "try again; if it stays, look at the broker's JetStream state",
};

/** An error object in a JetStream API answer. */
export type ApiFault = {
  readonly code: number;
  readonly err_code?: number | undefined;
  readonly description?: string | undefined;
};

/** A JetStream API refusal. Nothing was stored: the server refused before it wrote. */
export function fromApi(fault: ApiFault, doing: string): CotalError {
  const number = fault.err_code ?? 0;
  const code = BY_NUMBER.get(number) ?? BY_STATUS.get(fault.code) ?? ErrorCode.Internal;
  const text = code === ErrorCode.Conflict || fault.description === undefined ? code : fault.description;
  return new CotalError(code, `${doing}: ${text}`, {
    outcome: Outcome.NotExecuted,
    details: [{ kind: API_DETAIL, number, status: fault.code }],
    ...nextFor(code),
  });
}

/** The JetStream error number an error carries, if it came from the API. */
export function apiNumber(error: unknown): number | undefined {
  if (!(error instanceof CotalError)) return undefined;
  const number = error.details.find(({ kind }) => kind === API_DETAIL)?.["number"];
  return typeof number === "number" ? number : undefined;
}

/** True for a `CotalError` of this code. */
export function isCode(error: unknown, code: ErrorCode): error is CotalError {
  return error instanceof CotalError && error.code === code;
}

/** True if nobody can say whether the write happened. */
export function isUnknownOutcome(error: unknown): boolean {
  return error instanceof CotalError && error.outcome === Outcome.Unknown;
}

type Verdict = { readonly code: ErrorCode; readonly text: string; readonly outcome: Outcome; readonly next?: string };

/**
 * Any error that nats.js or a socket threw, while `doing` something, as a `CotalError`.
 * An error that is none of theirs becomes `internal` with its cause kept.
 */
export function fromNats(thrown: unknown, doing = "a broker request"): CotalError {
  if (thrown instanceof CotalError) return thrown;
  if (thrown instanceof JetStreamApiError) return fromApi(thrown.apiError(), doing);
  const permission = permissionOf(thrown);
  if (permission !== undefined) return permissionDenied(permission, doing, thrown);
  const verdict = verdictOf(thrown);
  return new CotalError(verdict.code, `${doing}: ${verdict.text}`, {
    outcome: verdict.outcome,
    cause: thrown,
    ...(verdict.next === undefined ? nextFor(verdict.code) : { next: verdict.next }),
  });
}

function permissionDenied(violation: PermissionViolationError, doing: string, cause: unknown): CotalError {
  const { operation, subject } = violation;
  return new CotalError(
    ErrorCode.PermissionDenied,
    `${doing}: the broker refuses ${operation === "publish" ? "to publish on" : "to subscribe to"} ${subject}`,
    {
      outcome: Outcome.NotExecuted,
      next: "the credential lacks this grant; mint one that has it",
      details: [{ kind: PERMISSION_DETAIL, operation, subject }],
      cause,
    },
  );
}

function permissionOf(thrown: unknown): PermissionViolationError | undefined {
  if (thrown instanceof PermissionViolationError) return thrown;
  // A refused request arrives wrapped.
  return thrown instanceof RequestError && thrown.cause instanceof PermissionViolationError ? thrown.cause : undefined;
}

const refused = (code: ErrorCode, text: string, next?: string): Verdict => ({
  code,
  text,
  outcome: Outcome.NotExecuted,
  ...(next === undefined ? {} : { next }),
});

function verdictOf(thrown: unknown): Verdict {
  if (thrown instanceof TimeoutError) {
    return {
      code: ErrorCode.DeadlineExceeded,
      text: "no answer within the deadline",
      outcome: Outcome.Unknown,
      next: "read what is there before trying again",
    };
  }
  if (thrown instanceof NoRespondersError || (thrown instanceof RequestError && thrown.isNoResponders())) {
    return refused(ErrorCode.Unavailable, "nobody serves this subject", "check that its server runs, then try again");
  }
  if (thrown instanceof AuthorizationError || thrown instanceof UserAuthenticationExpiredError) {
    return refused(ErrorCode.Unauthenticated, "the broker refuses the credential", "renew the credential");
  }
  if (
    thrown instanceof ClosedConnectionError ||
    thrown instanceof DrainingConnectionError ||
    thrown instanceof ConnectionError
  ) {
    return refused(ErrorCode.Unavailable, "there is no connection to the broker");
  }
  // What is left of these: the connection went away while an answer was due.
  if (thrown instanceof RequestError || thrown instanceof ProtocolError) {
    return { code: ErrorCode.Unavailable, text: "the connection to the broker broke", outcome: Outcome.Unknown };
  }
  if (
    thrown instanceof InvalidArgumentError ||
    thrown instanceof InvalidSubjectError ||
    thrown instanceof InvalidOperationError
  ) {
    return refused(ErrorCode.BadRequest, "the request is not lawful for the broker");
  }
  return socketVerdict(thrown);
}

/** Socket and TLS errors of Node carry a string code. */
function socketVerdict(thrown: unknown): Verdict {
  const code = thrown instanceof Error && "code" in thrown ? thrown.code : undefined;
  if (typeof code !== "string") {
    return { code: ErrorCode.Internal, text: "an error that is not the broker's", outcome: Outcome.Unknown };
  }
  if (NETWORK_CODES.has(code)) return refused(ErrorCode.Unavailable, `the broker can't be reached (${code})`);
  if (/CERT|TLS|SSL|SIGNATURE/.test(code)) {
    return refused(
      ErrorCode.FailedPrecondition,
      `TLS to the broker failed (${code})`,
      "check the certificate authority, and the name and dates of the broker's certificate",
    );
  }
  return { code: ErrorCode.Internal, text: `an unexpected error (${code})`, outcome: Outcome.Unknown };
}

const NETWORK_CODES: ReadonlySet<string> = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "ECONNABORTED",
  "EPIPE",
  "ETIMEDOUT",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "EHOSTDOWN",
  "ENETUNREACH",
  "ENETDOWN",
  "EADDRNOTAVAIL",
]);

function nextFor(code: ErrorCode): { readonly next: string } | Record<string, never> {
  const next = NEXT[code];
  return next === undefined ? {} : { next };
}
