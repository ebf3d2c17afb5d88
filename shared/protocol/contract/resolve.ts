/**
 * What a caller proves before it calls: that the contract it was told of is the one that was published.
 *
 * Invariants
 * 1. Nothing of a descriptor is used before it was found, the same, in a cluster document whose bytes have
 *    the digest that was told; so an endpoint can't describe a `write` as a `read` to one caller.
 * 2. A schema is used only as a whole closure, every artifact checked.
 */
import { canonicalJson } from "../base/canonical.ts";
import { CotalError, ErrorCode } from "../base/errors.ts";
import {
  type FetchArtifact,
  type SchemaClosure,
  documentClosure,
  fetchDocumentClosure,
  fetchSchemaClosure,
} from "./closure.ts";
import { contractDocument } from "./contract.ts";
import { type DescribedCommand, type Descriptor } from "./descriptor.ts";
import { ClusterDocument, CommandDocument } from "./documents.ts";
import { contractInvalid } from "./limits.ts";
import { VOID } from "./zod-schema.ts";

export type ResolvedCommand = {
  readonly command: DescribedCommand;
  readonly input: SchemaClosure;
  readonly output: SchemaClosure;
};

/** The command of this name, verified. `not-found` where the descriptor does not show it. */
export async function resolveCommand(
  descriptor: Descriptor,
  name: string,
  fetch: FetchArtifact,
): Promise<ResolvedCommand> {
  const command = descriptor.commands.find((one) => one.name === name);
  if (command === undefined) {
    throw new CotalError(ErrorCode.NotFound, `${descriptor.endpoint} shows you no command ${JSON.stringify(name)}`, {
      next: `see what it describes; if your own rights hide it, the operator grants the capability ${descriptor.endpoint}`,
    });
  }
  const published = await publishedCommand(descriptor, command, fetch);
  const [input, output] = await Promise.all([
    fetchSchema(command.inputDigest, fetch),
    fetchSchema(command.outputDigest, fetch),
  ]);
  // From the document: what only the descriptor says is of no account.
  const { cluster, contractDigest, modes } = command;
  return {
    command: { ...published, cluster, contractDigest, ...(modes === undefined ? {} : { modes }) },
    input,
    output,
  };
}

async function publishedCommand(
  descriptor: Descriptor,
  command: DescribedCommand,
  fetch: FetchArtifact,
): Promise<CommandDocument> {
  const listed = descriptor.clusters.find(({ urn }) => urn === command.cluster);
  if (listed === undefined) throw told(command, "belongs to a cluster that is not listed");
  const document = await fetchCluster(listed.digest, fetch);
  if (document.urn !== listed.urn || document.revision !== listed.revision) {
    throw told(command, "belongs to a cluster of another name or revision than listed");
  }
  const published = document.commands.find(({ name }) => name === command.name);
  if (published === undefined || !agrees(command, published)) throw told(command, "is not the one that was published");
  const { digest } = documentClosure(contractDocument(document.urn, published));
  if (digest !== command.contractDigest) throw told(command, "is told under another contract digest than it has");
  return published;
}

/** The cluster behind a closure digest. */
export async function fetchCluster(digest: string, fetch: FetchArtifact): Promise<ClusterDocument> {
  const { root } = await fetchDocumentClosure(digest, fetch);
  const document = ClusterDocument.safeParse(root.value);
  if (document.success) return document.data;
  throw contractInvalid(`the artifact ${root.digest} is no cluster`, undefined, document.error);
}

const FIELDS = Object.keys(CommandDocument.shape).filter((field) => field !== "modes");

/** Equal in all that this client knows, but that the descriptor may show fewer modes. */
function agrees(described: DescribedCommand, published: CommandDocument): boolean {
  const known = (command: CommandDocument) => FIELDS.map((field) => command[field] ?? null);
  const { modes = [] } = published;
  return (
    canonicalJson(known(described)) === canonicalJson(known(published)) &&
    (described.modes ?? []).every((mode) => modes.includes(mode))
  );
}

async function fetchSchema(digest: string, fetch: FetchArtifact): Promise<SchemaClosure> {
  return digest === VOID.digest ? VOID : fetchSchemaClosure(digest, fetch);
}

function told({ name }: DescribedCommand, what: string): CotalError {
  return new CotalError(ErrorCode.ContractMismatch, `the command ${JSON.stringify(name)} ${what}`, {
    next: "do not call it; report it to whoever runs that endpoint",
  });
}
