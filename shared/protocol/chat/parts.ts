/**
 * Message parts (§5): text, data, artifact, and namespaced extensions.
 *
 * Two sides, two strictnesses: a publisher refuses what the wire does not define; a reader ignores
 * an extension kind that it does not know (§5, §11).
 */
import { z } from "zod";
import { DIGEST, REVERSE_DNS } from "../base/grammar.ts";
import { type Json, nonJsonPath, digestOf } from "../base/canonical.ts";
import { badRequest, CotalError, ErrorCode } from "../base/errors.ts";

export const TextPart = z.looseObject({ kind: z.literal("text"), text: z.string() });
export const DataPart = z.looseObject({ kind: z.literal("data"), data: z.json() });
export const ArtifactPart = z.looseObject({
  kind: z.literal("artifact"),
  name: z.string(),
  mediaType: z.string(),
  digest: z.string().regex(DIGEST),
  size: z.number().min(0),
});
export const ExtensionPart = z.looseObject({ kind: z.string().regex(REVERSE_DNS) });
export const Part = z.union([TextPart, DataPart, ArtifactPart, ExtensionPart]);

export type TextPart = { kind: "text"; text: string };
export type DataPart = { kind: "data"; data: Json };
export type ArtifactPart = {
  kind: "artifact";
  name: string;
  mediaType: string;
  digest: string;
  size: number;
};
export type ExtensionPart = { kind: `${string}.${string}`; [key: string]: unknown };
export type Part = TextPart | DataPart | ArtifactPart | ExtensionPart;

export function text(value: string): TextPart {
  return { kind: "text", text: value };
}

type Field = { readonly name: string; readonly want: string; readonly holds: (value: unknown) => boolean };

const isString = (value: unknown) => typeof value === "string";

/**
 * The core kinds as a table: the schemas above, written by hand. A reader runs this on every part
 * of every delivery, where Zod costs up to sixty times the parsing of the text (measured), so a
 * hostile message could hold a client for half a second. A property test holds the two equal.
 */
const CORE_KINDS: ReadonlyMap<string, readonly Field[]> = new Map([
  ["text", [{ name: "text", want: "a string", holds: isString }]],
  ["data", [{ name: "data", want: "a JSON value", holds: (value: unknown) => value !== undefined }]],
  [
    "artifact",
    [
      { name: "name", want: "a string", holds: isString },
      { name: "mediaType", want: "a string", holds: isString },
      {
        name: "digest",
        want: "sha256: and 64 lowercase hexadecimal digits",
        holds: (value: unknown) => typeof value === "string" && DIGEST.test(value),
      },
      {
        name: "size",
        want: "a number, 0 or more",
        holds: (value: unknown) => typeof value === "number" && Number.isFinite(value) && value >= 0,
      },
    ],
  ],
]);

/** Is this member of a parsed, bounded message (`isBounded`) a part that a reader may show? */
export function isPart(part: { readonly kind: string; readonly [name: string]: unknown }): boolean {
  const fields = CORE_KINDS.get(part.kind);
  if (fields === undefined) return REVERSE_DNS.test(part.kind);
  return fields.every((field) => field.holds(part[field.name]));
}

/**
 * Checks the parts of a message about to be sent; throws `bad-request` with the path of the
 * offending member, such as `parts[0].data.a[1]`. Bare unknown kinds are refused (§5, §11).
 */
export function checkParts(parts: readonly unknown[]): asserts parts is readonly Part[] {
  // `entries` and not `forEach`: a hole in the array must not be skipped.
  for (const [index, part] of parts.entries()) checkPart(part, `parts[${index}]`);
}

function checkPart(part: unknown, path: string): void {
  // The part lies two levels deep in its message, and the bound is the message's.
  const bad = nonJsonPath(part, path, 2);
  if (bad !== undefined) throw badRequest(`${bad} is not a JSON value`);
  if (typeof part !== "object" || part === null || Array.isArray(part)) throw badRequest(`${path} is not an object`);
  const members = part as Record<string, unknown>;
  const kind = members["kind"];
  if (typeof kind !== "string") throw badRequest(`${path}.kind is missing`);
  const fields = CORE_KINDS.get(kind);
  if (fields === undefined && !REVERSE_DNS.test(kind)) {
    throw badRequest(
      `${path}.kind ${JSON.stringify(kind.slice(0, 80))} is neither a core kind nor reverse-DNS`,
      "use text, data or artifact, or a name under a domain you control, such as com.acme.snapshot",
    );
  }
  const wrong = fields?.find((field) => !field.holds(members[field.name]));
  if (wrong !== undefined) throw badRequest(`${path}.${wrong.name} must be ${wrong.want}`);
}

/**
 * Verifies fetched artifact bytes against the digest that names them (§5); `size` is only the
 * publisher's claim and is never used. Throws `contract-mismatch`.
 */
export function verifyArtifact(part: { readonly digest: string }, bytes: Uint8Array): void {
  if (digestOf(bytes) !== part.digest) {
    throw new CotalError(ErrorCode.ContractMismatch, "the fetched bytes do not have the artifact's digest", {
      next: "fetch it again from a source you trust; do not use these bytes",
    });
  }
}
