/**
 * A contract that somebody submits (supplement A), from bytes to what may be published.
 *
 * Invariants
 * 1. Nothing is believed: every artifact is checked against its digest, every closure is made again, every
 *    schema is compiled within its budget, and a command stands once in the whole contract.
 * 2. What is published is exactly what the clusters reach. Anything else that was sent refuses: the store
 *    of artifacts keeps for ever, and is no place to put things.
 * 3. What is published already need not be sent again.
 * 4. A contract costs what its limits say, however it is put together: the number of its commands and
 *    schemas is judged before any is read, and all that is compiled for one submission has one budget.
 *    Between two schemas everybody else has his turn.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
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
import { demandLawful, firstTwice } from "../../../shared/protocol/contract/declare.ts";
import { contractInvalid } from "../../../shared/protocol/contract/limits.ts";
import { threadCpuMs } from "../../../shared/protocol/contract/meter.ts";
import { fetchCluster } from "../../../shared/protocol/contract/resolve.ts";
import { createValidators } from "../../../shared/protocol/contract/validators.ts";
import { VOID } from "../../../shared/protocol/contract/zod-schema.ts";

/** Commands of one endpoint: what one serve credential can carry (supplement E). */
const MAX_COMMANDS = 12 * 16;

/** Schemas that its clusters name: two for each command, and as many for what is observed as fits beside. */
const MAX_SCHEMAS = 512;

/** Of all schemas of one submission: bytes that are read, and milliseconds of processor time to compile them. */
const MAX_SCHEMA_BYTES = 16 * 1024 * 1024;
const COMPILE_MS = 2_000;

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
  const documents = new Map<string, ClusterDocument>();
  for (const digest of new Set(clusterDigests)) documents.set(digest, await fetchCluster(digest, fetch));
  const commands = demandContract([...documents.values()]);
  const reached = new Map<string, Artifact>();
  const budget = createBudget();
  const clusters: SubmittedCluster[] = [];
  for (const [digest, document] of documents) {
    keep(reached, await fetchDocumentClosure(digest, fetch));
    for (const command of document.commands) keep(reached, documentClosure(contractDocument(document.urn, command)));
    const schemas = await readSchemas(document, fetch, budget);
    for (const closure of schemas.values()) keep(reached, closure);
    clusters.push({ document, digest, schemas });
  }
  const stray = [...sent.keys()].find((digest) => !reached.has(digest));
  if (stray !== undefined)
    throw badRequest(`the artifact ${stray} belongs to none of the clusters`, "send what they reach");
  return { clusters, commands, artifacts: [...reached.values()] };
}

/** Its commands, where the documents are lawful together. */
function demandContract(documents: readonly ClusterDocument[]): CommandDocument[] {
  const commands = documents.flatMap((document) => document.commands);
  demandAtMost("commands", commands.length, MAX_COMMANDS);
  demandAtMost(
    "schemas",
    documents.reduce((sum, document) => sum + schemasOf(document).size, 0),
    MAX_SCHEMAS,
  );
  for (const document of documents) demandLawful(document);
  const odd = commands.find(({ targeted, modes }) => targeted !== (modes !== undefined));
  if (odd !== undefined) {
    throw contractInvalid(`the command ${odd.name} has modes and no target, or a target and no modes`);
  }
  refuseTwice(
    "cluster",
    documents.map(({ urn }) => urn),
  );
  refuseTwice(
    "command",
    commands.map(({ name }) => name),
  );
  return commands;
}

/** Closure digests of what a cluster names, each once. */
function schemasOf({ commands, attributes, events }: ClusterDocument): ReadonlySet<string> {
  return new Set([
    ...commands.flatMap(({ inputDigest, outputDigest }) => [inputDigest, outputDigest]),
    ...[...attributes, ...events].map(({ schemaDigest }) => schemaDigest),
  ]);
}

async function readSchemas(
  document: ClusterDocument,
  fetch: FetchArtifact,
  { spend }: Budget,
): Promise<ReadonlyMap<string, SchemaClosure>> {
  const schemas = new Map<string, SchemaClosure>();
  for (const digest of schemasOf(document)) {
    const closure = digest === VOID.digest ? VOID : await fetchSchemaClosure(digest, fetch);
    spend(closure);
    schemas.set(digest, closure);
    await nextTurn();
  }
  return schemas;
}

type Budget = { readonly spend: (closure: SchemaClosure) => void };

/** Of one submission. */
function createBudget(): Budget {
  let bytes = 0;
  let compileMs = 0;
  return {
    spend: (closure) => {
      for (const { bytes: more } of closure.members.values()) bytes += more;
      demandAtMost("bytes of schemas", bytes, MAX_SCHEMA_BYTES);
      const before = threadCpuMs();
      validators.of(closure);
      compileMs += threadCpuMs() - before;
      if (compileMs > COMPILE_MS) throw contractInvalid(`its schemas take more than ${COMPILE_MS} ms to compile`);
    },
  };
}

function demandAtMost(what: string, found: number, most: number): void {
  if (found > most) throw contractInvalid(`the contract has ${found} ${what}, and ${most} are allowed`);
}

function keep(reached: Map<string, Artifact>, { manifest, members }: Closure): void {
  for (const artifact of [manifest, ...members.values()]) reached.set(artifact.digest, artifact);
}

function refuseTwice(what: string, names: readonly string[]): void {
  const twice = firstTwice(names);
  if (twice === undefined) return;
  throw contractInvalid(
    `the contract declares the ${what} ${JSON.stringify(twice)} twice`,
    "give one of them another name; a name stands once in the whole contract",
  );
}

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
