/**
 * Why a connect is denied (§10): one short line for the broker's log, with what to do.
 *
 * The client never sees the line (measured); it asks the exchange, which says the same of the same
 * ledger. A `reason` is a metric's label and a test's word, from a closed list.
 *
 * Invariant: nothing here holds a bearer, a key or a text that the client chose.
 */
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { BearerFault } from "../../../shared/trust/bearer.ts";
import type { Limited } from "./connect-limits.ts";

export const DenialReason = {
  NoBearer: "no-bearer",
  BadBearer: "bad-bearer",
  ForeignBearer: "foreign-bearer",
  ExpiredBearer: "expired-bearer",
  RateLimited: "rate-limited",
  ConnectionName: "connection-name",
  /** The ledger says no. */
  Refused: "refused",
  Unavailable: "unavailable",
  TooLarge: "too-large",
  Replayed: "replayed",
  /** A read after signing no longer agreed. */
  Moved: "moved",
  Busy: "busy",
  Late: "late",
  Internal: "internal",
} as const;
export type DenialReason = (typeof DenialReason)[keyof typeof DenialReason];

export type Denial = {
  readonly reason: DenialReason;
  readonly code: ErrorCode;
  readonly text: string;
  readonly next: string;
};

const SIGN_IN = "sign in again: cotal login";
const FRESH = "ask the exchange for a fresh bearer and connect with that";

const denial = (reason: DenialReason, code: ErrorCode, text: string, next: string): Denial => ({
  reason,
  code,
  text,
  next,
});

const { Unauthenticated, BadRequest } = ErrorCode;
const bad = (text: string): Denial => denial(DenialReason.BadBearer, Unauthenticated, text, FRESH);
const foreign = (text: string): Denial =>
  denial(DenialReason.ForeignBearer, Unauthenticated, text, "use the exchange of this space");

const OF_BEARER: Readonly<Record<BearerFault, Denial>> = {
  [BearerFault.Absent]: denial(DenialReason.NoBearer, Unauthenticated, "the connection brought no bearer", SIGN_IN),
  [BearerFault.TooLarge]: bad("the bearer is too large to be one"),
  [BearerFault.Malformed]: bad("the bearer is malformed"),
  [BearerFault.WrongType]: bad("the token is of another kind than a bearer"),
  [BearerFault.WrongAlgorithm]: bad("the bearer is signed by an algorithm that is not allowed"),
  [BearerFault.UnknownKey]: foreign("the bearer names a key that this space does not have"),
  [BearerFault.BadSignature]: bad("the signature of the bearer does not hold"),
  [BearerFault.WrongIssuer]: foreign("the bearer is of another issuer"),
  [BearerFault.WrongAudience]: foreign("the bearer is for another space"),
  [BearerFault.Claimless]: bad("the bearer lacks a claim, or has one that no bearer has"),
  [BearerFault.NotYetValid]: bad("the bearer is not valid yet: two clocks are apart"),
  [BearerFault.TooLong]: bad("the bearer lives longer than any bearer may"),
  [BearerFault.Expired]: denial(DenialReason.ExpiredBearer, Unauthenticated, "the bearer has expired", FRESH),
};

/** Denials by name; those with a part that varies are functions. */
export const denials = {
  bearer: (fault: BearerFault): Denial => OF_BEARER[fault],
  limited: ({ limit, retryAfterSeconds }: Limited): Denial =>
    denial(
      DenialReason.RateLimited,
      ErrorCode.ResourceExhausted,
      `RATE_LIMITED retry-after ${retryAfterSeconds}s: too many connects of this ${limit === "host" ? "address" : limit}`,
      "wait that long, then connect once",
    ),
  connectionName: denial(
    DenialReason.ConnectionName,
    BadRequest,
    "the connection is not named <lifecycle uid>_<nonce> with the uid of its bearer",
    "name it so before connecting; the inbox prefix carries the same name",
  ),
  refused: (code: ErrorCode, why: string): Denial =>
    code === ErrorCode.Unavailable
      ? denial(DenialReason.Unavailable, code, why, "try again shortly")
      : denial(DenialReason.Refused, code, why, "ask the exchange, or the operator of the space: cotal actor list"),
  moved: (code: ErrorCode, why: string): Denial =>
    denial(DenialReason.Moved, code, `it changed while the answer was made: ${why}`, "connect again"),
  tooLarge: (why: string): Denial =>
    denial(DenialReason.TooLarge, ErrorCode.ResourceExhausted, why, "narrow the actor's lists: cotal actor narrow"),
  replayed: denial(
    DenialReason.Replayed,
    ErrorCode.AlreadyExists,
    "this user key was let in before",
    "connect again; the broker draws a fresh one",
  ),
  busy: denial(
    DenialReason.Busy,
    ErrorCode.Unavailable,
    "the auth service has too many connects at once",
    "try again shortly, with a growing wait",
  ),
  late: denial(
    DenialReason.Late,
    ErrorCode.DeadlineExceeded,
    "the ledger answered too late for the broker to wait",
    "connect again",
  ),
  internal: denial(DenialReason.Internal, ErrorCode.Internal, "the auth service failed", "its log says more"),
} as const;

/** The line of the signed denial. A limit's begins with `RATE_LIMITED`, as §10 has it. */
export function denialLine({ reason, code, text, next }: Denial): string {
  return reason === DenialReason.RateLimited ? `${text}; ${next}` : `${code}: ${text}; ${next}`;
}
