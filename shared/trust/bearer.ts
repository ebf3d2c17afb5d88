/**
 * The bearer (§10): what the exchange hands to somebody who has signed in, and the callout takes.
 *
 * A compact JWS of the space's own key. It says which incarnation connects; whether that incarnation may
 * connect is read from the ledger at each connect.
 *
 * Invariants
 * 1. One algorithm, one type, keys that are named beforehand, one spelling of each part. Nothing of the claims is believed before
 *    the signature holds.
 * 2. `verifyBearer` is total, and bounded by `MAX_BEARER_BYTES`.
 * 3. A bearer lives for `MAX_BEARER_SECONDS` at most, whoever signed it.
 * 4. Claims that the space's own key has signed come back with an `expired` too: the connect limits are
 *    charged to the principal they name (§10).
 * 5. A bearer is a secret: no message and no fault of this file holds any of it.
 */
import {
  type KeyObject,
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  hash,
  sign,
  verify,
} from "node:crypto";
import { LRUCache } from "lru-cache";
import { z } from "zod";
import { badRequest } from "../protocol/base/errors.ts";
import { LIFECYCLE_UID, MAX_NAME_LENGTH, PRINCIPAL_TOKEN, ROOT_CREDENTIAL_ID } from "../protocol/base/grammar.ts";
import {
  ManagerCallerClaim,
  PLAIN_VIEWS,
  SessionCallerClaim,
  TransferWriterClaim,
} from "../protocol/endpoint/views.ts";
import { base64url, fromBase64url, jsonObject } from "./nats-jwt.ts";

export const MAX_BEARER_BYTES = 16 * 1024;
export const MAX_BEARER_SECONDS = 900;

/** How far the exchange's clock may be ahead of the callout's, in seconds. */
const CLOCK_TOLERANCE = 10;

/** Of no other class of token, so that none can stand in for another. */
const TYPE = "cotal-bearer+jwt";
const ALGORITHM = "EdDSA";

const identity = {
  owner: z.string().regex(PRINCIPAL_TOKEN),
  actor: z.string().regex(PRINCIPAL_TOKEN),
  lifecycleUid: z.string().regex(LIFECYCLE_UID),
  credentialId: z.string().regex(ROOT_CREDENTIAL_ID),
  name: z.string().min(1).max(MAX_NAME_LENGTH),
} as const;

/**
 * Who connects (`act`), and as what. Closed: a claim that is not known here is not ours, and a view's
 * claim stands with that view and with no other (§10).
 */
export const BearerAct = z.union([
  z.strictObject({ ...identity, view: z.undefined().optional() }),
  z.strictObject({ ...identity, view: z.enum(PLAIN_VIEWS) }),
  z.strictObject({ ...identity, ...ManagerCallerClaim.shape }),
  z.strictObject({ ...identity, ...SessionCallerClaim.shape }),
  z.strictObject({ ...identity, ...TransferWriterClaim.shape }),
]);
export type BearerAct = z.infer<typeof BearerAct>;

const seconds = z.number().int().nonnegative().max(Number.MAX_SAFE_INTEGER);

export const BearerClaims = z.strictObject({
  iss: z.string(),
  aud: z.string(),
  iat: seconds,
  exp: seconds,
  jti: z.string().min(16).max(64),
  act: BearerAct,
});
export type BearerClaims = z.infer<typeof BearerClaims>;

/** What a bearer is checked with. */
export type BearerKey = {
  readonly kid: string;
  readonly publicKey: KeyObject;
  /** For `GET /jwks`; no secret. */
  readonly jwk: {
    readonly kty: "OKP";
    readonly crv: "Ed25519";
    readonly x: string;
    readonly kid: string;
    readonly alg: "EdDSA";
    readonly use: "sig";
  };
};

/** One of the keys that a bearer of this space may be signed with. */
export type KnownBearerKey = Pick<BearerKey, "kid" | "publicKey"> & {
  /** Unix seconds from which on nothing of it counts: of a former key. */
  readonly until?: number;
};

export type BearerSigner = BearerKey & { readonly sign: (data: Uint8Array) => Uint8Array };

const PrivateJwk = z.object({
  kty: z.literal("OKP"),
  crv: z.literal("Ed25519"),
  x: z.string(),
  d: z.string(),
  kid: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/),
});

/** Draws a key: the text of `bearer.jwk`, a secret. Its `kid` is its RFC 7638 thumbprint. */
export function newBearerJwk(): string {
  const { x = "", d = "" } = generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" });
  const kid = createHash("sha256")
    .update(JSON.stringify({ crv: "Ed25519", kty: "OKP", x }))
    .digest("base64url");
  return JSON.stringify({ kty: "OKP", crv: "Ed25519", x, d, kid, alg: ALGORITHM, use: "sig" });
}

/** The key of a `bearer.jwk`. Throws `bad-request` without repeating any of it. */
export function bearerSigner(text: string): BearerSigner {
  try {
    const { kty, crv, x, d, kid } = PrivateJwk.parse(JSON.parse(text));
    const privateKey = createPrivateKey({ key: { kty, crv, x, d }, format: "jwk" });
    const publicKey = createPublicKey(privateKey);
    // The public half is derived; a file whose `x` says otherwise would publish a key that verifies nothing.
    if (publicKey.export({ format: "jwk" }).x !== x) throw new TypeError("the halves differ");
    return {
      kid,
      publicKey,
      jwk: { kty, crv, x, kid, alg: ALGORITHM, use: "sig" },
      sign: (data) => sign(null, data, privateKey),
    };
  } catch {
    // Without the cause: it may quote the file.
    throw badRequest("this is no private Ed25519 key with a kid", "restore the file, or run cotal up, which writes it");
  }
}

/** What is kept of a key that signs no more: its public half, and until when its last bearers live. */
const FormerJwk = PrivateJwk.omit({ d: true }).extend({ until: z.number().int() });

export function formerBearer(text: string, until: number): string {
  const { kty, crv, x, kid } = PrivateJwk.parse(JSON.parse(text));
  return JSON.stringify({ kty, crv, x, kid, until } satisfies z.infer<typeof FormerJwk>);
}

/** Reads what `formerBearer` wrote. */
export function formerBearerKey(text: string): KnownBearerKey {
  const { kty, crv, x, kid, until } = FormerJwk.parse(JSON.parse(text));
  return { kid, until, publicKey: createPublicKey({ key: { kty, crv, x }, format: "jwk" }) };
}

/** Encodes and signs. The claims are the caller's business; they are checked as a reader would. */
export function signBearer(claims: BearerClaims, signer: BearerSigner): string {
  const checked = BearerClaims.parse(claims);
  const header = { alg: ALGORITHM, typ: TYPE, kid: signer.kid };
  const text = `${part(header)}.${part(checked)}`;
  return `${text}.${base64url(signer.sign(Buffer.from(text)))}`;
}

const part = (value: object): string => base64url(Buffer.from(JSON.stringify(value)));

/** Why a text is no bearer of this space. */
export const BearerFault = {
  Absent: "absent",
  TooLarge: "too-large",
  Malformed: "malformed",
  WrongType: "wrong-type",
  WrongAlgorithm: "wrong-algorithm",
  UnknownKey: "unknown-key",
  BadSignature: "bad-signature",
  WrongIssuer: "wrong-issuer",
  WrongAudience: "wrong-audience",
  /** Signed, but without `act` or another claim that it must have. */
  Claimless: "claimless",
  NotYetValid: "not-yet-valid",
  TooLong: "too-long-lived",
  Expired: "expired",
} as const;
export type BearerFault = (typeof BearerFault)[keyof typeof BearerFault];

export type BearerScope = {
  readonly issuer: string;
  readonly audience: string;
  /** The one in use, and while keys are rotated the next or the former one. */
  readonly keys: readonly KnownBearerKey[];
  readonly nowSeconds: number;
};

/** A bearer at another time: signature, issuer, audience and shape hold. */
type TimeFault = typeof BearerFault.NotYetValid | typeof BearerFault.TooLong | typeof BearerFault.Expired;

export type VerifiedBearer =
  | { readonly ok: true; readonly claims: BearerClaims }
  | { readonly ok: false; readonly fault: TimeFault; readonly claims: BearerClaims }
  | { readonly ok: false; readonly fault: Exclude<BearerFault, TimeFault>; readonly claims?: undefined };

const fault = (why: Exclude<BearerFault, TimeFault>): VerifiedBearer => ({ ok: false, fault: why });

/** Is this a bearer of this space, now? */
export function verifyBearer(token: string | undefined, scope: BearerScope): VerifiedBearer {
  if (token === undefined || token === "") return fault(BearerFault.Absent);
  if (token.length > MAX_BEARER_BYTES) return fault(BearerFault.TooLarge);
  const parts = token.split(".", 4);
  const [head, body, tail] = parts;
  if (parts.length !== 3 || head === undefined || body === undefined || tail === undefined) {
    return fault(BearerFault.Malformed);
  }
  const header = jsonObject(head);
  const signature = fromBase64url(tail);
  if (header === undefined || signature === undefined) return fault(BearerFault.Malformed);
  if (header["alg"] !== ALGORITHM) return fault(BearerFault.WrongAlgorithm);
  if (header["typ"] !== TYPE) return fault(BearerFault.WrongType);
  // Three known members and no more: `crit`, `jwk` and their like would ask to be understood.
  if (Object.keys(header).length !== 3) return fault(BearerFault.Malformed);
  const key = scope.keys.find(({ kid }) => kid === header["kid"]);
  if (key === undefined || scope.nowSeconds >= (key.until ?? Infinity)) return fault(BearerFault.UnknownKey);
  if (!signedBefore(token, `${head}.${body}`, signature, key.publicKey)) return fault(BearerFault.BadSignature);
  return judged(jsonObject(body), scope);
}

/** Bearers of one key whose signature was found to hold. A fleet that reconnects brings the same ones again. */
const KNOWN = 10_000;
const known = new WeakMap<KeyObject, LRUCache<string, true>>();

/**
 * That a signature holds is true for good; nothing else of a bearer is remembered, and nothing of one that
 * fails. Kept by digest: a dump of the memory shows no bearer.
 */
function signedBefore(token: string, text: string, signature: Uint8Array, key: KeyObject): boolean {
  const digest = hash("sha256", token, "base64");
  const ofKey = known.get(key) ?? new LRUCache<string, true>({ max: KNOWN });
  if (ofKey.get(digest) === true) return true;
  if (!signed(text, signature, key)) return false;
  known.set(key, ofKey);
  ofKey.set(digest, true);
  return true;
}

function signed(text: string, signature: Uint8Array, key: KeyObject): boolean {
  try {
    return verify(null, Buffer.from(text), key, signature);
  } catch {
    return false;
  }
}

function judged(body: Readonly<Record<string, unknown>> | undefined, scope: BearerScope): VerifiedBearer {
  if (body === undefined) return fault(BearerFault.Malformed);
  if (body["iss"] !== scope.issuer) return fault(BearerFault.WrongIssuer);
  if (body["aud"] !== scope.audience) return fault(BearerFault.WrongAudience);
  const parsed = BearerClaims.safeParse(body);
  if (!parsed.success) return fault(BearerFault.Claimless);
  const claims = parsed.data;
  if (claims.exp - claims.iat > MAX_BEARER_SECONDS) return { ok: false, fault: BearerFault.TooLong, claims };
  if (claims.iat > scope.nowSeconds + CLOCK_TOLERANCE) return { ok: false, fault: BearerFault.NotYetValid, claims };
  if (claims.exp <= scope.nowSeconds) return { ok: false, fault: BearerFault.Expired, claims };
  return { ok: true, claims };
}
