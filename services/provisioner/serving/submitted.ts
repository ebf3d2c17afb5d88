/**
 * A contract that somebody submits (supplement A), from bytes to what may be published.
 *
 * Invariants
 * 1. Nothing is believed: every artifact is checked against its digest, every closure is made again, every
 *    schema is compiled within its budget, and a command stands once in the whole contract.
 * 2. What is published is exactly what the clusters reach. Anything else that was sent refuses: the store
 *    of artifacts keeps for ever, and is no place to put things.
 * 3. What is published already need not be sent again.
 */
import { digestOf } from "../../../shared/protocol/base/canonical.ts";
import { badRequest } from "../../../shared/protocol/base/errors.ts";
import type { Artifact } from "../../../shared/protocol/contract/artifact.ts";
import {
  type Closure,
  type FetchArtifact,
  type SchemaClosure,
  documentClosure,
  fetchDocumentClosure,
  fetchSchemaClosure,
} from "../../../shared/protocol/contract/closure.ts";
import { contractDocument } from "../../../shared/protocol/contract/contract.ts";
import type { ClusterDocument, CommandDocument } from "../../../shared/protocol/contract/documents.ts";
import { contractInvalid } from "../../../shared/protocol/contract/limits.ts";
import { fetchCluster } from "../../../shared/protocol/contract/resolve.ts";
import { createValidators } from "../../../shared/protocol/contract/validators.ts";
import { VOID } from "../../../shared/protocol/contract/zod-schema.ts";

/** Commands of one endpoint: what one serve credential can carry (supplement E). */
const MAX_COMMANDS = 12 * 16;

export type SubmittedCluster = {
  readonly document: ClusterDocument;
  /** Closure digest. */
  readonly digest: string;
  /** Its schemas by closure digest. */
  readonly schemas: ReadonlyMap<string, SchemaClosure>;
};

export type Submitted = {
  readonly clusters: readonly SubmittedCluster[];
  readonly commands: readonly CommandDocument[];
  /** All that has to be published, each once. */
  readonly artifacts: readonly Artifact[];
};

/** One set for all who submit: a schema that was compiled costs nothing the next time. */
const validators = createValidators();

export async function readSubmitted(
  clusterDigests: readonly string[],
  texts: readonly string[],
  published: FetchArtifact,
): Promise<Submitted> {
  const sent = new Map(texts.map((text) => bytesOf(text)).map((bytes) => [digestOf(bytes), bytes]));
  const fetch: FetchArtifact = async (digest) => sent.get(digest) ?? published(digest);
  const reached = new Map<string, Artifact>();
  const clusters: SubmittedCluster[] = [];
  for (const digest of new Set(clusterDigests)) {
    clusters.push(await readCluster(digest, fetch, (closure) => keep(reached, closure)));
  }
  const commands = clusters.flatMap(({ document }) => document.commands);
  refuseTwice(
    "cluster",
    clusters.map(({ document }) => document.urn),
  );
  refuseTwice(
    "command",
    commands.map(({ name }) => name),
  );
  if (commands.length > MAX_COMMANDS)
    throw contractInvalid(`it has ${commands.length} commands, and ${MAX_COMMANDS} are allowed`);
  const stray = [...sent.keys()].find((digest) => !reached.has(digest));
  if (stray !== undefined)
    throw badRequest(`the artifact ${stray} belongs to none of the clusters`, "send what they reach");
  return { clusters, commands, artifacts: [...reached.values()] };
}

async function readCluster(
  digest: string,
  fetch: FetchArtifact,
  reach: (closure: Closure) => void,
): Promise<SubmittedCluster> {
  const document = await fetchCluster(digest, fetch);
  reach(await fetchDocumentClosure(digest, fetch));
  const named = [
    ...document.commands.flatMap(({ inputDigest, outputDigest }) => [inputDigest, outputDigest]),
    ...[...document.attributes, ...document.events].map(({ schemaDigest }) => schemaDigest),
  ];
  const schemas = new Map<string, SchemaClosure>();
  for (const one of new Set(named)) {
    const closure = one === VOID.digest ? VOID : await fetchSchemaClosure(one, fetch);
    validators.of(closure);
    schemas.set(one, closure);
    reach(closure);
  }
  for (const command of document.commands) reach(documentClosure(contractDocument(document.urn, command)));
  return { document, digest, schemas };
}

function keep(reached: Map<string, Artifact>, { manifest, members }: Closure): void {
  for (const artifact of [manifest, ...members.values()]) reached.set(artifact.digest, artifact);
}

function refuseTwice(what: string, names: readonly string[]): void {
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice === undefined) return;
  throw contractInvalid(
    `the contract declares the ${what} ${JSON.stringify(twice)} twice`,
    "give one of them another name; a name stands once in the whole contract",
  );
}

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
