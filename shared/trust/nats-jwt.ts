/**
 * NATS JWTs as bytes: signed and verified natively, and without waiting.
 *
 * For the callout's hot path, where each connection takes two of them. What the claims mean is the
 * caller's business (`callout.ts`, `sentinel.ts`).
 *
 * Invariants
 * 1. `verifiedClaims` is total, and bounded by the size that its caller allows.
 * 2. One algorithm, `ed25519-nkey`, and one spelling of each part: no other header is looked at.
 * 3. Nothing of the claims is believed before the signature of the issuer they name has been checked;
 *    whether that issuer may say such a thing is judged by its kind here, by its name in the caller.
 */
import { createHash } from "node:crypto";
import { isPublicKey, type SigningKey, verifyNative } from "./keys.ts";

const ALGORITHM = "ed25519-nkey";
const HEADER = base64url(Buffer.from(JSON.stringify({ typ: "JWT", alg: ALGORITHM })));
/** How every NATS JWT begins, and nothing that is sealed. */
export const JWT_LEAD = "eyJ";

/** Why bytes are no JWT to be believed. */
export const JwtFault = {
  TooLarge: "too-large",
  Malformed: "malformed",
  WrongAlgorithm: "wrong-algorithm",
  WrongIssuer: "wrong-issuer",
  BadSignature: "bad-signature",
} as const;
export type JwtFault = (typeof JwtFault)[keyof typeof JwtFault];

export type Verified =
  | { readonly ok: true; readonly issuer: string; readonly claims: Readonly<Record<string, unknown>> }
  | { readonly ok: false; readonly fault: JwtFault };

const fault = (why: JwtFault): Verified => ({ ok: false, fault: why });

/** The claims of a JWT whose issuer is a key of this kind and has signed it. */
export function verifiedClaims(bytes: Uint8Array, maxBytes: number, issuerKind: RegExp): Verified {
  if (bytes.length > maxBytes) return fault(JwtFault.TooLarge);
  // One byte is one character here; whatever is no base64url is refused part by part.
  const parts = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1").split(".", 4);
  const [head, body, tail] = parts;
  if (parts.length !== 3 || head === undefined || body === undefined || tail === undefined) {
    return fault(JwtFault.Malformed);
  }
  const header = jsonObject(head);
  const claims = jsonObject(body);
  const signature = fromBase64url(tail);
  if (header === undefined || claims === undefined || signature === undefined) return fault(JwtFault.Malformed);
  if (header["alg"] !== ALGORITHM) return fault(JwtFault.WrongAlgorithm);
  const issuer = claims["iss"];
  if (typeof issuer !== "string" || !isPublicKey(issuerKind, issuer)) return fault(JwtFault.WrongIssuer);
  const signed = bytes.subarray(0, head.length + 1 + body.length);
  return verifyNative(issuer, signed, signature) ? { ok: true, issuer, claims } : fault(JwtFault.BadSignature);
}

export type Claims = {
  readonly sub: string;
  readonly aud?: string;
  readonly name?: string;
  /** Unix seconds. */
  readonly iat: number;
  readonly exp?: number;
  readonly nats: Readonly<Record<string, unknown>>;
};

/** Encodes and signs. `iss`, `jti` and the version of the claims are added. */
export function signedJwt(claims: Claims, signer: SigningKey): string {
  const whole = { ...claims, iss: signer.publicKey, nats: { ...claims.nats, version: 2 } };
  const jti = createHash("sha256").update(JSON.stringify(whole)).digest("base64url");
  const text = `${HEADER}.${base64url(Buffer.from(JSON.stringify({ ...whole, jti })))}`;
  return `${text}.${base64url(signer.sign(Buffer.from(text)))}`;
}

/** Base64url without padding. */
export function base64url(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64url");
}

/** Node reads what it can; only what it would write itself counts. */
export function fromBase64url(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, "base64url");
  return base64url(bytes) === text ? bytes : undefined;
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** A part of a JWT that is a JSON object; `undefined` for anything else. */
export function jsonObject(part: string): Readonly<Record<string, unknown>> | undefined {
  const bytes = fromBase64url(part);
  if (bytes === undefined) return undefined;
  try {
    const value: unknown = JSON.parse(utf8.decode(bytes));
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
