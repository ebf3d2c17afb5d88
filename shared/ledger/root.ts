/**
 * The root credential of an incarnation that signs in (§10): one id for all its bearers.
 *
 * It is worked out, not drawn, so that a retry after any crash, and two exchanges at once, name the same
 * row. It is no secret: a bearer is believed for its signature, and the row for its state. Another
 * process epoch is another incarnation and has another root (a takeover rotates it, §13.1).
 */
import { createHash } from "node:crypto";
import { encodeToken } from "../protocol/base/principals.ts";

/** Decision H18. */
export const ROOT_LIFE_SECONDS = 30 * 86_400;

export function rootCredentialId(lifecycleUid: string, processEpoch: number): string {
  const digest = createHash("sha256").update(`root\0${lifecycleUid}\0${processEpoch}`).digest();
  return `r_${encodeToken(digest, 26)}`;
}
