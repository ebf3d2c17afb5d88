/**
 * Finds messages of the caller's own by their id, newest first.
 *
 * Invariants
 * 1. Only what stands on the caller's own subjects is looked at: the broker has stamped its sender there (§3).
 * 2. A search reads so many messages, and says how far it got; what was not looked at is never called absent.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { streamState } from "../../../shared/broker/ensure.ts";
import { type StoredEntry, directPage, leaderGet, leaderNext } from "../../../shared/broker/reads.ts";
import { Header } from "../../../shared/protocol/base/headers.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import { type Principal, dotForm } from "../../../shared/protocol/base/principals.ts";
import { parseSubject, spaceSubjects } from "../../../shared/protocol/base/subjects.ts";
import { readDelivery } from "../../../shared/protocol/chat/message.ts";
import type { SentKind } from "../../../shared/protocol/endpoint/proof-shapes.ts";

export type Rail = {
  readonly stream: string;
  /** The caller's own subjects there. */
  readonly filter: string;
  /** Messages of one search. */
  readonly most: number;
  /** What of them lies within these sequences, oldest first. */
  readonly read: (window: Window) => AsyncIterable<StoredEntry>;
};

type Window = { readonly start: number; readonly end: number };

/** Direct messages and requests have no direct gets (W8.17): each costs a question. */
const MOST = { paged: 4000, single: 1000 } as const;
const MOST_BYTES = 32 * 1024 * 1024;
/** Sequences of the first window, which a budget always holds; one with little in it makes the next one wider. */
const SPAN = 64;
const GROWTH = 4;
const SPARSE = { messages: 250, bytes: 512 * 1024 } as const;
const PAGE = 256;
const PAGE_BYTES = 2 * 1024 * 1024;
/** An id may stand on several messages; more of them than this are not told. */
const MOST_FOUND = 8;

export function railsOf(nc: NatsConnection, space: string, me: Principal): Readonly<Record<SentKind, Rail>> {
  const names = spaceNames(space);
  const subjects = spaceSubjects(space);
  const paged = (stream: string, filter: string): Rail => ({
    stream,
    filter,
    most: MOST.paged,
    read: (window) => readPages(nc, stream, filter, window),
  });
  const single = (stream: string, filter: string): Rail => ({
    stream,
    filter,
    most: MOST.single,
    read: (window) => readEach(nc, stream, filter, window),
  });
  return {
    chat: paged(names.chat, subjects.chatGrant(me, ">")),
    dm: single(names.dm, subjects.instGrant(me)),
    ask: single(names.task, subjects.svcGrant(me)),
  };
}

export type Found = {
  readonly entries: readonly StoredEntry[];
  readonly looked: { readonly messages: number; readonly fromSeq: number; readonly whole: boolean };
};

/** Backwards from the newest, a window at a time. Stops at the caller's deadline too. */
export async function searchId(nc: NatsConnection, rail: Rail, id: string, signal: AbortSignal): Promise<Found> {
  const { firstSeq, lastSeq } = await streamState(nc, rail.stream);
  // A stream that never held anything begins at 0.
  const first = Math.max(firstSeq, 1);
  let found: StoredEntry[] = [];
  let [messages, bytes, end, span] = [0, 0, lastSeq, SPAN];
  const isSpent = (): boolean => messages >= rail.most || bytes >= MOST_BYTES || signal.aborted;
  while (end >= first && found.length < MOST_FOUND && !isSpent()) {
    const start = Math.max(first, end - span + 1);
    const before = { messages, bytes };
    const here: StoredEntry[] = [];
    for await (const entry of rail.read({ start, end })) {
      messages += 1;
      bytes += entry.data.length;
      if (hasId(entry, id)) here.push(entry);
      if (isSpent()) break;
    }
    found = [...found, ...here.toReversed()];
    // A window that was not read to its end was not looked through.
    if (isSpent()) break;
    end = start - 1;
    const isSparse = messages - before.messages <= SPARSE.messages && bytes - before.bytes <= SPARSE.bytes;
    if (isSparse) span *= GROWTH;
  }
  return { entries: found.slice(0, MOST_FOUND), looked: { messages, fromSeq: end + 1, whole: end < first } };
}

/** The message at its place, if it is the caller's and has the id. */
export async function ownAt(
  nc: NatsConnection,
  { stream }: Rail,
  me: Principal,
  { id, seq }: { readonly id: string; readonly seq: number },
): Promise<StoredEntry | undefined> {
  const entry = await leaderGet(nc, stream, seq);
  const isOwn = entry !== undefined && parseSubject(entry.subject)?.sender === dotForm(me);
  return isOwn && hasId(entry, id) ? entry : undefined;
}

/** A sender may name a message to the broker otherwise than in its text; either is its id. */
function hasId({ subject, headers, data }: StoredEntry, id: string): boolean {
  const named = headers?.get(Header.MsgId) ?? "";
  if (named === id) return true;
  const read = named === "" ? readDelivery(subject, data) : undefined;
  return read?.ok === true && read.delivery.message.id === id;
}

async function* readPages(
  nc: NatsConnection,
  stream: string,
  filter: string,
  { start, end }: Window,
): AsyncGenerator<StoredEntry> {
  for (let from: number | undefined = start; from !== undefined && from <= end;) {
    const range = { filter, fromSeq: from, upToSeq: end, batch: PAGE, maxBytes: PAGE_BYTES };
    const { messages, nextSeq } = await directPage(nc, stream, range);
    yield* messages;
    from = nextSeq;
  }
}

async function* readEach(
  nc: NatsConnection,
  stream: string,
  filter: string,
  { start, end }: Window,
): AsyncGenerator<StoredEntry> {
  for (let from = start; from <= end;) {
    const entry = await leaderNext(nc, stream, filter, from);
    if (entry === undefined || entry.seq > end) return;
    yield entry;
    from = entry.seq + 1;
  }
}
