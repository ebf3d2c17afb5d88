/**
 * The contract of an endpoint: its clusters as documents and closures, ready to be published, served and
 * described.
 *
 * Invariants
 * 1. A command's name stands once in the whole contract, a cluster's URN as well.
 * 2. Lists of a document are sorted, so the order of a declaration changes no digest.
 * 3. Every schema compiles within its budget, or there is no contract.
 * 4. `artifacts` is all that has to lie under `P.epc.<hex>` for a caller to verify the contract.
 */
import { type z } from "zod";
import { type Artifact } from "./artifact.ts";
import { type Closure, type SchemaClosure, documentClosure } from "./closure.ts";
import {
  type ClusterDeclaration,
  type CommandDeclaration,
  type SchemaDeclaration,
  defineCluster,
  firstTwice,
} from "./declare.ts";
import { ClusterDocument, type CommandDocument, type ContractDocument, type NamedSchema } from "./documents.ts";
import { contractInvalid } from "./limits.ts";
import { type Validators } from "./validators.ts";
import { zodClosure } from "./zod-schema.ts";

export type CompiledCommand = {
  readonly declaration: CommandDeclaration;
  /** The cluster's URN. */
  readonly cluster: string;
  readonly document: CommandDocument;
  readonly input: SchemaClosure;
  readonly output: SchemaClosure;
  readonly contractDigest: string;
};

export type CompiledCluster = { readonly document: ClusterDocument; readonly digest: string };

export type Contract = {
  readonly clusters: readonly CompiledCluster[];
  /** Closure digests of the clusters, sorted, as a service record carries them. */
  readonly clusterDigests: readonly string[];
  readonly commands: ReadonlyMap<string, CompiledCommand>;
  /** Closures of all schemas that a document names, by closure digest. */
  readonly schemas: ReadonlyMap<string, SchemaClosure>;
  /** By digest, each once. */
  readonly artifacts: readonly Artifact[];
};

/** `validators`: those that will check what comes and goes by this contract. */
export function compileContract(declarations: readonly ClusterDeclaration[], validators: Validators): Contract {
  const documents: Closure[] = [];
  const schemas = new Map<string, SchemaClosure>();
  const keep: Keep = {
    document: (document) => {
      const closure = documentClosure(document);
      documents.push(closure);
      return closure.digest;
    },
    schema: (shape) => {
      const closure = zodClosure(shape);
      validators.of(closure);
      schemas.set(closure.digest, closure);
      return closure;
    },
  };
  const commands = declarations.flatMap((cluster) =>
    defineCluster(cluster).commands.map((command) => compileCommand(cluster.urn, command, keep)),
  );
  refuseTwice(
    "command",
    commands.map(({ document }) => document.name),
  );
  refuseTwice(
    "cluster",
    declarations.map(({ urn }) => urn),
  );
  const clusters = declarations.map((cluster): CompiledCluster => {
    const document = clusterDocument(
      cluster,
      commands.filter((command) => command.cluster === cluster.urn),
      keep,
    );
    return { document, digest: keep.document(document) };
  });
  return {
    clusters,
    clusterDigests: clusters.map(({ digest }) => digest).toSorted(),
    commands: new Map(commands.map((command) => [command.document.name, command])),
    schemas,
    artifacts: artifactsOf([...documents, ...schemas.values()]),
  };
}

/** Makes a closure, and keeps it for `artifacts`. */
type Keep = {
  readonly document: (document: object) => string;
  readonly schema: (shape: z.ZodType | undefined) => SchemaClosure;
};

function compileCommand(cluster: string, declaration: CommandDeclaration, keep: Keep): CompiledCommand {
  const input = keep.schema(declaration.input);
  const output = keep.schema(declaration.output);
  const { name, class: kind, effect, modes, capability, traits = [], action, admissionCeiling } = declaration;
  const document: CommandDocument = {
    name,
    class: kind,
    effect,
    inputDigest: input.digest,
    outputDigest: output.digest,
    targeted: modes !== undefined,
    ...(modes === undefined ? {} : { modes: modes.toSorted() }),
    ...(capability === undefined ? {} : { capability }),
    ...(traits.length === 0 ? {} : { traits: traits.toSorted((a, b) => (a.urn < b.urn ? -1 : 1)) }),
    ...(action === undefined ? {} : { action }),
    ...(admissionCeiling === undefined ? {} : { admissionCeiling }),
  };
  const contractDigest = keep.document(contractDocument(cluster, document));
  return { declaration, cluster, document, input, output, contractDigest };
}

/** Behind a `contractDigest`. */
export function contractDocument(urn: string, command: CommandDocument): ContractDocument {
  return { v: 1, urn, command };
}

function clusterDocument(cluster: ClusterDeclaration, commands: readonly CompiledCommand[], keep: Keep) {
  const named = (list: readonly SchemaDeclaration[] = []): NamedSchema[] =>
    list.map(({ name, schema }) => ({ name, schemaDigest: keep.schema(schema).digest })).toSorted(byName);
  return ClusterDocument.parse({
    urn: cluster.urn,
    revision: cluster.revision,
    attributes: named(cluster.attributes),
    commands: commands.map(({ document }) => document).toSorted(byName),
    events: named(cluster.events),
  });
}

const byName = (a: { readonly name: string }, b: { readonly name: string }) => (a.name < b.name ? -1 : 1);

function artifactsOf(closures: readonly Closure[]): Artifact[] {
  const all = closures.flatMap(({ manifest, members }) => [manifest, ...members.values()]);
  const byDigest = new Map(all.map((artifact) => [artifact.digest, artifact]));
  return [...byDigest.values()].toSorted((a, b) => (a.digest < b.digest ? -1 : 1));
}

function refuseTwice(what: string, names: readonly string[]): void {
  const twice = firstTwice(names);
  if (twice === undefined) return;
  throw contractInvalid(
    `the contract declares the ${what} ${JSON.stringify(twice)} twice`,
    "give one of them another name; a name stands once in the whole contract",
  );
}
