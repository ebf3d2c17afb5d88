/**
 * What an identity provider refuses, as errors for a person.
 *
 * Invariants: told apart by codes of OAuth and of the library, never by text; nothing that was sent is
 * repeated, and no cause is kept that could hold it. A provider that is away is `unavailable` and tried
 * again; `invalid_grant` is the one word that ends a sign-in.
 */
import { ClientError, ResponseBodyError, AuthorizationResponseError } from "openid-client";
import { AWAY_DETAIL, clean } from "../../shared/client/exchange.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";

type Said = { readonly code: ErrorCode; readonly next: string };

const CLIENT: Said = {
  code: ErrorCode.FailedPrecondition,
  next: "register a public (native) client with the redirect address http://127.0.0.1/callback at the provider, and check its id",
};
const AGAIN: Said = { code: ErrorCode.Unauthenticated, next: "sign in again: cotal login" };
const LATER: Said = { code: ErrorCode.Unavailable, next: "try again in a moment" };

/** Error codes of RFC 6749, 8628 and OIDC Core. */
const BY_ERROR: Readonly<Record<string, Said>> = {
  access_denied: { code: ErrorCode.PermissionDenied, next: "sign in again, and agree on the provider's page" },
  expired_token: { code: ErrorCode.DeadlineExceeded, next: "start again: cotal login --device" },
  invalid_client: CLIENT,
  unauthorized_client: CLIENT,
  invalid_scope: {
    code: ErrorCode.FailedPrecondition,
    next: "let the space's operator set COTAL_IDP_SCOPES to what it knows",
  },
  invalid_grant: AGAIN,
  login_required: AGAIN,
  interaction_required: AGAIN,
  consent_required: AGAIN,
  server_error: LATER,
  temporarily_unavailable: LATER,
  slow_down: LATER,
};

export function providerFault(host: string, thrown: unknown, secrets: readonly string[]): CotalError {
  if (thrown instanceof CotalError) return thrown;
  if (thrown instanceof ClientError && thrown.cause instanceof CotalError) return thrown.cause;
  if (thrown instanceof ResponseBodyError) {
    return refusal(host, thrown.error, thrown.error_description, thrown.status, secrets);
  }
  if (thrown instanceof AuthorizationResponseError) {
    return refusal(host, thrown.error, thrown.error_description, 0, secrets);
  }
  const status = statusOf(thrown);
  if (status !== undefined) return status === 429 || status >= 500 ? away(host, `status ${status}`) : odd(host, status);
  if (!(thrown instanceof ClientError)) return away(host, networkCode(thrown));
  switch (thrown.code) {
    case "OAUTH_TIMEOUT":
      return away(host, "no answer");
    case "OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED":
      return otherIssuer(host);
    case "OAUTH_JWT_CLAIM_COMPARISON_FAILED":
    case "OAUTH_JWT_TIMESTAMP_CHECK_FAILED":
      return untrusted(host, "it is not one for this sign-in");
    default:
      return misshapen(host, thrown.code ?? "it breaks the protocol");
  }
}

/** The provider refuses for good: no refresh token, no code, will do. */
export function isSpent(thrown: unknown): boolean {
  return thrown instanceof ResponseBodyError && thrown.error === "invalid_grant";
}

/** An ID token that is not taken. */
export function untrusted(host: string, why: string): CotalError {
  return new CotalError(ErrorCode.Unauthenticated, `the ID token of ${host} is refused: ${why}`, {
    outcome: Outcome.NotExecuted,
    next: "sign in again: cotal login; if it stays, tell the operator of the space",
  });
}

/** Mix-up: a document that speaks for another issuer is nobody's. */
export function otherIssuer(host: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the provider at ${host} says that it is another issuer`, {
    outcome: Outcome.NotExecuted,
    next: "write the issuer exactly as its tokens spell it, also a slash at its end",
  });
}

export function misshapen(host: string, why: string): CotalError {
  return new CotalError(ErrorCode.Internal, `the identity provider ${host} can't be understood: ${why}`, {
    outcome: Outcome.Unknown,
    next: "check the issuer's address with the operator of the space",
  });
}

function refusal(host: string, error: string, text: string | undefined, status: number, secrets: readonly string[]) {
  const late = status === 429 || status >= 500 ? LATER : undefined;
  const { code, next } = late ?? BY_ERROR[error] ?? CLIENT;
  const said = clean(text === undefined ? error : `${error}: ${text}`, secrets);
  return new CotalError(code, `the identity provider ${host} refuses: ${said}`, {
    outcome: Outcome.NotExecuted,
    next,
    ...(code === ErrorCode.Unavailable ? { details: [{ kind: AWAY_DETAIL }] } : {}),
  });
}

function odd(host: string, status: number): CotalError {
  return misshapen(host, status < 400 ? "its answer has another form" : `it answers with status ${status}`);
}

function away(host: string, why: string): CotalError {
  return new CotalError(ErrorCode.Unavailable, `the identity provider ${host} can't be reached (${why})`, {
    outcome: Outcome.Unknown,
    next: "check the network and the issuer's address; it is not the space that is away",
    details: [{ kind: AWAY_DETAIL }],
  });
}

/** The status of an answer that the library could do nothing with. */
function statusOf(thrown: unknown): number | undefined {
  const cause = thrown instanceof ClientError ? thrown.cause : undefined;
  return cause instanceof Response ? cause.status : undefined;
}

function networkCode(thrown: unknown): string {
  const cause = thrown instanceof Error ? thrown.cause : undefined;
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
  return typeof code === "string" && /^[A-Z_]{1,40}$/.test(code) ? code : "no answer";
}
