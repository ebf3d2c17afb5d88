/**
 * May this cluster follow that one in its line of revisions? (Supplement A, "Compatibility".)
 *
 * Within a line a cluster only grows: whatever was declared stays as it was, schemas grow as
 * `schema-growth.ts` says, and every change takes a higher revision. Anything else is a new URN version.
 */
import { canonicalJson } from "../base/canonical.ts";
import { type SchemaClosure } from "./closure.ts";
import { type ClusterDocument, type CommandDocument, type NamedSchema } from "./documents.ts";
import { contractInvalid } from "./limits.ts";
import { type Side, schemaChanges } from "./schema-growth.ts";

/** One revision of a cluster. `schema`: its closures by digest; it throws for one it does not have. */
export type ClusterRevision = {
  readonly document: ClusterDocument;
  readonly schema: (closureDigest: string) => SchemaClosure;
};

/** Refuses with `contract-invalid` what is no growth, and says all of it. */
export function checkGrowth(before: ClusterRevision, after: ClusterRevision): void {
  const changes = clusterChanges(before, after);
  if (changes.length === 0) return;
  const shown = changes.slice(0, 8).join("; ");
  throw contractInvalid(
    `${after.document.urn} has not only grown since revision ${before.document.revision}: ${shown}`,
    "give the changed cluster a new version in its URN (…v2), beside the old one",
  );
}

/** What is no growth; empty if there is none. */
export function clusterChanges(before: ClusterRevision, after: ClusterRevision): string[] {
  const old = before.document;
  const now = after.document;
  if (old.urn !== now.urn) return [`${now.urn} is another line than ${old.urn}`];
  if (canonicalJson(old) === canonicalJson(now)) return [];
  const changes = now.revision > old.revision ? [] : [`revision ${now.revision} does not follow ${old.revision}`];
  const grown = (a: string, b: string, side: Side) => schemaChanges(before.schema(a), after.schema(b), side);
  return [
    ...changes,
    ...namedChanges("attribute", old.attributes, now.attributes, grown),
    ...namedChanges("event", old.events, now.events, grown),
    ...old.commands.flatMap((command) =>
      commandChanges(
        command,
        now.commands.find(({ name }) => name === command.name),
        grown,
      ).map((change) => `${command.name}: ${change}`),
    ),
  ];
}

type Grown = (before: string, after: string, side: Side) => string[];

function namedChanges(what: string, old: readonly NamedSchema[], now: readonly NamedSchema[], grown: Grown): string[] {
  return old.flatMap(({ name, schemaDigest }) => {
    const next = now.find((one) => one.name === name);
    const changes = next === undefined ? ["is gone"] : grown(schemaDigest, next.schemaDigest, "output");
    return changes.map((change) => `${what} ${name}: ${change}`);
  });
}

/** What a caller or a grant has relied on, so it stays as it is. */
const FIXED = ["class", "effect", "targeted", "capability", "action"] as const;

function commandChanges(old: CommandDocument, now: CommandDocument | undefined, grown: Grown): string[] {
  if (now === undefined) return ["is gone"];
  return [
    ...FIXED.filter((field) => !same(old[field], now[field])).map((field) => `its ${field} has changed`),
    ...(old.modes ?? []).filter((mode) => !now.modes?.includes(mode)).map((mode) => `the mode ${mode} is gone`),
    ...(old.traits ?? [])
      .filter((trait) => !now.traits?.some((one) => same(one, trait)))
      .map(({ urn }) => `the trait ${urn} is gone or has another value`),
    ...(["maxBytes", "maxDepth", "maxItems"] as const)
      .filter((limit) => (now.admissionCeiling?.[limit] ?? 0) < (old.admissionCeiling?.[limit] ?? 0))
      .map((limit) => `its ${limit} has shrunk`),
    ...grown(old.inputDigest, now.inputDigest, "input").map((change) => `input ${change}`),
    ...grown(old.outputDigest, now.outputDigest, "output").map((change) => `output ${change}`),
  ];
}

function same(a: unknown, b: unknown): boolean {
  return a === undefined || b === undefined ? a === b : canonicalJson(a) === canonicalJson(b);
}
