/**
 * Follows a bucket by its sequence: every row as it was last written, no older than the moment of asking.
 *
 * Invariant: after `refresh`, every row that the stream's leader had when it was called has been told. A page of a
 * replica that lags behind is only a shorter page: the leader says whether there was more.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { parseJson } from "../../../shared/protocol/base/json.ts";
import { isMarker, leaderNext, directPage } from "../../../shared/broker/reads.ts";
import { kvAll, kvKeyOf } from "../../../shared/protocol/base/broker-subjects.ts";
import { bucketStream } from "../../../shared/protocol/base/names.ts";

export type FollowedRow = {
  readonly key: string;
  readonly seq: number;
  /** Left out where the row was deleted, or is no JSON. */
  readonly value: unknown;
};

export type Follower = {
  readonly refresh: () => Promise<void>;
  /** Sequence of the last row that was told. */
  readonly seq: () => number;
};

type Stored = Awaited<ReturnType<typeof leaderNext>> & object;

const PAGE = 500;

export function follow(nc: NatsConnection, bucket: string, onRow: (row: FollowedRow) => void): Follower {
  const stream = bucketStream(bucket);
  const filter = kvAll(bucket);
  let seq = 0;
  const take = (entry: Stored): void => {
    seq = entry.seq;
    const key = kvKeyOf(bucket, entry.subject);
    if (key !== undefined) onRow({ key, seq, value: isMarker(entry.headers) ? undefined : parseJson(entry.data) });
  };
  const refresh = async (): Promise<void> => {
    for (;;) {
      const next = await leaderNext(nc, stream, filter, seq + 1);
      if (next === undefined) return;
      take(next);
      for (let done = false; !done;) {
        const page = await directPage(nc, stream, { filter, fromSeq: seq + 1, batch: PAGE });
        for (const entry of page.messages) take(entry);
        ({ done } = page);
      }
    }
  };
  return { refresh, seq: () => seq };
}
