/**
 * Who gets a copy of a post, and what a copy is (§4, §8, `delivery.md`).
 *
 * Invariants
 * 1. A copy is the post's own bytes, with where it came from, why, and the limit in force. It carries no message
 *    id (H43), and nothing else of what its sender wrote as headers.
 * 2. Targets of a channel stand in the order of their keys: a post that is written in parts goes on behind the
 *    last one, whoever goes on.
 * 3. Nobody is a target whose read list does not cover the channel now.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import type { StoredEntry } from "../../../shared/broker/reads.ts";
import { type CopyKind, Header } from "../../../shared/protocol/base/headers.ts";
import { spaceSubjects } from "../../../shared/protocol/base/subjects.ts";
import { type CotalMessage, readDelivery } from "../../../shared/protocol/chat/message.ts";
import { parseLifecycle } from "../../../shared/protocol/ledger/member-rows.ts";
import { type Member, includes } from "./cover.ts";
import type { View } from "./view.ts";

/** A post as it is read for delivery. */
export type Post = {
  readonly entry: StoredEntry;
  readonly channel: string;
  readonly message: CotalMessage;
};

export type Target = {
  readonly lifecycle: string;
  /** Where its copies are written. */
  readonly subject: string;
  /** Its rows that cover the channel; none for a mention. */
  readonly rows: readonly Member[];
};

/** Bytes of a copy beside those of its post and its source's subject: headers of ours, and of its batch. */
const BESIDE_BYTES = 1024;

/**
 * `undefined` for what nobody could show, and for what is so long that the broker would not carry a copy of it, which no
 * client of the space can post (decision 2): it is passed over, and the line moves on.
 */
export function readPost({ info }: NatsConnection, entry: StoredEntry): Post | undefined {
  if (entry.data.length + entry.subject.length + BESIDE_BYTES > (info?.max_payload ?? Infinity)) return undefined;
  const read = readDelivery(entry.subject, entry.data, entry.headers?.keys() ?? []);
  if (!read.ok) return undefined;
  const { target, message } = read.delivery;
  return { entry, channel: target, message };
}

/** Targets of a durable channel, in order; whether an interval holds the post is asked for each (`isOwed`). */
export function targetsOf(view: View, space: string, channel: string): Target[] {
  const found: Target[] = [];
  for (const [lifecycle, rows] of view.cover.covering(channel)) {
    if (view.reads(lifecycle, channel)) found.push(targetOf(space, lifecycle, rows));
  }
  return inOrder(found);
}

/** In the order of their keys, by code units: every process puts them the same way. */
export function inOrder(targets: Target[]): Target[] {
  return targets.sort((a, b) => (a.lifecycle < b.lifecycle ? -1 : 1));
}

export function targetOf(space: string, lifecycle: string, rows: readonly Member[] = []): Target {
  const parsed = parseLifecycle(lifecycle);
  if (parsed === undefined) throw new TypeError("not a lifecycle");
  return { lifecycle, subject: spaceSubjects(space).dlv(parsed.principal, parsed.uid), rows };
}

export function isOwed({ rows }: Target, sequence: number): boolean {
  return rows.some((row) => includes(row, sequence));
}

/** The headers of a post's copies; the same for all of them. */
export function copyHeaders({ entry }: Post, kind: CopyKind, limit: string): Readonly<Record<string, string>> {
  return {
    [Header.SourceSubject]: entry.subject,
    [Header.SourceSequence]: String(entry.seq),
    [Header.CopyKind]: kind,
    [Header.DeliveryLimit]: limit,
  };
}
