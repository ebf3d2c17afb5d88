/**
 * Artifacts of contracts, read through the delivery service's mediated read (supplement A, "Digests"; H1).
 *
 * Invariants
 * 1. Bytes are kept only if they have the digest that they were asked under. What has not is handed on, so
 *    that whoever verifies says which artifact is wrong; it is never kept.
 * 2. What is kept never grows stale: an artifact is named by its bytes. It is bounded by size.
 * 3. What is asked for in one turn travels in one call, 32 at most.
 */
import { LRUCache } from "lru-cache";
import { ReadCommand } from "../grants/commands.ts";
import { digestOf } from "../protocol/base/canonical.ts";
import { CotalError, ErrorCode } from "../protocol/base/errors.ts";
import type { FetchArtifact } from "../protocol/contract/closure.ts";
import { EndpointName } from "../protocol/endpoint/grammar.ts";
import { ArtifactsAnswer } from "../protocol/endpoint/reads-shapes.ts";
import type { Call } from "./caller.ts";

const PER_CALL = 32;
const KEPT_BYTES = 16 * 1024 * 1024;

export type ArtifactsOptions = {
  readonly call: Call;
  /** Bound of one read. */
  readonly deadlineMs: number;
  readonly keptBytes?: number;
};

type Waiting = { readonly resolve: (bytes: Uint8Array | undefined) => void; readonly reject: (error: unknown) => void };

export function createArtifacts({ call, deadlineMs, keptBytes = KEPT_BYTES }: ArtifactsOptions): FetchArtifact {
  const kept = new LRUCache<string, Uint8Array>({
    maxSize: keptBytes,
    sizeCalculation: ({ byteLength }) => Math.max(1, byteLength),
  });
  const asked = new Map<string, Promise<Uint8Array | undefined>>();
  let queue = new Map<string, Waiting>();

  const run = (): void => {
    const batch = [...queue];
    queue = new Map();
    for (let at = 0; at < batch.length; at += PER_CALL) void read(new Map(batch.slice(at, at + PER_CALL)));
  };

  /** Reads until each is answered. What did not fit is asked for again, as long as something comes. */
  const read = async (wanted: Map<string, Waiting>): Promise<void> => {
    try {
      while (wanted.size > 0) {
        const before = wanted.size;
        const { artifacts, missing } = await ask([...wanted.keys()]);
        for (const { digest, text } of artifacts) settle(wanted, digest, new TextEncoder().encode(text));
        for (const digest of missing) settle(wanted, digest, undefined);
        if (wanted.size === before) throw stuck();
      }
    } catch (thrown) {
      for (const { reject } of wanted.values()) reject(thrown);
    }
  };

  const ask = async (digests: readonly string[]) => {
    const { data } = await call(EndpointName.Delivery, ReadCommand.Artifacts, { digests }, { deadlineMs });
    const answer = ArtifactsAnswer.safeParse(data);
    if (!answer.success) throw stuck();
    return answer.data;
  };

  const settle = (wanted: Map<string, Waiting>, digest: string, bytes: Uint8Array | undefined): void => {
    const waiting = wanted.get(digest);
    if (waiting === undefined) return;
    wanted.delete(digest);
    if (bytes !== undefined && digestOf(bytes) === digest) kept.set(digest, bytes);
    waiting.resolve(bytes);
  };

  return (digest) => {
    const there = kept.get(digest);
    if (there !== undefined) return Promise.resolve(there);
    const running = asked.get(digest);
    if (running !== undefined) return running;
    if (queue.size === 0) setImmediate(run);
    const coming = new Promise<Uint8Array | undefined>((resolve, reject) => {
      queue.set(digest, { resolve, reject });
    }).finally(() => asked.delete(digest));
    asked.set(digest, coming);
    return coming;
  };
}

function stuck(): CotalError {
  return new CotalError(ErrorCode.Internal, "the delivery service's answer holds none of the artifacts asked for", {
    next: "check that the daemons and this client are of one version",
  });
}
