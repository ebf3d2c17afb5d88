/**
 * The documents of a contract: a cluster, and what it declares (supplement A, "Cluster").
 *
 * Read loosely: a later revision may say more, and a reader ignores what it does not know (§11). Written
 * with every list in one order, so that one contract has one digest.
 */
import { z } from "zod";
import { COMMAND_TOKEN, DIGEST, REVERSE_DNS } from "../base/grammar.ts";
import { AuthzMode } from "../endpoint/modes.ts";
import { isOwnCommand } from "../endpoint/names.ts";
import { TraitAttachment } from "./traits.ts";

/** Contract and protocol integers: from 0 to 2^53-1. */
export const count = z.int().nonnegative();
const digest = z.string().regex(DIGEST);
const token = z.string().regex(COMMAND_TOKEN);

/** As a subject token (`ev.<cluster>.…`) it has `_` for `.`, and 64 characters. */
const MAX_URN = 64;
const VERSION_LABEL = /\.v[1-9][0-9]{0,5}$/;

/** `<reverse-DNS name>.v<n>`: the version belongs to the name, each version is a line of revisions. */
export function isClusterUrn(text: string): boolean {
  return text.length <= MAX_URN && REVERSE_DNS.test(text) && VERSION_LABEL.test(text);
}

export const Urn = z.string().refine(isClusterUrn, "a cluster's URN reads com.acme.deploy.v1");

/** Which submissions the command takes on at all (§13.4): more than that is quarantined. */
export const AdmissionCeiling = z.looseObject({
  maxBytes: count.min(1),
  maxDepth: count.min(1),
  maxItems: count.min(1),
});
export type AdmissionCeiling = z.infer<typeof AdmissionCeiling>;

/** The marker of an action (§13.6). */
export const ActionMarker = z.looseObject({
  /** Milliseconds from acceptance within which its success signal has to come. */
  readinessDeadlineMs: count.min(1).optional(),
});
export type ActionMarker = z.infer<typeof ActionMarker>;

export const CommandClass = z.enum(["ephemeral", "journal"]);
export type CommandClass = z.infer<typeof CommandClass>;

/** `read`: repeating it changes nothing that the command is meant to change. */
export const Effect = z.enum(["read", "write"]);
export type Effect = z.infer<typeof Effect>;

export const CommandDocument = z.looseObject({
  name: z.string().refine(isOwnCommand, "not a command's name, or a reserved one"),
  class: CommandClass,
  effect: Effect,
  inputDigest: digest,
  outputDigest: digest,
  targeted: z.boolean(),
  /** Only of a targeted command. */
  modes: z.array(z.enum(AuthzMode)).min(1).optional(),
  capability: token.optional(),
  traits: z.array(TraitAttachment).optional(),
  action: ActionMarker.optional(),
  /** Of a journal command, and of no other. */
  admissionCeiling: AdmissionCeiling.optional(),
});
export type CommandDocument = z.infer<typeof CommandDocument>;

/** What is observed of an endpoint, and what it tells: a name, and the schema of its values. */
export const NamedSchema = z.looseObject({ name: token, schemaDigest: digest });
export type NamedSchema = z.infer<typeof NamedSchema>;

export const ClusterDocument = z.looseObject({
  urn: Urn,
  revision: count,
  attributes: z.array(NamedSchema),
  commands: z.array(CommandDocument),
  events: z.array(NamedSchema),
});
export type ClusterDocument = z.infer<typeof ClusterDocument>;

/**
 * The document behind a `contractDigest`: one command as its cluster declares it, without the cluster's
 * revision. A signature over it stays good when the cluster grows elsewhere.
 */
export type ContractDocument = { readonly v: 1; readonly urn: string; readonly command: CommandDocument };
