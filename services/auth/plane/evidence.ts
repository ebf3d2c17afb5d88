/**
 * Native-key evidence in the auth bucket of a real broker: read by the leader, removed under a marker.
 *
 * Invariants
 * 1. A marker with a life of its own is put over evidence and over nothing else. On a family that is never
 *    deleted it would end as absence; so the key is built here, from a user key.
 * 2. The marker is pinned to the sequence that was read. The bucket keeps one message a key: with the
 *    marker the row is gone, and with its life the marker is.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { rowPage } from "../../../shared/broker/reads.ts";
import type { Writer } from "../../../shared/broker/write.ts";
import { kvKey } from "../../../shared/protocol/base/broker-subjects.ts";
import { Header } from "../../../shared/protocol/base/headers.ts";
import { bucketStream, spaceNames } from "../../../shared/protocol/base/names.ts";
import { actorKey } from "../../../shared/protocol/ledger/actor-rows.ts";
import type { Evidence } from "./prune-natkeys.ts";

/** Long enough for a reader that was under way to see that the row has left. */
export const MARKER_SECONDS = 60;

export function evidenceIn(nc: NatsConnection, writer: Pick<Writer, "cas">, space: string): Evidence {
  const { auth } = spaceNames(space).bucket;
  const marker = { headers: { [Header.KvOperation]: "PURGE", [Header.Ttl]: String(MARKER_SECONDS) } };
  return {
    page: (cursor, limit) =>
      rowPage(nc, auth, {
        filter: actorKey.allNatkeys,
        limit,
        via: "leader",
        ...(cursor === undefined ? {} : { cursor }),
      }),
    purge: (userKey, seq) =>
      writer.cas(bucketStream(auth), kvKey(auth, actorKey.natkey(userKey)), new Uint8Array(), seq, marker),
  };
}
