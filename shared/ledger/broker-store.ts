/**
 * The ledger's store on a real broker: leader reads and numbered writes, nothing cached.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { allRows, leaderLast } from "../broker/reads.ts";
import type { Writer } from "../broker/write.ts";
import { kvKey } from "../protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../protocol/base/names.ts";
import { rawRow, walked } from "./scan.ts";
import type { LedgerStore, ReadBucket } from "./store.ts";

/**
 * A store over one connection; `writer` counts the writes of an operation (and dies in tests). Families are enumerated
 * by `scan`: the authority plane's own, or, where there is no plane, a walk of leader reads.
 */
export function brokerLedgerStore(
  nc: NatsConnection,
  writer: Writer,
  space: string,
  scan: LedgerStore["scan"] = walked(nc, space),
): LedgerStore {
  const { bucket } = spaceNames(space);
  const place = (name: ReadBucket, key: string) => ({
    stream: bucketStream(bucket[name]),
    subject: kvKey(bucket[name], key),
  });
  return {
    read: async (name, key) => {
      const { stream, subject } = place(name, key);
      const entry = await leaderLast(nc, stream, subject);
      return entry === undefined ? { kind: "absent" } : rawRow(entry);
    },
    create: async (name, key, value) => {
      const { stream, subject } = place(name, key);
      return writer.create(stream, subject, encode(value));
    },
    cas: async (name, key, value, revision) => {
      const { stream, subject } = place(name, key);
      return writer.cas(stream, subject, encode(value), revision);
    },
    scan,
    keys: async (name, filter) => {
      const found = new Set<string>();
      for await (const row of allRows(nc, bucket[name], { filter, limit: 100, via: "leader" })) {
        if (row.kind === "value") found.add(row.key);
      }
      return [...found];
    },
  };
}

const encode = (value: object): Uint8Array => new TextEncoder().encode(JSON.stringify(value));
