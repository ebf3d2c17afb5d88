/**
 * The ledger's store on a real broker: leader reads and numbered writes, nothing cached.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { type StoredEntry, allRows, isMarker, leaderLast } from "../broker/reads.ts";
import type { Writer } from "../broker/write.ts";
import { kvKey } from "../protocol/base/broker-subjects.ts";
import { Header } from "../protocol/base/headers.ts";
import { bucketStream, spaceNames } from "../protocol/base/names.ts";
import type { LedgerStore, RawRow, ReadBucket } from "./store.ts";

/** A store over one connection; `writer` counts the writes of an operation (and dies in tests). */
export function brokerLedgerStore(nc: NatsConnection, writer: Writer, space: string): LedgerStore {
  const { bucket } = spaceNames(space);
  const place = (name: ReadBucket, key: string) => ({
    stream: bucketStream(bucket[name]),
    subject: kvKey(bucket[name], key),
  });
  return {
    read: async (name, key) => {
      const { stream, subject } = place(name, key);
      return rawRow(await leaderLast(nc, stream, subject));
    },
    create: async (name, key, value) => {
      const { stream, subject } = place(name, key);
      return writer.create(stream, subject, encode(value));
    },
    cas: async (name, key, value, revision) => {
      const { stream, subject } = place(name, key);
      return writer.cas(stream, subject, encode(value), revision);
    },
    keys: async (name, filter) => {
      const found = new Set<string>();
      for await (const row of allRows(nc, bucket[name], { filter, limit: 100, via: "leader" })) {
        if (row.kind === "value") found.add(row.key);
      }
      return [...found];
    },
  };
}

const utf8 = new TextDecoder();

const encode = (value: object): Uint8Array => new TextEncoder().encode(JSON.stringify(value));

function rawRow(entry: StoredEntry | undefined): RawRow {
  if (entry === undefined) return { kind: "absent" };
  if (isMarker(entry.headers)) return { kind: "marker", revision: entry.seq };
  return { kind: "value", revision: entry.seq, value: valueOf(entry) };
}

/** `undefined`, which each row's own schema refuses by name, for what no row of the ledger can be. */
function valueOf({ headers, data }: StoredEntry): unknown {
  // The bucket lets a marker leave by itself; a row that would has been given its life by nobody of us (H24).
  if (headers?.has(Header.Ttl) === true) return undefined;
  try {
    return JSON.parse(utf8.decode(data));
  } catch {
    return undefined;
  }
}
