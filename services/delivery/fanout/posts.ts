/**
 * Posts of CHAT in their order, from the marker on: a page at a time, the next one read ahead.
 *
 * Invariants
 * 1. Nothing is skipped: what a page holds is followed by what comes after it. A sequence that is missing left
 *    CHAT before it was read, and is counted (`delivery.md` 7).
 * 2. At most two pages are in memory, however much waits.
 * 3. Past `upToSeq` nothing is read.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { type Page, type StoredEntry, directPage } from "../../../shared/broker/reads.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../../shared/protocol/base/subjects.ts";

const PAGE = 1000;
const PAGE_BYTES = 2 * 1024 * 1024;

export type Posts = {
  /** The posts that come next; none if there is nothing more. */
  readonly next: () => Promise<readonly StoredEntry[]>;
};

export function readPosts(nc: NatsConnection, space: string, after: number, upToSeq = Infinity): Posts {
  const stream = spaceNames(space).chat;
  const filter = spaceSubjects(space).chatAll;
  let fromSeq = after + 1;
  let ahead: Promise<Page> | undefined;
  const page = (): Promise<Page> =>
    directPage(nc, stream, { filter, fromSeq, upToSeq, batch: PAGE, maxBytes: PAGE_BYTES });
  return {
    next: async () => {
      const { messages, done } = await (ahead ?? page());
      ahead = undefined;
      const last = messages.at(-1);
      if (last !== undefined) fromSeq = last.seq + 1;
      if (!done && last !== undefined) {
        ahead = page();
        // Whoever asks next hears of it; until then nobody does.
        ahead.catch(() => undefined);
      }
      return messages;
    },
  };
}
