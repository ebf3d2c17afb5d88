/**
 * How many references follow one another without a step into the data.
 *
 * A schema may refer to itself below `properties` or `items`: the data ends, and so does the work. A circle
 * in place has no end, and a long chain makes every value dear; both are refused before anything is run.
 */
import { SchemaLimit, contractInvalid } from "./limits.ts";
import { type SchemaFacts } from "./schema-profile.ts";

/** Checks every document of a closure, given by digest. */
export function checkRefChains(documents: ReadonlyMap<string, SchemaFacts>): void {
  /** The longest chain from each place that has been followed to its end. */
  const longest = new Map<string, number>();

  /** `above`: references followed on the way here. In a circle it grows until it refuses. */
  const follow = (document: string, pointer: string, above: number): number => {
    const place = `${document}#${pointer}`;
    let length = longest.get(place);
    if (above + (length ?? 0) > SchemaLimit.refChain) throw tooLong();
    if (length !== undefined) return length;
    length = 0;
    for (const ref of documents.get(document)?.regions.get(pointer) ?? []) {
      const further = ref.startsWith("#") ? follow(document, ref.slice(1), above + 1) : follow(ref, "", above + 1);
      length = Math.max(length, 1 + further);
    }
    longest.set(place, length);
    return length;
  };

  for (const [document, { regions }] of documents) {
    for (const pointer of regions.keys()) follow(document, pointer, 0);
  }
}

function tooLong() {
  return contractInvalid(
    `more than ${SchemaLimit.refChain} references follow one another, or they go in a circle`,
    "refer to the last schema of the chain directly",
  );
}
