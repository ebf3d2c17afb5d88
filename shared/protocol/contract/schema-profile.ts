/**
 * Reads one schema document: is it within the profile, and what does it refer to?
 *
 * Invariants
 * 1. A reference is `#`, `#/<pointer>` to a schema of the same document, or the digest of an artifact,
 *    whole. Nothing is ever fetched by an address.
 * 2. A pointer names a place that was walked: it can't reach a value, or an inherited member.
 */
import { type Json } from "../base/canonical.ts";
import { DIGEST } from "../base/grammar.ts";
import { isMap, keyword, schemasUnder } from "./keywords.ts";
import { contractInvalid } from "./limits.ts";

const DRAFT = "https://json-schema.org/draft/2020-12/schema";

/** `%` is left out: one spelling for one place. */
const LOCAL = /^#(?:\/[A-Za-z0-9_.$~-]+)*$/;

export type SchemaFacts = {
  /** Every schema of the document by its pointer (`""`: the root), with the references met in place. */
  readonly regions: ReadonlyMap<string, readonly string[]>;
  /** Digests of the artifacts it refers to. */
  readonly artifacts: ReadonlySet<string>;
  /** Every pattern it holds. */
  readonly patterns: ReadonlySet<string>;
};

/** Refuses with `contract-invalid` what is no schema of the profile. */
export function inspectSchema(document: Json): SchemaFacts {
  const regions = new Map<string, readonly string[]>();
  const artifacts = new Set<string>();
  const patterns = new Set<string>();
  const pointers: string[] = [];

  const visit = (schema: Json, pointer: string): readonly string[] => {
    const refs: string[] = [];
    regions.set(pointer, refs);
    if (typeof schema === "boolean") return refs;
    if (!isMap(schema)) throw refuse(pointer, "is neither an object nor true or false, or holds an unsafe name");
    for (const [name, held] of Object.entries(schema)) {
      const row = keyword(name);
      const at = `${pointer}/${name}`;
      if (row === undefined) throw refuse(at, "is no keyword that a contract's schema may use");
      if (!row.fits(held)) throw refuse(at, "does not hold what JSON Schema asks for there");
      for (const [place, inner] of schemasUnder(row, held)) {
        const found = visit(inner, `${at}${place}`);
        if (row.inPlace) refs.push(...found);
      }
      if (name === "$schema" && (pointer !== "" || held !== DRAFT)) throw refuse(at, `is not ${DRAFT} at the root`);
      if (name === "pattern" && typeof held === "string") patterns.add(held);
      if (name === "patternProperties" && isMap(held)) for (const one of Object.keys(held)) patterns.add(one);
      if (name === "$ref" && typeof held === "string") refs.push(reference(held, at));
    }
    return refs;
  };

  const reference = (ref: string, at: string): string => {
    if (DIGEST.test(ref)) artifacts.add(ref);
    else if (LOCAL.test(ref)) pointers.push(ref);
    else throw refuse(at, "is neither # with a plain pointer nor the digest of an artifact");
    return ref;
  };

  visit(document, "");
  for (const ref of pointers) {
    if (!regions.has(ref.slice(1))) throw refuse(ref.slice(1), "is referred to and is no schema of the document");
  }
  return { regions, artifacts, patterns };
}

function refuse(pointer: string, what: string) {
  return contractInvalid(`the schema at ${JSON.stringify(`#${pointer}`.slice(0, 200))} ${what}`);
}
