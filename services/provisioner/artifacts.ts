/**
 * Artifacts of contracts (supplement A), published create-only. The delivery service reads them to whoever asks.
 *
 * Invariant: under a digest lies what was published first, for ever: the same bytes again are no fault, other bytes
 * are refused. Nobody needs to trust who publishes: every reader checks what it gets by the digest.
 */
import { leaderLast } from "../../shared/broker/reads.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import type { Artifact } from "../../shared/protocol/contract/artifact.ts";
import { planeSubject } from "../../shared/protocol/endpoint/planes.ts";
import type { SpaceContext } from "./context.ts";

type Store = Pick<SpaceContext, "space" | "store" | "names" | "writer">;

/** Publishes what is not there yet. The number that was new. */
export async function publishArtifacts(store: Store, artifacts: readonly Artifact[]): Promise<number> {
  const known = await Promise.all(artifacts.map(({ digest }) => stored(store, digest)));
  let added = 0;
  for (const [index, artifact] of artifacts.entries()) {
    const bytes = known[index];
    if (bytes === undefined) added += await publish(store, artifact);
    else demandSame(artifact, bytes);
  }
  return added;
}

/** A create; somebody who was first with the same bytes has done what we wanted. */
async function publish(store: Store, artifact: Artifact): Promise<number> {
  try {
    const subject = subjectOf(store, artifact.digest);
    await store.writer.create(store.names.epc, subject, new TextEncoder().encode(artifact.text));
    return 1;
  } catch (error) {
    const bytes = await stored(store, artifact.digest);
    if (bytes === undefined) throw error;
    demandSame(artifact, bytes);
    return 0;
  }
}

function demandSame({ digest, text }: Artifact, bytes: Uint8Array): void {
  if (Buffer.compare(Buffer.from(text), bytes) === 0) return;
  throw new CotalError(ErrorCode.ContractMismatch, `other bytes are published under ${digest}`, {
    outcome: Outcome.NotExecuted,
    next: "somebody wrote to the store past this daemon: put its stream back from a backup",
  });
}

async function stored(store: Store, digest: string): Promise<Uint8Array | undefined> {
  return (await leaderLast(store.store, store.names.epc, subjectOf(store, digest)))?.data;
}

const subjectOf = ({ space }: Store, digest: string): string => planeSubject(space, { plane: "epc", digest });
