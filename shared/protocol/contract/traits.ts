/**
 * Traits (supplement A): what a contract says of a command beyond its shape.
 *
 * Two are governed: an authority signs their attachment to one command of one contract, and a command whose
 * attachment is missing, stale or can't be verified is refused before its effect. The signature is made
 * over the RFC 8785 form of the attachment without `sig` (supplement G); its verification needs the trust
 * anchors, which are not built, so nothing that carries one can be served yet.
 */
import { z } from "zod";
import { canonicalDigest, canonicalJson } from "../base/canonical.ts";
import { COMMAND_TOKEN, DIGEST, ID_TOKEN, REVERSE_DNS } from "../base/grammar.ts";
import { isEndpointName } from "../endpoint/names.ts";
import { type ClusterDocument } from "./documents.ts";

const traitUrn = z.string().max(64).regex(REVERSE_DNS);

export const GovernedTrait = { Guarded: "ai.cotal.guarded", Priced: "ai.cotal.priced" } as const;
const GOVERNED: ReadonlySet<string> = new Set(Object.values(GovernedTrait));

export function isGoverned(urn: string): boolean {
  return GOVERNED.has(urn);
}

/** As a command's document carries it. */
export const TraitAttachment = z.looseObject({ urn: traitUrn, value: z.json() });
export type TraitAttachment = z.infer<typeof TraitAttachment>;

/** The separately signed half of a governed attachment. */
export const GovernedAttachment = z.strictObject({
  space: z.string(),
  endpoint: z.string().refine(isEndpointName),
  command: z.string().regex(COMMAND_TOKEN),
  contractDigest: z.string().regex(DIGEST),
  traitUrn: traitUrn.refine(isGoverned),
  value: z.json(),
  keyId: z.string().regex(ID_TOKEN),
  /** Ed25519, unpadded base64url. */
  sig: z.string().regex(/^[A-Za-z0-9_-]{86}$/),
});
export type GovernedAttachment = z.infer<typeof GovernedAttachment>;

/** The bytes that `sig` is made over. */
export function attachmentBytes({ sig: _sig, ...signed }: GovernedAttachment): Uint8Array {
  return Buffer.from(canonicalJson(signed, "attachment"));
}

/** One governed trait on one command, as the governance head remembers it. */
export const GovernedBinding = z.strictObject({
  command: z.string().regex(COMMAND_TOKEN),
  traitUrn,
  /** Digest of the value's canonical form. */
  valueDigest: z.string().regex(DIGEST),
});
export type GovernedBinding = z.infer<typeof GovernedBinding>;

/** Every governed binding of an endpoint's clusters, in one order. */
export function governedBindings(clusters: readonly ClusterDocument[]): GovernedBinding[] {
  return clusters
    .flatMap(({ commands }) => commands)
    .flatMap(({ name, traits = [] }) =>
      traits
        .filter(({ urn }) => isGoverned(urn))
        .map(({ urn, value }) => ({ command: name, traitUrn: urn, valueDigest: canonicalDigest(value) })),
    )
    .toSorted((a, b) => (bindingKey(a) < bindingKey(b) ? -1 : 1));
}

/**
 * Bindings that were attached and are no longer, or with another value. A registration that drops one is
 * refused: taking it away is an authorised revision of the contract.
 */
export function droppedBindings(
  attached: readonly GovernedBinding[],
  declared: readonly GovernedBinding[],
): GovernedBinding[] {
  const kept = new Set(declared.map(bindingKey));
  return attached.filter((binding) => !kept.has(bindingKey(binding)));
}

const bindingKey = ({ command, traitUrn: urn, valueDigest }: GovernedBinding) => `${command} ${urn} ${valueDigest}`;
