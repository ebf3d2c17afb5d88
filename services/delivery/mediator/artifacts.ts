/**
 * Artifacts of contracts, read for whoever asks (supplement A).
 *
 * Invariant: what is read is handed on as it lies there. Every reader checks what it gets by the digest, so one
 * artifact that was tampered with costs the reader that one, and he can say which.
 */
import type { z } from "zod";
import { leaderLast } from "../../../shared/broker/reads.ts";
import { planeSubject } from "../../../shared/protocol/endpoint/planes.ts";
import type { ArtifactsAnswer, ArtifactsArgs } from "../../../shared/protocol/endpoint/reads-shapes.ts";
import type { Mediator } from "./mediator.ts";
import { answerRoom } from "./room.ts";

const MAX_BYTES = 600_000;

/** Bytes that are no UTF-8 come out as other text: of another digest, like whatever else is wrong. */
const utf8 = new TextDecoder();

/** Those that are asked for, as many as fit. */
export async function artifacts(
  mediator: Mediator,
  { digests }: z.infer<typeof ArtifactsArgs>,
): Promise<z.infer<typeof ArtifactsAnswer>> {
  const { space, store, names } = mediator;
  const room = answerRoom(mediator, MAX_BYTES);
  const asked = [...new Set(digests)];
  const found: { digest: string; text: string }[] = [];
  const missing: string[] = [];
  let bytes = 0;
  for (const [index, digest] of asked.entries()) {
    const entry = await leaderLast(store, names.epc, planeSubject(space, { plane: "epc", digest }));
    if (entry === undefined) {
      missing.push(digest);
      continue;
    }
    const artifact = { digest, text: utf8.decode(entry.data) };
    bytes += Buffer.byteLength(JSON.stringify(artifact));
    if (bytes > room && found.length > 0) return { artifacts: found, missing, left: asked.slice(index) };
    found.push(artifact);
  }
  return { artifacts: found, missing };
}
