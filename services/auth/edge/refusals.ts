/**
 * What an exchange answers when it does not answer with a bearer: status, headers, and a body with a
 * code, a sentence, and what to do.
 *
 * Invariant: no text of the client's and no library's message is repeated; a token never comes back.
 */
import { type CotalError, ErrorCode, type Outcome } from "../../../shared/protocol/base/errors.ts";
import { RATE_LIMITED } from "../../../shared/protocol/endpoint/exchange-shapes.ts";
import type { SelectionRefusal } from "../plane/managers.ts";
import type { Limited } from "./connect-limits.ts";
import { ProofFault } from "./idp.ts";

export type Answer = {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: object;
};

export type RefusalBody = {
  readonly code: ErrorCode;
  /** Why, in one word of a closed list: for programs and metrics. */
  readonly reason: string;
  readonly error: string;
  readonly next: string;
  readonly outcome?: Outcome;
};

const STATUS: Readonly<Partial<Record<ErrorCode, number>>> = {
  [ErrorCode.BadRequest]: 400,
  [ErrorCode.Unauthenticated]: 401,
  [ErrorCode.Expired]: 401,
  [ErrorCode.PermissionDenied]: 403,
  [ErrorCode.NotFound]: 404,
  [ErrorCode.AlreadyExists]: 409,
  [ErrorCode.Conflict]: 409,
  [ErrorCode.FailedPrecondition]: 409,
  [ErrorCode.ResourceExhausted]: 429,
  [ErrorCode.Unimplemented]: 501,
  [ErrorCode.Unavailable]: 503,
  [ErrorCode.DeadlineExceeded]: 504,
};

export function refuse(body: RefusalBody, status = STATUS[body.code] ?? 500): Answer {
  return { status, body };
}

/** A refusal of the ledger, or of ours. An `internal` one keeps its message to the log. */
export function refusalOf({ code, message, next, outcome }: CotalError): Answer {
  const internal = code === ErrorCode.Internal;
  return refuse({
    code,
    reason: code,
    error: internal ? "the auth service failed" : message,
    next: internal ? "its log says more; try again" : (next ?? "ask the operator of the space"),
    ...(outcome === undefined ? {} : { outcome }),
  });
}

/** The 429 of §10: while an actor or its owner is limited. */
export function rateLimited({ limit, retryAfterSeconds }: Limited): Answer {
  return {
    status: 429,
    headers: { "retry-after": String(retryAfterSeconds) },
    body: {
      code: RATE_LIMITED,
      retryAfterSeconds,
      limit,
      error: `too many connects of this ${limit}; wait ${retryAfterSeconds} s before the next exchange or connect`,
    },
  };
}

/** Why a 429 or 503 asks to wait, and for whom. */
const WAITS = {
  busy: [ErrorCode.Unavailable, "too many exchanges at once", "then try again"],
  "busy-with-you": [
    ErrorCode.ResourceExhausted,
    "you asked for too much at once",
    "then ask again; others are served meanwhile",
  ],
  "refused-too-often": [
    ErrorCode.ResourceExhausted,
    "too many refused requests from this address",
    "then send a request with a proof that holds",
  ],
  "selection-pinned": [
    ErrorCode.ResourceExhausted,
    "you asked for managers that are not there too often",
    "then name one of POST /manager-instances; a request that names none is still served",
  ],
  "selection-unpinned": [
    ErrorCode.ResourceExhausted,
    "you asked too often while there was no one manager to send you to",
    "or name one of POST /manager-instances as managerInstanceId, which is still served",
  ],
} as const satisfies Record<string, readonly [ErrorCode, string, string]>;

export function tooMany(retryAfterSeconds: number, reason: keyof typeof WAITS): Answer {
  const [code, error, then] = WAITS[reason];
  return {
    status: code === ErrorCode.Unavailable ? 503 : 429,
    headers: { "retry-after": String(retryAfterSeconds) },
    body: { code, reason, error, next: `wait ${retryAfterSeconds} s, ${then}` },
  };
}

/** Somebody known can't be sent to a manager: 401 with the reason, as §10 has it. */
export function selectionRefused(reason: SelectionRefusal, error: string): Answer {
  const next = "POST /manager-instances lists your managers; start one, or name one that is ready";
  return refuse({ code: ErrorCode.FailedPrecondition, reason, error, next }, 401);
}

const SIGN_IN = "sign in again: cotal login";
const SETTINGS = "check COTAL_IDP_ISSUER and COTAL_IDP_AUDIENCE against what the client signs in to";

const OF_PROOF: Readonly<Record<ProofFault, readonly [error: string, next: string]>> = {
  [ProofFault.TooLarge]: ["the identity token is too large", SIGN_IN],
  [ProofFault.Malformed]: ["the identity token is malformed", SIGN_IN],
  [ProofFault.WrongType]: ["this is another kind of token than an identity token", "send the ID token of a sign-in"],
  [ProofFault.WrongAlgorithm]: ["the identity token is signed by an algorithm that is not allowed", SETTINGS],
  [ProofFault.UnknownKey]: ["the identity token names a key that its issuer does not have", SIGN_IN],
  [ProofFault.BadSignature]: ["the signature of the identity token does not hold", SIGN_IN],
  [ProofFault.WrongIssuer]: ["the identity token is of an issuer that this space does not trust", SETTINGS],
  [ProofFault.WrongAudience]: ["the identity token is for another audience", SETTINGS],
  [ProofFault.NotYetValid]: ["the identity token is not valid yet: two clocks are apart", "set the clocks"],
  [ProofFault.Expired]: ["the identity token has expired", SIGN_IN],
  [ProofFault.MissingClaim]: ["the identity token lacks a claim that it must have", SIGN_IN],
  [ProofFault.Purpose]: [
    "the identity token was issued for one purpose, and this is not it",
    "send an ordinary ID token",
  ],
  [ProofFault.Unreachable]: ["the identity provider can't be reached", "try again shortly; check COTAL_IDP_ISSUER"],
};

export function proofRefused(fault: ProofFault): Answer {
  const [error, next] = OF_PROOF[fault];
  const code = fault === ProofFault.Unreachable ? ErrorCode.Unavailable : ErrorCode.Unauthenticated;
  return refuse({ code, reason: `proof-${fault}`, error, next });
}
