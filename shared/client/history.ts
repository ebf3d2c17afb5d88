/**
 * Channel history, read page by page through the mediator (§7, §8).
 *
 * Invariants: every stored message passes the same checks as a live one; what fails them is counted
 * and skipped; what a copy is stored under must be the channel that was asked for.
 */
import { DeliveryKind } from "../protocol/base/subjects.ts";
import { type Delivery, RejectReason, readDelivery } from "../protocol/chat/message.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Events, Rail } from "./events.ts";
import type { Reads } from "./reads.ts";

export type HistoryRange = {
  readonly fromSeq?: number;
  /** Epoch ms. */
  readonly sinceMs?: number;
  readonly upToSeq?: number;
  /** Stop after so many. */
  readonly limit?: number;
};

export type StoredDelivery = { readonly delivery: Delivery; readonly seq: number; readonly storedAt: number };

const PAGE = 500;
const encoder = new TextEncoder();

/** The messages of a range, oldest first. */
export async function* readHistory(
  reads: Reads,
  events: Events,
  space: string,
  channel: string,
  range: HistoryRange,
): AsyncGenerator<StoredDelivery, void, undefined> {
  let left = range.limit ?? Number.POSITIVE_INFINITY;
  let { fromSeq, sinceMs } = range;
  while (left > 0) {
    const page = await reads.history({
      channel,
      limit: Math.min(PAGE, left),
      ...(fromSeq === undefined ? {} : { fromSeq }),
      ...(sinceMs === undefined ? {} : { sinceMs }),
      ...(range.upToSeq === undefined ? {} : { upToSeq: range.upToSeq }),
    });
    for (const stored of page.messages) {
      if (range.upToSeq !== undefined && stored.seq > range.upToSeq) continue;
      const delivery = check(events, space, channel, stored);
      if (delivery === undefined) continue;
      yield { delivery, seq: stored.seq, storedAt: stored.storedAt };
      left -= 1;
      if (left <= 0) return;
    }
    if (page.nextSeq === undefined) return;
    if (page.nextSeq <= (fromSeq ?? -1)) throw stuck(channel);
    fromSeq = page.nextSeq;
    sinceMs = undefined;
  }
}

/** The last messages of a channel, oldest first: read backwards until there are enough. */
export async function lastOf(
  reads: Reads,
  events: Events,
  space: string,
  channel: string,
  count: number,
): Promise<StoredDelivery[]> {
  let found: StoredDelivery[] = [];
  let upToSeq: number | undefined;
  while (found.length < count) {
    const last = Math.min(PAGE, count - found.length);
    const page = await reads.history({ channel, last, ...(upToSeq === undefined ? {} : { upToSeq }) });
    const older = page.messages.flatMap((stored) => {
      const delivery = check(events, space, channel, stored);
      return delivery === undefined ? [] : [{ delivery, seq: stored.seq, storedAt: stored.storedAt }];
    });
    found = [...older, ...found];
    const next: number | undefined = page.olderUpToSeq ?? olderThan(page, last);
    if (next === undefined || next < 1) break;
    if (upToSeq !== undefined && next >= upToSeq) throw stuck(channel);
    upToSeq = next;
  }
  return found;
}

/** A page that is not full ends at the stream's beginning; what was skipped in it may leave more. */
function olderThan(page: Awaited<ReturnType<Reads["history"]>>, asked: number): number | undefined {
  const first = page.messages[0]?.seq;
  return first === undefined || page.messages.length + (page.unreadable ?? 0) < asked ? undefined : first - 1;
}

function check(
  events: Events,
  space: string,
  channel: string,
  stored: { readonly subject: string; readonly data: string; readonly headers?: readonly string[] | undefined },
): Delivery | undefined {
  const read = readDelivery(stored.subject, encoder.encode(stored.data), stored.headers ?? []);
  if (!read.ok) {
    events.rejected(Rail.History, read.reason, read.detail);
    return undefined;
  }
  const { subject } = read.delivery;
  if (subject.space === space && subject.kind === DeliveryKind.Chat && subject.rest === channel) return read.delivery;
  events.rejected(Rail.History, RejectReason.MalformedSubject, "stored under another channel");
  return undefined;
}

function stuck(channel: string): CotalError {
  return new CotalError(ErrorCode.Internal, `the history of ${channel.slice(0, 80)} does not advance`, {
    outcome: Outcome.Executed,
    next: "check that the daemons and this client are of one version",
  });
}
