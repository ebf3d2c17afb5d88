/**
 * What a lifecycle leaves, and its exact removal (§13.1): its two durables and its read-ACL row.
 *
 * The removal goes over a connection of its own, whose credential can remove what this one lifecycle
 * left and nothing else; the reads go over the caller's.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { kvKey } from "../protocol/base/broker-subjects.ts";
import { Header } from "../protocol/base/headers.ts";
import { bucketStream, dlvDurable, dmDurable, spaceNames } from "../protocol/base/names.ts";
import type { Principal } from "../protocol/base/principals.ts";
import { ledgerKey } from "../protocol/ledger/rows.ts";
import { deleteConsumer, streamState } from "./ensure.ts";
import { leaderLast } from "./leader.ts";
import { isMarker } from "./stored-headers.ts";
import { type Writer, createWriter } from "./write.ts";

export type Remains = { readonly space: string; readonly principal: Principal; readonly uid: string };

/** Safe to run again. Every removal passes through `effect`. */
export async function removeRemains(
  store: NatsConnection,
  cleaner: NatsConnection,
  { effect }: Pick<Writer, "effect">,
  { space, principal, uid }: Remains,
): Promise<void> {
  const { dm, dlv, bucket } = spaceNames(space);
  await effect(() => deleteConsumer(cleaner, dm, dmDurable(principal, uid)));
  await effect(() => deleteConsumer(cleaner, dlv, dlvDurable(principal, uid)));
  await effect(() => removeRow(store, cleaner, bucket.acl, ledgerKey.acl(principal, uid)));
}

/** A delete marker pinned to the row that was read; a marker that stands already is the end. */
async function removeRow(store: NatsConnection, cleaner: NatsConnection, bucket: string, key: string): Promise<void> {
  const stream = bucketStream(bucket);
  const entry = await leaderLast(store, stream, kvKey(bucket, key));
  if (entry === undefined || isMarker(entry.headers)) return;
  await createWriter({ nc: cleaner }).cas(stream, kvKey(bucket, key), new Uint8Array(), entry.seq, {
    headers: { [Header.KvOperation]: "DEL" },
  });
}

/** Where each stream that a lifecycle may have something in stands now. */
export async function frontiersOf(nc: NatsConnection, space: string): Promise<Readonly<Record<string, number>>> {
  const { chat, dm, dlv, task } = spaceNames(space);
  const last = async (stream: string) => [stream, (await streamState(nc, stream)).lastSeq] as const;
  return Object.fromEntries(await Promise.all([chat, dm, dlv, task].map(last)));
}
