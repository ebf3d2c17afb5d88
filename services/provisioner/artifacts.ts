/**
 * Artifacts of contracts (supplement A): published create-only, and read for whoever asks.
 *
 * Invariants
 * 1. Under a digest lies what was published first, for ever: the same bytes again are no fault, other bytes
 *    are refused. Nobody needs to trust who publishes: every reader checks what it gets by the digest.
 * 2. What is read is handed on as it lies there: one artifact that was tampered with costs the reader that
 *    one, and he can say which.
 */
import type { z } from "zod";
import { leaderLast } from "../../shared/broker/reads.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import type { Artifact } from "../../shared/protocol/contract/artifact.ts";
import type { ArtifactsAnswer, ArtifactsArgs } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { planeSubject } from "../../shared/protocol/endpoint/planes.ts";
import { type SpaceContext, answerRoom } from "./context.ts";

type Store = Pick<SpaceContext, "space" | "store" | "names" | "writer">;

const MAX_BYTES = 600_000;

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

/** Bytes that are no UTF-8 come out as other text: of another digest, like whatever else is wrong. */
const utf8 = new TextDecoder();

/** Those that are asked for, as many as fit. */
export async function artifacts(
  context: SpaceContext,
  { digests }: z.infer<typeof ArtifactsArgs>,
): Promise<z.infer<typeof ArtifactsAnswer>> {
  const room = answerRoom(context, MAX_BYTES);
  const asked = [...new Set(digests)];
  const found: { digest: string; text: string }[] = [];
  const missing: string[] = [];
  let bytes = 0;
  for (const [index, digest] of asked.entries()) {
    const data = await stored(context, digest);
    if (data === undefined) {
      missing.push(digest);
      continue;
    }
    const artifact = { digest, text: utf8.decode(data) };
    bytes += Buffer.byteLength(JSON.stringify(artifact));
    if (bytes > room && found.length > 0) return { artifacts: found, missing, left: asked.slice(index) };
    found.push(artifact);
  }
  return { artifacts: found, missing };
}
