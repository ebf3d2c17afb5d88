/**
 * An ID token before it is believed or kept: signed by the issuer, for this client, for this sign-in
 * (OIDC Core, 3.1.3.7).
 *
 * The exchange checks it again, by its own list. Here it keeps a person from signing in as somebody else:
 * a token that an attacker slipped in would be of another sign-in, and its nonce says so.
 */
import { type JWTVerifyGetKey, createRemoteJWKSet, customFetch, errors, jwtVerify } from "jose";
import type { CotalError } from "../../shared/protocol/base/errors.ts";
import { misshapen, providerFault, untrusted } from "./faults.ts";
import type { Provider } from "./provider.ts";

/** Signatures of a key pair: never `none`, never a shared secret. */
const ALGORITHMS = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA Ed25519".split(" ");
const CLOCK_TOLERANCE = 10;
const FETCH_MS = 6000;

export type Expected = {
  /** Of the sign-in; there is none by device, and none at a renewal. */
  readonly nonce?: string;
  /** Whose token it replaces (OIDC Core, 12.2). */
  readonly subject?: string;
};

/** The issuer's own keys, from the address that its discovery document names. */
export function providerKeys({ config, host, fetch }: Pick<Provider, "config" | "host" | "fetch">): JWTVerifyGetKey {
  const { jwks_uri: address } = config.serverMetadata();
  if (address === undefined) throw misshapen(host, "it names no keys");
  return createRemoteJWKSet(new URL(address), { timeoutDuration: FETCH_MS, [customFetch]: fetch });
}

/** Throws `unauthenticated` for a token that is not what it should be. */
export async function checkIdToken(
  idToken: string,
  { at: { issuer, clientId }, host }: Pick<Provider, "at" | "host">,
  keys: JWTVerifyGetKey,
  { nonce, subject }: Expected,
): Promise<void> {
  const refuse = (why: string): never => {
    throw untrusted(host, why);
  };
  try {
    const { payload } = await jwtVerify(idToken, keys, {
      issuer,
      audience: clientId,
      algorithms: ALGORITHMS,
      clockTolerance: CLOCK_TOLERANCE,
      requiredClaims: ["sub", "iat", "exp"],
    });
    const { aud, azp, sub } = payload;
    if (Array.isArray(aud) && aud.length > 1 && azp !== clientId) refuse("it was made for another client");
    if (azp !== undefined && azp !== clientId) refuse("it was made for another client");
    if (nonce !== undefined && payload["nonce"] !== nonce) refuse("it is of another sign-in");
    if (subject !== undefined && sub !== subject) refuse("it is another person's");
  } catch (error) {
    throw faultOf(host, error);
  }
}

const BY_CODE: Readonly<Record<string, string>> = {
  [errors.JOSEAlgNotAllowed.code]: "its signature is of a kind that is not taken",
  [errors.JOSENotSupported.code]: "its signature is of a kind that is not taken",
  [errors.JWKSNoMatchingKey.code]: "its key is none of the issuer's",
  [errors.JWKSMultipleMatchingKeys.code]: "its key is none of the issuer's",
  [errors.JWSSignatureVerificationFailed.code]: "its signature is wrong",
  [errors.JWTExpired.code]: "it is over already; compare this machine's clock",
  [errors.JWTInvalid.code]: "it can't be read",
  [errors.JWSInvalid.code]: "it can't be read",
};

const BY_CLAIM: Readonly<Record<string, string>> = {
  iss: "it is of another issuer",
  aud: "it was made for another client",
  nbf: "it does not count yet; compare this machine's clock",
};

function faultOf(host: string, error: unknown): CotalError {
  if (error instanceof errors.JWTClaimValidationFailed) {
    return untrusted(host, BY_CLAIM[error.claim] ?? "it lacks a claim that it needs");
  }
  const known = error instanceof errors.JOSEError ? BY_CODE[error.code] : undefined;
  // What is not known was met while the keys were fetched.
  return known === undefined ? providerFault(host, error, []) : untrusted(host, known);
}
