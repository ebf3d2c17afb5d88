/**
 * What anycast needs of the store (§8.1), as one small door: a test puts a store in memory behind it.
 *
 * Invariants
 * 1. Every read that decides something is served by the stream's leader; a walk over all rows need not be, for
 *    what it leads to is pinned.
 * 2. A row is made where nothing is, or changed at the revision that was read; both throw `conflict` when lost.
 * 3. A row is removed by its own revision, so one that moved meanwhile stays. Nothing stands in its place.
 */
import { z } from "zod";
import type { NatsConnection } from "@nats-io/transport-node";
import { apiRequest } from "../../../shared/broker/api.ts";
import { deleteMessage } from "../../../shared/broker/delete.ts";
import { streamState } from "../../../shared/broker/ensure.ts";
import { type StoredEntry, leaderGet, leaderLast, leaderNext } from "../../../shared/broker/leader.ts";
import { type BucketRow, allRows } from "../../../shared/broker/rows.ts";
import { isMarker } from "../../../shared/broker/stored-headers.ts";
import { type Writer, createWriter } from "../../../shared/broker/write.ts";
import { jsApi, kvKey, kvKeyOf } from "../../../shared/protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { bucketStream, roleDurable, spaceNames } from "../../../shared/protocol/base/names.ts";
import { parseSubject } from "../../../shared/protocol/base/subjects.ts";
import { readDelivery } from "../../../shared/protocol/chat/message.ts";
import { AnycastRow, type StoredRequest } from "./row.ts";

export type FoundRow = {
  readonly key: string;
  readonly revision: number;
  /** `undefined`: a marker that somebody has put there by hand. */
  readonly row: AnycastRow | undefined;
};

/** A row as a walk meets it. */
export type WalkedRow = { readonly key: string; readonly revision: number; readonly row: AnycastRow | "unreadable" };

export type Notice = {
  readonly subject: string;
  readonly id: string;
  readonly data: Uint8Array;
};

export type AnycastStore = {
  /** The queue's creation time, as the broker writes it. */
  readonly created: () => Promise<string>;
  /** The same, and the oldest sequence that it holds. */
  readonly queue: () => Promise<{ readonly created: string; readonly firstSeq: number }>;
  readonly request: (seq: number) => Promise<StoredRequest | undefined>;
  /** True if it was there and is gone now. */
  readonly deleteRequest: (seq: number) => Promise<boolean>;
  readonly row: (key: string) => Promise<FoundRow | undefined>;
  /** Rows of that sequence, of every stream there ever was, oldest change first; a bounded number. */
  readonly rowsAt: (seq: number) => Promise<FoundRow[]>;
  readonly create: (key: string, row: AnycastRow) => Promise<number>;
  readonly cas: (key: string, row: AnycastRow, revision: number) => Promise<number>;
  readonly remove: (revision: number) => Promise<void>;
  readonly rows: () => AsyncIterable<WalkedRow>;
  /** Deliveries that wait for an ack, by role. */
  readonly out: () => Promise<ReadonlyMap<string, number>>;
  /** Stores a notice once. */
  readonly publish: (notice: Notice) => Promise<void>;
};

/** Streams that one sequence is looked up in. */
const MAX_EPOCHS = 16;
const PAGE = 256;

export function brokerAnycastStore(
  nc: NatsConnection,
  space: string,
  writer: Writer = createWriter({ nc }),
): AnycastStore {
  const { task, dm, bucket } = spaceNames(space);
  const stream = bucketStream(bucket.anycast);
  const subject = (key: string): string => kvKey(bucket.anycast, key);
  const found = (entry: StoredEntry): FoundRow => {
    const key = kvKeyOf(bucket.anycast, entry.subject) ?? "";
    return { key, revision: entry.seq, row: isMarker(entry.headers) ? undefined : parseRow(key, entry.data) };
  };
  return {
    created: async () => (await streamState(nc, task)).created,
    queue: () => streamState(nc, task),
    request: async (seq) => {
      const entry = await leaderGet(nc, task, seq);
      return entry === undefined ? undefined : requestOf(entry);
    },
    deleteRequest: (seq) => writer.effect(() => deleteMessage(nc, task, seq)),
    row: async (key) => {
      const entry = await leaderLast(nc, stream, subject(key));
      return entry === undefined ? undefined : found(entry);
    },
    rowsAt: async (seq) => {
      const all: FoundRow[] = [];
      for (let from = 1; all.length < MAX_EPOCHS;) {
        const entry = await leaderNext(nc, stream, subject(`r.*.${seq}`), from);
        if (entry === undefined) break;
        all.push(found(entry));
        from = entry.seq + 1;
      }
      return all;
    },
    create: (key, row) => writer.create(stream, subject(key), encode(row)),
    cas: (key, row, revision) => writer.cas(stream, subject(key), encode(row), revision),
    remove: async (revision) => {
      await writer.effect(() => deleteMessage(nc, stream, revision));
    },
    rows: async function* rows() {
      for await (const row of allRows(nc, bucket.anycast, { filter: "r.>", limit: PAGE })) {
        yield* walked(row);
      }
    },
    out: () => deliveriesOut(nc, task),
    publish: ({ subject: to, id, data }) => publishOnce(nc, writer, dm, { subject: to, id, data }),
  };
}

/**
 * A notice's id may have been squatted: anybody can send himself a message under it. So an answer `duplicate`
 * is believed only if what is there is this very notice; else it goes out without the header (§8.1).
 */
async function publishOnce(nc: NatsConnection, writer: Writer, dm: string, notice: Notice): Promise<void> {
  const { subject, id, data } = notice;
  const { seq, duplicate } = await writer.append(dm, subject, data, { msgId: id });
  if (!duplicate) return;
  const there = await leaderGet(nc, dm, seq);
  if (there?.subject === subject && Buffer.compare(there.data, data) === 0) return;
  await writer.append(dm, subject, data);
}

/** A durable's name is its role's (`roleDurable`); no other stands on the queue. */
async function deliveriesOut(nc: NatsConnection, task: string): Promise<ReadonlyMap<string, number>> {
  const out = new Map<string, number>();
  const lead = roleDurable("x").slice(0, -1);
  for (let offset = 0; ;) {
    const answer = await apiRequest(nc, jsApi.consumerList(task), "list the roles' durables", { offset });
    const { consumers, total } = ConsumerPage.parse(answer);
    for (const { name, num_ack_pending: count } of consumers) {
      if (name.startsWith(lead)) out.set(name.slice(lead.length), count);
    }
    offset += consumers.length;
    if (consumers.length === 0 || offset >= total) return out;
  }
}

const ConsumerPage = z.looseObject({
  total: z.number(),
  consumers: z.array(z.looseObject({ name: z.string(), num_ack_pending: z.number() })).default([]),
});

function requestOf(entry: StoredEntry): StoredRequest {
  const read = readDelivery(entry.subject, entry.data, entry.headers?.keys() ?? []);
  const split = parseSubject(entry.subject);
  return { role: split?.rest ?? "", sender: split?.sender ?? "", id: read.ok ? read.delivery.message.id : undefined };
}

const encode = (row: AnycastRow): Uint8Array => new TextEncoder().encode(JSON.stringify(row));

function* walked({ key, seq: revision, kind, data }: BucketRow): Generator<WalkedRow> {
  if (kind === "marker") return;
  try {
    yield { key, revision, row: parseRow(key, data) };
  } catch {
    yield { key, revision, row: "unreadable" };
  }
}

/** A row of a newer version, or a damaged one, is never read as none. */
function parseRow(key: string, data: Uint8Array): AnycastRow {
  try {
    return AnycastRow.parse(JSON.parse(new TextDecoder().decode(data)));
  } catch (cause) {
    throw new CotalError(ErrorCode.Internal, `the record ${key} of a request can't be read`, {
      next: "run every delivery daemon of the space at one version; cotal doctor shows the store",
      cause,
    });
  }
}
