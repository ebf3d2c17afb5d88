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
import { parseJson } from "../../../shared/protocol/base/json.ts";
import { apiRequest } from "../../../shared/broker/api.ts";
import { deleteMessage } from "../../../shared/broker/delete.ts";
import { streamState } from "../../../shared/broker/ensure.ts";
import { isCode } from "../../../shared/broker/errors.ts";
import { type StoredEntry, leaderGet, leaderLast, leaderNext } from "../../../shared/broker/leader.ts";
import { type BucketRow, allRows } from "../../../shared/broker/rows.ts";
import { isMarker } from "../../../shared/broker/stored-headers.ts";
import { type Writer, createWriter } from "../../../shared/broker/write.ts";
import { jsApi, kvKey, kvKeyOf } from "../../../shared/protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { Header } from "../../../shared/protocol/base/headers.ts";
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
  /** Whatever lies on its subject at or below this sequence is not it. */
  readonly after: number;
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
  /** Sequence of the last message on a subject of notices; 0 for none. */
  readonly lastNotice: (subject: string) => Promise<number>;
  /** Stores a notice once, however often and however late it is tried. */
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
    lastNotice: async (to) => (await leaderLast(nc, dm, to))?.seq ?? 0,
    publish: (notice) => publishOnce(nc, writer, dm, notice),
  };
}

const MAX_ROUNDS = 16;

/**
 * On its subject lie this daemon's messages to one receiver and nothing else. It is looked for behind the fence that
 * its row has kept, and goes out over the last one that was seen: who comes late, or a second time, stores nothing.
 *
 * A notice's id may have been squatted: anybody can send himself a message under it. So the answer `duplicate` is no
 * more than a reason to look again, and to send it without the header (§8.1).
 */
async function publishOnce(nc: NatsConnection, writer: Writer, dm: string, notice: Notice): Promise<void> {
  const { subject, id, data } = notice;
  let seen = notice.after;
  let isSquatted = false;
  for (let round = 1; ; round += 1) {
    for (let entry = await leaderNext(nc, dm, subject, seen + 1); entry !== undefined;) {
      if (Buffer.compare(entry.data, data) === 0) return;
      seen = entry.seq;
      entry = await leaderNext(nc, dm, subject, seen + 1);
    }
    // What was last may have left the stream; then the broker counts from what is there now.
    const last = (await leaderLast(nc, dm, subject))?.seq ?? 0;
    if (last > seen) continue;
    const expected = { [Header.ExpectedLastSubjectSequence]: String(last) };
    try {
      const options = isSquatted ? { headers: expected } : { headers: expected, msgId: id };
      if (!(await writer.append(dm, subject, data, options)).duplicate) return;
      isSquatted = true;
    } catch (error) {
      if (!isCode(error, ErrorCode.Conflict)) throw error;
    }
    if (round >= MAX_ROUNDS) throw new CotalError(ErrorCode.Unavailable, "its subject moves faster than it is read");
  }
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
    return AnycastRow.parse(parseJson(data));
  } catch (cause) {
    throw new CotalError(ErrorCode.Internal, `the record ${key} of a request can't be read`, {
      next: "run every delivery daemon of the space at one version; cotal doctor shows the store",
      cause,
    });
  }
}
