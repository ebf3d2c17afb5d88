/**
 * What a member's processes showed, held against the streams (§4, §7, §8): the posts of CHAT, the copies of DLV, the
 * rows of its memberships, and the acks that reached the broker.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { AckBody } from "../../shared/protocol/base/broker-subjects.ts";
import { dlvDurable } from "../../shared/protocol/base/names.ts";
import type { Shown } from "./member-process.ts";
import { dump } from "./raw-jetstream.ts";
import type { Minted } from "./space.ts";
import { copiesOf, rowsOf } from "./stored-copies.ts";

export type StoredPost = { readonly seq: number; readonly channel: string; readonly id: string };

/** An ack as it passed the broker: of which durable, and for which sequence of DLV. */
export type Acked = { readonly durable: string; readonly copy: number; readonly at: bigint };

export type Found = { readonly faults: readonly string[]; readonly copies: number; readonly again: number };

/** Acks of every member from now on. */
export function watchAcks(store: NatsConnection): readonly Acked[] {
  const acks: Acked[] = [];
  store.subscribe("$JS.ACK.DLV_main.>", {
    callback: (error, { subject, data }) => {
      if (error !== null || !isDone(new TextDecoder().decode(data))) return;
      const [, , , durable = "", , copy] = subject.split(".");
      acks.push({ durable, copy: Number(copy), at: process.hrtime.bigint() });
    },
  });
  return acks;
}

/** `+NXT` is done, too, and asks for the next. */
const isDone = (body: string): boolean => body === "" || body === AckBody.Ack || body.startsWith("+NXT");

export async function postsOf(store: NatsConnection): Promise<StoredPost[]> {
  return (await dump(store, "CHAT_main")).map(({ seq, subject, data }) => ({
    seq,
    channel: subject.split(".").slice(5).join("."),
    id: (JSON.parse(data) as { id: string }).id,
  }));
}

export type Seen = {
  readonly store: NatsConnection;
  readonly posts: readonly StoredPost[];
  readonly acks: readonly Acked[];
  /** A broker that is killed forgets acks that it had no time to write down. */
  readonly brokerKills: readonly bigint[];
};

export async function faultsOf(seen: Seen, who: Minted, shown: readonly Shown[]): Promise<Found> {
  const { store, posts, acks, brokerKills } = seen;
  const [rows, copies] = await Promise.all([rowsOf(store, who.view), copiesOf(store, who.view)]);
  const owed = posts.filter(({ seq, channel }) =>
    rows.some((row) => row.pattern === channel && seq > row.join && (row.state !== "left" || seq <= row.leave)),
  );
  const name = who.view.principal.actor;
  const faults: string[] = [];
  const fault = (what: string, ids: Iterable<string>): void => {
    for (const id of ids) faults.push(`${name}: ${what}: ${id}`);
  };

  const written = copies.map(({ source }) => source).toSorted((a, b) => a - b);
  if (written.join() !== owed.map(({ seq }) => seq).join())
    fault("copies are not what is owed", [String(written.length)]);

  const byId = new Map<string, Shown[]>();
  for (const one of shown) byId.set(one.id, [...(byId.get(one.id) ?? []), one]);
  const owedIds = new Set(owed.map(({ id }) => id));
  fault(
    "not shown",
    [...owedIds].filter((id) => !byId.has(id)),
  );
  const left = rows.flatMap((row) => (row.state === "left" ? [row] : []));
  fault(
    "shown after its leave",
    posts
      .filter(({ seq, channel, id }) => byId.has(id) && left.some((row) => row.pattern === channel && seq > row.leave))
      .map(({ id }) => id),
  );

  const idAt = new Map(posts.map(({ seq, id }) => [seq, id]));
  const idOf = new Map(copies.map(({ seq, source }) => [seq, idAt.get(source) ?? ""]));
  const durable = dlvDurable(who.view.principal, who.view.uid);
  const ackedAt = new Map<string, bigint>();
  for (const { copy, at } of acks.filter((one) => one.durable === durable)) {
    const id = idOf.get(copy) ?? `copy ${copy}`;
    if (!ackedAt.has(id)) ackedAt.set(id, at);
    if (!(byId.get(id) ?? []).some((one) => one.at < at)) fault("acknowledged before it was shown", [id]);
  }
  // All were acknowledged in the end: who sees few acks would find no early one either. Some pass while the broker dies.
  if (ackedAt.size * 2 < copies.length) fault("acks that were seen, of copies", [`${ackedAt.size}/${copies.length}`]);
  let again = 0;
  for (const [id, times] of byId) {
    if (new Set(times.map((one) => one.process)).size !== times.length) fault("twice in one process", [id]);
    for (const later of times.slice(1)) {
      again += 1;
      const acked = ackedAt.get(id);
      const isForgotten = brokerKills.some((killed) => acked !== undefined && killed > acked && killed < later.at);
      if (acked !== undefined && acked < later.at && !isForgotten) fault("again after its ack", [id]);
    }
  }
  return { faults, copies: copies.length, again };
}
