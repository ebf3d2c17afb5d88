/**
 * Owner tokens (§2): `u_` + 26 base32-lower characters, derived by HMAC from the space's own secret
 * (architecture §8), so that the same person always gets the same token and nobody can guess it.
 */
import { createHmac } from "node:crypto";
import { DERIVED_OWNER_TOKEN, OWNER_LABEL } from "../protocol/base/grammar.ts";
import { badRequest } from "../protocol/base/errors.ts";
import { encodeToken } from "../protocol/base/principals.ts";

/** The token of one subject of one issuer. */
export function ownerToken(secret: Uint8Array, issuer: string, subject: string): string {
  const digest = createHmac("sha256", secret).update(`${issuer}\0${subject}`).digest();
  return `u_${encodeToken(digest, 26)}`;
}

/** `--owner` of a static mint: a token as it stands, or a label (decision H48). */
export function staticOwner(secret: Uint8Array, text: string): string {
  if (DERIVED_OWNER_TOKEN.test(text)) return text;
  if (text.startsWith("u_") || text === "local" || !OWNER_LABEL.test(text)) {
    throw badRequest(
      `${JSON.stringify(text.slice(0, 80))} is neither an owner token nor a label`,
      "use a short label such as acme, or a token that cotal printed before (u_ and 26 characters)",
    );
  }
  return ownerToken(secret, "static", text);
}

/** The owner of the daemons of a space (decision H48). */
export function systemOwner(secret: Uint8Array, space: string): string {
  return ownerToken(secret, "system", space);
}
