/**
 * Mediated history (§7, §8; decision H1): ranges of one channel within the caller's ACL, and direct
 * messages for an admin.
 *
 * Invariants
 * 1. The ACL is read before the stream is, at every page.
 * 2. A page is bounded in messages and in bytes; what did not fit is named, never dropped in silence.
 * 3. What is answered is what is stored: subject, sequence, time, bytes. The reader judges it.
 * 4. What one call reads is bounded by what its answer holds, not by what lies in the stream.
 */
import type { z } from "zod";
import { streamState } from "../../../shared/broker/ensure.ts";
import { type StoredEntry, directPage, leaderNext } from "../../../shared/broker/reads.ts";
import type { Caller } from "../../../shared/protocol/endpoint/grammar.ts";
import type { DmHistoryArgs, HistoryAnswer, HistoryArgs } from "../../../shared/protocol/endpoint/reads-shapes.ts";
import type { Mediator } from "./mediator.ts";
import { answerRoom } from "./room.ts";

type Answer = z.infer<typeof HistoryAnswer>;
type Stored = Answer["messages"][number];

const DEFAULT_LIMIT = 200;
/** Bytes of one answer's messages as JSON; under the broker's smallest lawful payload limit. */
const MAX_BYTES = 240_000;
/** How much wider each step backwards is than the one before, or narrower after one that was too wide. */
const GROWTH = 4;
const FIRST_SPAN = 256;
/** Pages that one backward read may ask for; where it stopped is told, and the reader goes on from there. */
const MAX_STEPS = 32;
/** The least and the most messages that one step reads. */
const STEP = { least: 64, most: 1000 };

/** A page of a channel, forwards, or its last messages. */
export async function history(mediator: Mediator, caller: Caller, args: z.infer<typeof HistoryArgs>): Promise<Answer> {
  const acl = await mediator.acl(caller);
  acl.demand(args.channel);
  return args.last === undefined ? forwards(mediator, args) : lastOf(mediator, args, args.last);
}

async function forwards(mediator: Mediator, args: z.infer<typeof HistoryArgs>): Promise<Answer> {
  const batch = args.limit ?? DEFAULT_LIMIT;
  const page = await directPage(mediator.store, mediator.names.chat, {
    filter: mediator.subjects.chatRead(args.channel),
    batch,
    ...(args.fromSeq === undefined ? {} : { fromSeq: args.fromSeq }),
    ...(args.sinceMs === undefined || args.fromSeq !== undefined ? {} : { startTimeMs: args.sinceMs }),
    ...(args.upToSeq === undefined ? {} : { upToSeq: args.upToSeq }),
    maxBytes: MAX_BYTES,
  });
  const packed = pack(mediator, page.messages);
  const nextSeq = packed.stoppedAt ?? page.nextSeq;
  return { ...packed.answer, ...(nextSeq === undefined ? {} : { nextSeq }) };
}

/**
 * Steps backwards through windows that grow while they hold little and shrink where they hold more
 * than a page, until there is enough for an answer or the stream begins.
 */
async function lastOf(mediator: Mediator, args: z.infer<typeof HistoryArgs>, count: number): Promise<Answer> {
  const { chat } = mediator.names;
  const { firstSeq, lastSeq } = await streamState(mediator.store, chat);
  const first = Math.max(firstSeq, args.fromSeq ?? 0, 1);
  const filter = mediator.subjects.chatRead(args.channel);
  let end = Math.min(args.upToSeq ?? lastSeq, lastSeq);
  let span = Math.max(FIRST_SPAN, count * GROWTH);
  /** A window from here to `end` holds more than a page. */
  let dense = Number.POSITIVE_INFINITY;
  let found: readonly StoredEntry[] = [];
  for (let step = 1; step <= MAX_STEPS && end >= first && !isEnough(found, count); step += 1) {
    const start = Math.max(first, end - span + 1);
    const batch = Math.min(STEP.most, Math.max(STEP.least, (count - found.length) * GROWTH));
    const range = { filter, fromSeq: start, upToSeq: end, batch, maxBytes: MAX_BYTES };
    const { messages, nextSeq } = await directPage(mediator.store, chat, range);
    if (nextSeq !== undefined && nextSeq <= end) {
      // A page begins at the old end of a window: of one that holds more it is of no use.
      dense = start;
      span = Math.max(1, Math.floor((end - start + 1) / GROWTH));
      continue;
    }
    found = [...messages, ...found].slice(-count);
    end = start - 1;
    const isSparse = messages.length * GROWTH <= batch && bytesOf(messages) * GROWTH <= MAX_BYTES;
    if (isSparse) span *= GROWTH;
    if (dense <= end) span = Math.max(1, Math.min(span, Math.ceil((end - dense) / 2)));
  }
  const packed = packNewest(mediator, found);
  const isWhole = packed.olderUpToSeq !== undefined || found.length === count || end < first;
  return isWhole ? packed : { ...packed, olderUpToSeq: end };
}

function isEnough(found: readonly StoredEntry[], count: number): boolean {
  return found.length >= count || bytesOf(found) > MAX_BYTES;
}

const bytesOf = (entries: readonly StoredEntry[]): number => entries.reduce((sum, { data }) => sum + data.length, 0);

/** Every direct message of the space, for an admin: leader reads, one after the other (DM has no direct get). */
export async function dmHistory(mediator: Mediator, args: z.infer<typeof DmHistoryArgs>): Promise<Answer> {
  const limit = args.limit ?? 50;
  const entries: StoredEntry[] = [];
  let from: number | undefined = Math.max(1, args.fromSeq ?? 1);
  while (from !== undefined && !isEnough(entries, limit)) {
    const entry: StoredEntry | undefined = await leaderNext(
      mediator.store,
      mediator.names.dm,
      mediator.subjects.instAll,
      from,
    );
    if (entry !== undefined) entries.push(entry);
    from = entry === undefined ? undefined : entry.seq + 1;
  }
  const packed = pack(mediator, entries);
  const nextSeq = packed.stoppedAt ?? from;
  return { ...packed.answer, ...(nextSeq === undefined ? {} : { nextSeq }) };
}

/** As many as fit from the front; `stoppedAt` is the first that did not. */
function pack(mediator: Mediator, entries: readonly StoredEntry[]): { answer: Answer; stoppedAt: number | undefined } {
  const room = answerRoom(mediator, MAX_BYTES * 2);
  const messages: Stored[] = [];
  let unreadable = 0;
  let bytes = 0;
  for (const entry of entries) {
    const stored = storedMessage(entry);
    const size = stored === undefined ? 0 : sizeOf(stored);
    if (stored === undefined || size > room) {
      unreadable += 1;
    } else if (bytes > 0 && bytes + size > MAX_BYTES) {
      return { answer: answerOf(messages, unreadable), stoppedAt: entry.seq };
    } else {
      bytes += size;
      messages.push(stored);
    }
  }
  return { answer: answerOf(messages, unreadable), stoppedAt: undefined };
}

/** As many as fit from the back; `olderThan` says where the rest of what was asked for lies. */
function packNewest(mediator: Mediator, entries: readonly StoredEntry[]): Answer {
  const { answer, stoppedAt } = pack(mediator, [...entries].reverse());
  const messages = [...answer.messages].reverse();
  return { ...answer, messages, ...(stoppedAt === undefined ? {} : { olderUpToSeq: stoppedAt }) };
}

function answerOf(messages: Stored[], unreadable: number): Answer {
  return { messages, ...(unreadable === 0 ? {} : { unreadable }) };
}

function sizeOf(stored: Stored): number {
  return Buffer.byteLength(JSON.stringify(stored));
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

function storedMessage(entry: StoredEntry): Stored | undefined {
  try {
    const headers = [...(entry.headers?.keys() ?? [])];
    return {
      seq: entry.seq,
      storedAt: entry.timeMs,
      subject: entry.subject,
      data: utf8.decode(entry.data),
      ...(headers.length === 0 ? {} : { headers }),
    };
  } catch {
    return undefined;
  }
}
