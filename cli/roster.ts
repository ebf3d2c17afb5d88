/** The whole roster by pages, each record read by §6's rules; a record that breaks them is counted. */
import type { Reads } from "../shared/client/reads.ts";
import { type RosterEntry, readPresence } from "../shared/protocol/chat/presence.ts";

export type Roster = { readonly entries: readonly RosterEntry[]; readonly unreadable: number };

const PAGE = 500;

export async function readRoster(reads: Reads, now: () => number): Promise<Roster> {
  const entries: RosterEntry[] = [];
  let unreadable = 0;
  let cursor: number | undefined;
  do {
    const page = await reads.roster({ limit: PAGE, ...(cursor === undefined ? {} : { cursor }) });
    const time = now();
    for (const { key, value } of page.records) {
      const read = readPresence(key, value, time);
      if (read.ok) entries.push(read.entry);
      else unreadable += 1;
    }
    cursor = page.cursor;
  } while (cursor !== undefined);
  return { entries, unreadable };
}
