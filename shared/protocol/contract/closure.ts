/**
 * Closures (supplement A, "Digests"): an artifact with every artifact it reaches, named by the digest of
 * their manifest `{ v: 1, root, members }`.
 *
 * A schema reaches another by a `$ref` that holds its digest. A document of a contract (a cluster, a
 * command) reaches none: it names schemas by their closure digests, which stand for themselves (§13.1: the
 * schema closures that a cluster's commands name may be left out of what is submitted).
 *
 * Invariants
 * 1. `members` are exactly what is reached, the root among them, sorted, each once. So the same artifacts
 *    have one closure digest, in whatever order they were given.
 * 2. A closure exists only whole and within the limits; it is made by the functions of this file alone.
 * 3. What was fetched is checked byte by byte against the digests, and then as if it had been written here.
 */
import { z } from "zod";
import { DIGEST } from "../base/grammar.ts";
import { type Artifact, artifactOf, mismatch, readArtifact } from "./artifact.ts";
import { SchemaLimit, contractInvalid } from "./limits.ts";
import { checkRefChains } from "./ref-chains.ts";
import { type SchemaFacts, inspectSchema } from "./schema-profile.ts";

export type Closure = {
  /** The closure digest: that of the manifest. */
  readonly digest: string;
  readonly manifest: Artifact;
  readonly root: Artifact;
  /** By digest, in order. */
  readonly members: ReadonlyMap<string, Artifact>;
};

/** A closure whose members are schemas of the profile, and what was found in each. */
export type SchemaClosure = Closure & { readonly facts: ReadonlyMap<string, SchemaFacts> };

export const Manifest = z.strictObject({
  v: z.literal(1),
  root: z.string().regex(DIGEST),
  members: z.array(z.string().regex(DIGEST)).min(1),
});

/** The closure of a schema. `others`: where the artifacts it refers to are looked for. */
export function schemaClosure(schema: unknown, others: readonly unknown[] = []): SchemaClosure {
  const pool = new Map(others.map(artifactOf).map((artifact) => [artifact.digest, artifact]));
  return closeSchema(artifactOf(schema), (digest) => pool.get(digest));
}

/** The closure of a document that refers to no artifact. */
export function documentClosure(document: unknown): Closure {
  const root = artifactOf(document);
  return seal(root, [root]);
}

/** Bytes of an artifact by its digest; `undefined` if there are none. */
export type FetchArtifact = (digest: string) => Promise<Uint8Array | undefined>;

export async function fetchSchemaClosure(digest: string, fetch: FetchArtifact): Promise<SchemaClosure> {
  const { root, members } = await fetchWhole(digest, fetch);
  return same(
    digest,
    closeSchema(root, (member) => members.get(member)),
  );
}

export async function fetchDocumentClosure(digest: string, fetch: FetchArtifact): Promise<Closure> {
  const { root } = await fetchWhole(digest, fetch);
  return same(digest, seal(root, [root]));
}

async function fetchWhole(digest: string, fetch: FetchArtifact) {
  const manifest = Manifest.safeParse((await fetchOne(digest, fetch)).value);
  if (!manifest.success) throw contractInvalid(`the artifact ${digest} is no manifest of a closure`);
  const members = new Map<string, Artifact>();
  let bytes = 0;
  for (const member of manifest.data.members) {
    const artifact = await fetchOne(member, fetch);
    members.set(member, artifact);
    bytes += artifact.bytes;
    checkSize(bytes);
  }
  const root = members.get(manifest.data.root);
  if (root === undefined) throw contractInvalid(`the root of the closure ${digest} is not among its members`);
  return { root, members };
}

async function fetchOne(digest: string, fetch: FetchArtifact): Promise<Artifact> {
  const bytes = await fetch(digest);
  if (bytes === undefined) throw mismatch(digest, "missing");
  return readArtifact(digest, bytes);
}

/** The manifest that was fetched must be the one that its members have. */
function same<T extends Closure>(digest: string, closure: T): T {
  if (closure.digest === digest) return closure;
  throw contractInvalid(`the manifest ${digest} does not list exactly what its root reaches, in order`);
}

function closeSchema(root: Artifact, find: (digest: string) => Artifact | undefined): SchemaClosure {
  const reached = new Map([[root.digest, root]]);
  const facts = new Map<string, SchemaFacts>();
  let bytes = 0;
  // A map that grows while it is walked gives its new entries too.
  for (const [digest, artifact] of reached) {
    bytes += artifact.bytes;
    checkSize(bytes);
    const found = inspectSchema(artifact.value);
    facts.set(digest, found);
    for (const ref of found.artifacts) {
      const member = find(ref);
      if (member === undefined) throw contractInvalid(`the closure is not whole: the artifact ${ref} is missing`);
      reached.set(ref, member);
    }
  }
  checkRefChains(facts);
  return { ...seal(root, [...reached.values()]), facts };
}

function seal(root: Artifact, artifacts: readonly Artifact[]): Closure {
  const members = new Map(artifacts.map((artifact) => [artifact.digest, artifact] as const).toSorted(byDigest));
  const manifest = artifactOf({ v: 1, root: root.digest, members: [...members.keys()] });
  return { digest: manifest.digest, manifest, root, members };
}

const byDigest = ([a]: readonly [string, Artifact], [b]: readonly [string, Artifact]) => (a < b ? -1 : a > b ? 1 : 0);

function checkSize(bytes: number): void {
  if (bytes > SchemaLimit.closureBytes) {
    throw contractInvalid(
      `a closure of ${bytes} bytes or more is over the limit of ${SchemaLimit.closureBytes}`,
      "give the command a smaller schema",
    );
  }
}
