/**
 * Artifacts (supplement A, "Digests"): one JSON document each, in its RFC 8785 form, named by the SHA-256
 * of exactly those bytes.
 *
 * Invariants
 * 1. An artifact's text is canonical, within the limits, and hashes to its digest, however it was made.
 * 2. Bytes that were fetched are never believed: another digest, another spelling of the same value, a
 *    member given twice are all refused as `contract-mismatch`.
 */
import { type Json, canonicalJson, digestOf } from "../base/canonical.ts";
import { CotalError, ErrorCode } from "../base/errors.ts";
import { DIGEST } from "../base/grammar.ts";
import { SchemaLimit, contractInvalid } from "./limits.ts";

export type Artifact = {
  /** `sha256:<hex>`. */
  readonly digest: string;
  /** The canonical form; its UTF-8 bytes are what is published. */
  readonly text: string;
  readonly bytes: number;
  /** The document, parsed from the text. Nobody changes it. */
  readonly value: Json;
};

/** The artifact of a document. */
export function artifactOf(document: unknown): Artifact {
  if (nestsDeeper(document, SchemaLimit.nesting)) throw tooDeep();
  return build(canonical(document));
}

/** The artifact that these fetched bytes must be. */
export function readArtifact(digest: string, bytes: Uint8Array): Artifact {
  if (!DIGEST.test(digest)) throw contractInvalid("what names an artifact is no digest");
  if (bytes.byteLength > SchemaLimit.documentBytes) throw tooLarge(bytes.byteLength);
  if (digestOf(bytes) !== digest) throw mismatch(digest, "other bytes than its digest names");
  const document = parse(bytes);
  if (document === undefined) throw contractInvalid(`the artifact ${digest} is no JSON document`);
  if (nestsDeeper(document.value, SchemaLimit.nesting)) throw tooDeep();
  const artifact = build(canonical(document.value));
  if (artifact.digest !== digest) throw mismatch(digest, "not in its canonical form");
  return artifact;
}

/** `contract-mismatch`: what was fetched is not what was named. */
export function mismatch(digest: string, what: string): CotalError {
  return new CotalError(ErrorCode.ContractMismatch, `the artifact ${digest} is ${what}`, {
    next: "do not use this contract; whoever keeps the artifacts has changed or lost one",
  });
}

/** Does this JSON-like value hold arrays or objects within one another more than `limit` deep? */
function nestsDeeper(value: unknown, limit: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return limit === 0 || Object.values(value).some((member) => nestsDeeper(member, limit - 1));
}

function build(text: string): Artifact {
  const bytes = Buffer.byteLength(text);
  if (bytes > SchemaLimit.documentBytes) throw tooLarge(bytes);
  return { digest: digestOf(text), text, bytes, value: JSON.parse(text) as Json };
}

function canonical(document: unknown): string {
  try {
    return canonicalJson(document, "document");
  } catch (thrown) {
    throw contractInvalid("a contract's document holds what JSON cannot carry", undefined, thrown);
  }
}

function parse(bytes: Uint8Array): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes)) };
  } catch {
    return undefined;
  }
}

function tooLarge(bytes: number): CotalError {
  return contractInvalid(
    `a document of ${bytes} bytes is over the limit of ${SchemaLimit.documentBytes}`,
    "split it: a schema may refer to other artifacts by digest",
  );
}

function tooDeep(): CotalError {
  return contractInvalid(
    `a document nests deeper than ${SchemaLimit.nesting}`,
    "give inner parts a name of their own under $defs and refer to them",
  );
}
