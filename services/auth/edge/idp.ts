/**
 * The proof of a person (§10): an ID token of the one issuer that this space trusts.
 *
 * Invariants
 * 1. Issuer and audience are pinned, the algorithm is of a list without `none` and without shared
 *    secrets, keys come from the issuer's own JWKS alone.
 * 2. Only an ID token is one: a token with an `events` claim (a logout token), or of another type, is
 *    refused, whoever signed it. One with a `purpose` opens the one door that it was made for (§10).
 * 3. Each refusal has a fault of its own; none repeats any of the token.
 * 4. An issuer that can't be reached is `unreachable` and nobody's fault: it never counts as a bad token.
 *    Its keys are fetched again at most once in `COOLDOWN_MS`, whatever arrives.
 */
import { type JWTPayload, type JWTVerifyGetKey, createLocalJWKSet, createRemoteJWKSet, errors, jwtVerify } from "jose";
import { z } from "zod";
import { badRequest } from "../../../shared/protocol/base/errors.ts";
import { LIFECYCLE_UID, PRINCIPAL_TOKEN, SPACE_TOKEN } from "../../../shared/protocol/base/grammar.ts";

const MAX_ID_TOKEN_BYTES = 16 * 1024;
export const DEFAULT_ALGORITHMS = ["RS256", "PS256", "ES256", "EdDSA"] as const;

const CLOCK_TOLERANCE = 10;
const FETCH_MS = 5_000;
const COOLDOWN_MS = 10_000;
const MAX_DISCOVERY_BYTES = 64 * 1024;
const MAX_SUBJECT = 512;

export type IdpOptions = {
  readonly issuer: string;
  readonly audience: string;
  /** Address of the issuer's keys; without it, the issuer's discovery document says. */
  readonly jwks?: string;
  readonly algorithms?: readonly string[];
  /** Keys that are at hand: nothing is fetched. */
  readonly keys?: JWTVerifyGetKey;
  /** Epoch milliseconds. */
  readonly now: () => number;
};

export const ProofFault = {
  TooLarge: "too-large",
  Malformed: "malformed",
  WrongType: "wrong-type",
  WrongAlgorithm: "wrong-algorithm",
  UnknownKey: "unknown-key",
  BadSignature: "bad-signature",
  WrongIssuer: "wrong-issuer",
  WrongAudience: "wrong-audience",
  NotYetValid: "not-yet-valid",
  Expired: "expired",
  MissingClaim: "missing-claim",
  Purpose: "purpose",
  Unreachable: "unreachable",
} as const;
export type ProofFault = (typeof ProofFault)[keyof typeof ProofFault];

/** Who a proof is of. */
export type Person = { readonly issuer: string; readonly subject: string };

type Refused = { readonly ok: false; readonly fault: ProofFault };
type Proved = {
  readonly ok: true;
  readonly person: Person;
  /** Unix seconds, of the proof. */
  readonly issued: number;
  readonly expires: number;
};

export type Proof = Proved | Refused;

export type IdentityProvider = { readonly verify: (idToken: string) => Promise<Proof> };

/** A proof that was made for reading one inbox (§10 `dm-reader`), and what it was made for. */
export type DmReaderProof =
  | (Proved & { readonly actor: string; readonly lifecycleUid: string; readonly space: string })
  | Refused;

export type DmReaderProofs = { readonly verify: (idToken: string) => Promise<DmReaderProof> };

const fault = (why: ProofFault): Refused => ({ ok: false, fault: why });

/** Throws `bad-request` for settings that would trust more than they should. */
export function createIdentityProvider(options: IdpOptions): IdentityProvider {
  const read = reader(options);
  return {
    verify: async (idToken) => {
      const token = await read(idToken);
      if (!token.ok) return token;
      return token.payload["purpose"] === undefined ? token.proved : fault(ProofFault.Purpose);
    },
  };
}

const DM_READER = "dm-reader";

/** Proofs of the bridge's own audience, which is another than the ordinary one (§10). */
export function createDmReaderProofs(options: IdpOptions): DmReaderProofs {
  const read = reader(options);
  return {
    verify: async (idToken) => {
      const token = await read(idToken);
      if (!token.ok) return token;
      if (token.payload["purpose"] !== DM_READER) return fault(ProofFault.Purpose);
      const claims = DmReaderClaims.safeParse(token.payload).data;
      if (claims === undefined) return fault(ProofFault.MissingClaim);
      const { actor, lifecycle, space } = claims;
      return { ...token.proved, actor, lifecycleUid: lifecycle, space };
    },
  };
}

const DmReaderClaims = z.looseObject({
  actor: z.string().regex(PRINCIPAL_TOKEN),
  lifecycle: z.string().regex(LIFECYCLE_UID),
  space: z.string().regex(SPACE_TOKEN),
});

type Token = { readonly ok: true; readonly payload: JWTPayload; readonly proved: Proved } | Refused;

function reader(options: IdpOptions): (idToken: string) => Promise<Token> {
  const { issuer, audience, now } = options;
  const algorithms = [...(options.algorithms ?? DEFAULT_ALGORITHMS)];
  const unfit = algorithms.find((name) => !/^(?:RS|PS|ES)(?:256|384|512)$|^EdDSA$|^Ed25519$/.test(name));
  if (algorithms.length === 0 || unfit !== undefined) {
    throw badRequest(
      "the algorithms of the identity provider must be public-key signatures",
      `use some of ${DEFAULT_ALGORITHMS.join(", ")}`,
    );
  }
  for (const address of [issuer, options.jwks]) if (address !== undefined) checkAddress(address);
  const keys = options.keys ?? issuerKeys(options);

  return async (idToken) => {
    if (idToken.length > MAX_ID_TOKEN_BYTES) return fault(ProofFault.TooLarge);
    try {
      const { payload, protectedHeader } = await jwtVerify(idToken, keys, {
        issuer,
        audience,
        algorithms,
        clockTolerance: CLOCK_TOLERANCE,
        requiredClaims: ["sub", "iat", "exp"],
        currentDate: new Date(now()),
      });
      const { typ } = protectedHeader;
      if (typ !== undefined && typ.toUpperCase() !== "JWT") return fault(ProofFault.WrongType);
      if (payload["events"] !== undefined) return fault(ProofFault.WrongType);
      const { sub, iat = 0, exp = 0 } = payload;
      if (iat * 1000 > now() + CLOCK_TOLERANCE * 1000) return fault(ProofFault.NotYetValid);
      if (!isSubject(sub)) return fault(ProofFault.MissingClaim);
      // A NumericDate may have a fraction (RFC 7519, 2); what is signed from it here has none.
      const [issued, expires] = [Math.floor(iat), Math.floor(exp)];
      return { ok: true, payload, proved: { ok: true, person: { issuer, subject: sub }, issued, expires } };
    } catch (error) {
      return fault(faultOf(error));
    }
  };
}

/** Text of one spelling: whatever is no Unicode comes to the same bytes, and would be one person. */
function isSubject(sub: unknown): sub is string {
  return typeof sub === "string" && sub !== "" && sub.length <= MAX_SUBJECT && sub.isWellFormed();
}

/** Faults of the library, by its codes; a code that is not here was met while its keys were fetched. */
const BY_CODE: Readonly<Record<string, ProofFault>> = {
  [errors.JWTInvalid.code]: ProofFault.Malformed,
  [errors.JWSInvalid.code]: ProofFault.Malformed,
  [errors.JOSENotSupported.code]: ProofFault.Malformed,
  [errors.JOSEAlgNotAllowed.code]: ProofFault.WrongAlgorithm,
  [errors.JWKSNoMatchingKey.code]: ProofFault.UnknownKey,
  [errors.JWKSMultipleMatchingKeys.code]: ProofFault.UnknownKey,
  [errors.JWSSignatureVerificationFailed.code]: ProofFault.BadSignature,
  [errors.JWTExpired.code]: ProofFault.Expired,
};

const BY_CLAIM: Readonly<Record<string, ProofFault>> = {
  iss: ProofFault.WrongIssuer,
  aud: ProofFault.WrongAudience,
  nbf: ProofFault.NotYetValid,
};

function faultOf(error: unknown): ProofFault {
  if (error instanceof errors.JWTClaimValidationFailed) {
    return error.reason === "missing" ? ProofFault.MissingClaim : (BY_CLAIM[error.claim] ?? ProofFault.MissingClaim);
  }
  if (error instanceof errors.JOSEError) return BY_CODE[error.code] ?? ProofFault.Unreachable;
  return ProofFault.Unreachable;
}

const Discovery = z.object({ issuer: z.string(), jwks_uri: z.string() });

type Keys = ReturnType<typeof createRemoteJWKSet>;

/** The issuer's keys, for every audience: found once, fetched again when they are old or a key is new. */
function issuerKeys({ issuer, jwks, now }: Pick<IdpOptions, "issuer" | "jwks" | "now">): JWTVerifyGetKey {
  let found: Keys | undefined;
  let finding: Promise<Keys> | undefined;
  let failedAt = -Infinity;
  const find = async (): Promise<Keys> => {
    const address = jwks ?? (await discover(issuer));
    return createRemoteJWKSet(new URL(address), { timeoutDuration: FETCH_MS, cooldownDuration: COOLDOWN_MS });
  };
  return async (header, token) => {
    const since = now() - failedAt;
    // Not while a clock that was set back catches up.
    if (since >= 0 && since < COOLDOWN_MS) {
      // A stranger's key id must not keep people out whose key is known.
      const held = found?.fresh === true ? found.jwks() : undefined;
      if (held === undefined) throw new TypeError("the issuer could not be reached a moment ago");
      return createLocalJWKSet(held)(header, token);
    }
    try {
      found ??= await (finding ??= find());
      return await found(header, token);
    } catch (error) {
      finding = undefined;
      if (!(error instanceof errors.JOSEError) || BY_CODE[error.code] === undefined) failedAt = now();
      throw error;
    }
  };
}

async function discover(issuer: string): Promise<string> {
  const response = await fetch(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`, {
    redirect: "error",
    signal: AbortSignal.timeout(FETCH_MS),
    headers: { accept: "application/json" },
  });
  if (!response.ok) throw new TypeError("the issuer has no discovery document");
  const { issuer: named, jwks_uri } = Discovery.parse(JSON.parse(await boundedText(response)));
  // Mix-up: a document that speaks for another issuer is nobody's.
  if (named !== issuer) throw new TypeError("the discovery document names another issuer");
  checkAddress(jwks_uri);
  return jwks_uri;
}

async function boundedText(response: Response): Promise<string> {
  const { body } = response;
  if (body === null) return "";
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body as AsyncIterable<Uint8Array>) {
    size += chunk.length;
    if (size > MAX_DISCOVERY_BYTES) throw new TypeError("the discovery document is too large");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

const LOOPBACK: ReadonlySet<string> = new Set(["127.0.0.1", "localhost", "[::1]"]);

/** Keys over an open line would be anybody's keys. */
export function checkAddress(address: string): void {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  const safe = url?.protocol === "https:" || (url?.protocol === "http:" && LOOPBACK.has(url.hostname));
  if (!safe)
    throw badRequest(
      "an identity provider's address begins with https://",
      "set COTAL_IDP_ISSUER, and COTAL_IDP_JWKS if it is used, to such an address; http:// is for this machine only",
    );
}
