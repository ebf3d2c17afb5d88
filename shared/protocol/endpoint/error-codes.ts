/**
 * What stands in the error of a reply beside the catalogue of `../base/errors.ts` (§13.3): codes of
 * extensions, and the kinds of detail that this contract defines.
 *
 * Invariant: a code is one token of at most 64 bytes, from the catalogue or reverse-DNS. So every fact
 * that embeds one stays bounded.
 */
import { ERROR_CODE, REVERSE_DNS } from "../base/grammar.ts";

export const DetailKind = {
  /** The responder is not the incarnation that the request is bound to; the command did not run. */
  BindRefused: "ai.cotal.ep.bind-refused",
  /** The instance that answered has no current mapping for the target. */
  TargetUnmapped: "ai.cotal.ep.target-unmapped",
  /** The caller's own: an incarnation that it did not bind to has answered. */
  UnboundResponder: "ai.cotal.ep.unbound-responder",
} as const;
export type DetailKind = (typeof DetailKind)[keyof typeof DetailKind];

/** A code that an endpoint of somebody else may add. */
export function isExtensionCode(code: string): boolean {
  return ERROR_CODE.test(code) && REVERSE_DNS.test(code);
}
