/** The roster over a plain command rail, read whole by the SDK's own reader. */
import { createEvents } from "../shared/client/events.ts";
import type { Reads } from "../shared/client/reads.ts";
import { readRoster } from "../shared/client/roster.ts";
import type { RosterEntry } from "../shared/protocol/chat/presence.ts";

export type Roster = {
  readonly entries: readonly RosterEntry[];
  /** Records that break §6's rules and are left out. */
  readonly unreadable: number;
};

export async function wholeRoster(reads: Reads): Promise<Roster> {
  let unreadable = 0;
  const events = createEvents((event) => {
    if (event.type === "rejected") unreadable += 1;
  });
  const entries = await readRoster(reads, events, Date.now);
  return { entries, unreadable };
}
