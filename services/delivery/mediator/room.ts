/** How much one answer of a mediated read may hold. */
import type { NatsConnection } from "@nats-io/transport-node";

/** Bytes of JSON of one page of a bucket. */
export const SNAPSHOT_BYTES = 400_000;

/** What the envelope of an answer takes beside its data, generously. */
const ENVELOPE_BYTES = 16_384;

/** Bytes of JSON that the data of one answer may have: at most `most`, and what the broker carries. */
export function answerRoom({ store }: { readonly store: NatsConnection }, most: number): number {
  return Math.min(most, (store.info?.max_payload ?? most) - ENVELOPE_BYTES);
}
