/**
 * What the store account exports to its own front, and nothing more (decision H60); and the one thing that the
 * system account exports to the stores.
 *
 * Everything a client does to a stream crosses here: captured publishes, single pulls of its own
 * durables, acks. Never an INFO, CREATE, UPDATE, DELETE, PURGE or a get: the broker publishes its
 * replies wherever the requester says, and inside one account those would be executed.
 */
import { jsAck, jsApi, kvAll, objectChunks, objectMeta, sys } from "../protocol/base/broker-subjects.ts";
import { spaceNames } from "../protocol/base/names.ts";
import { spaceSubjects } from "../protocol/base/subjects.ts";

export type StoreExport = { readonly name: string; readonly subject: string; readonly why: string };

/**
 * What the system account exports to every store: how each server is and how many it knows of, nothing of any account.
 * Each server answers. Whoever holds a claim proves by it which servers there are, with no credential that ends.
 */
export const SYSTEM_EXPORT = { name: "servers", subject: sys.ping("STATSZ") } as const;

/** The exports of one space's store, each a private service answered once (`Singleton`). */
export function storeExports(space: string): StoreExport[] {
  const s = spaceSubjects(space);
  const n = spaceNames(space);
  const captured: [string, string][] = [
    ["chat", s.chatAll],
    ["inst", s.instAll],
    ["svc", s.svcAll],
    ["epj", s.epjAll],
    ["epe", s.epeAll],
    ["epr", s.eprAll],
    ["ept", s.eptSchedule],
    ["presence", kvAll(n.bucket.presence)],
    // A token can't be half a wildcard: the grant names the one bucket (§8 resume transfer).
    ["xfer-chunks", objectChunks("*", "*")],
    ["xfer-meta", objectMeta("*", "*")],
  ];
  const pulled = [n.dm, n.dlv, n.task];
  return [
    ...captured.map(([name, subject]) => ({ name, subject, why: "captured publishes" })),
    ...pulled.map((stream) => ({
      name: `next-${stream}`,
      subject: jsApi.next(stream, "*"),
      why: "single pulls of a member's own durable",
    })),
    ...pulled.map((stream) => ({ name: `ack-${stream}`, subject: jsAck.stream(stream), why: "acks of those pulls" })),
  ];
}
