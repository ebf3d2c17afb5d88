/**
 * Reading and changing one JSON row of a bucket: leader read, merge, create or pinned CAS.
 *
 * Invariant: a row that is there and can't be read is never written over. A newer version may have
 * made it, and what stands in it would be lost without a word.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { isMarker, leaderLast } from "../../shared/broker/reads.ts";
import type { Writer } from "../../shared/broker/write.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { parseJson } from "../../shared/protocol/base/json.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream } from "../../shared/protocol/base/names.ts";

/** Rounds of a change that loses its CAS to others. */
const ATTEMPTS = 8;

export type JsonRow = { readonly value: unknown; readonly revision: number; readonly deleted: boolean };

/** The row as it is at the leader; `undefined` for none. The value of a marker, and one that is no JSON, is `undefined`. */
export async function readJson(nc: NatsConnection, bucket: string, key: string): Promise<JsonRow | undefined> {
  const entry = await leaderLast(nc, bucketStream(bucket), kvKey(bucket, key));
  if (entry === undefined) return undefined;
  const deleted = isMarker(entry.headers);
  return { value: deleted ? undefined : parseJson(entry.data), revision: entry.seq, deleted };
}

function current({ value, deleted }: JsonRow, key: string): unknown {
  if (value === undefined && !deleted) throw unreadable(key);
  return value;
}

/** A row that must not be written over. */
export function unreadable(key: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the row ${key} does not parse, and is left as it is`, {
    outcome: Outcome.NotExecuted,
    next: "a newer version may have written it: run that version, or remove the row",
  });
}

/**
 * Changes a row until the change lands on what it was made from. `change` returns the next value,
 * or `undefined` to leave the row as it is.
 */
export async function changeJson<T extends object>(
  nc: NatsConnection,
  writer: Writer,
  place: { readonly bucket: string; readonly key: string },
  change: (current: unknown) => T | undefined,
): Promise<T | undefined> {
  const stream = bucketStream(place.bucket);
  const subject = kvKey(place.bucket, place.key);
  for (let attempt = 1; ; attempt += 1) {
    const found = await readJson(nc, place.bucket, place.key);
    const next = change(found === undefined ? undefined : current(found, place.key));
    if (next === undefined) return undefined;
    const bytes = new TextEncoder().encode(JSON.stringify(next));
    try {
      if (found === undefined) await writer.create(stream, subject, bytes);
      else await writer.cas(stream, subject, bytes, found.revision);
      return next;
    } catch (error) {
      const lost = error instanceof CotalError && error.code === ErrorCode.Conflict;
      if (!lost || attempt === ATTEMPTS) throw error;
    }
  }
}
