/**
 * The membership feed (§8): who hears each channel, for people to look at.
 *
 * Invariants
 * 1. It is display only. Nothing that delivers, authorises or decides reads it: what stands here is what the broker
 *    and the membership rows were seen to say, and neither is asked again.
 * 2. A value fits into the bucket whatever somebody subscribed to: what does not fit is left out and counted.
 * 3. `live` keeps patterns as they were subscribed, `durable` a family as it was recorded: who reads expands them.
 */
import { z } from "zod";
import { isChannelPattern } from "../base/channels.ts";
import { spaceSubjects } from "../base/subjects.ts";

/** The largest value of the bucket, headers included (§8). */
export const MAX_FEED_BYTES = 262_144;

/** Room for the headers of a write. */
const HEADER_BYTES = 1024;

const patterns = z.array(z.string());

/** The value of one principal; its key is the dot-form (`card.id`). */
export const FeedRow = z.looseObject({
  live: patterns,
  durable: patterns,
  /** When it was first seen to be so, in epoch milliseconds; `FeedView` says until when. */
  observedAt: z.number(),
  /** Subscriptions and memberships that are not among these, because they are too many. */
  omitted: z.int().nonnegative().default(0),
});
export type FeedRow = z.infer<typeof FeedRow>;

/** The key of the row that says how old the whole view is. No principal is spelled so. */
export const FEED_VIEW_KEY = "=view";

/** Written at every look. */
export const FeedView = z.looseObject({
  v: z.literal(1),
  /** Wall clock of the daemon, for people: an age is measured by the broker's own times. */
  at: z.number(),
  /** What the look does not cover; null for a complete one. */
  gap: z.string().nullable(),
  /** The instance that looked. */
  by: z.string(),
});
export type FeedView = z.infer<typeof FeedView>;

export type FeedEntry = Pick<FeedRow, "live" | "durable" | "omitted">;

/**
 * One entry in its one spelling: each pattern once, in order, durable ones first to stay where not all fit. Two that
 * say the same are equal as text (`JSON.stringify`).
 */
export function feedEntry(live: Iterable<string>, durable: Iterable<string>, omitted: number): FeedEntry {
  const entry = { live: [...new Set(live)].toSorted(), durable: [...new Set(durable)].toSorted(), omitted };
  if (sizeOf(entry) <= 0) return entry;
  const kept = { live: [] as string[], durable: [] as string[], omitted: entry.omitted };
  // The number may grow to as many digits as there are patterns.
  let room = -sizeOf({ ...kept, omitted: Number.MAX_SAFE_INTEGER });
  for (const side of ["durable", "live"] as const) {
    for (const pattern of entry[side]) {
      room -= byteLength(pattern) + 3;
      if (room >= 0) kept[side].push(pattern);
      else kept.omitted += 1;
    }
  }
  return kept;
}

export const feedRow = (entry: FeedEntry, observedAt: number): FeedRow => {
  const { live, durable, omitted } = entry;
  return { live, durable, observedAt, omitted };
};

/** By how many bytes a row is too large; at most 0 for one that fits. */
const sizeOf = (entry: FeedEntry): number =>
  byteLength(JSON.stringify(feedRow(entry, Number.MAX_SAFE_INTEGER))) - (MAX_FEED_BYTES - HEADER_BYTES);

const byteLength = (text: string): number => new TextEncoder().encode(text).byteLength;

/**
 * What of the space's channels a subscription hears: a channel or pattern, `>` where it hears all; `undefined` for
 * one that hears none. Subjects are whatever a client has sent: what is no lawful pattern matches no channel.
 */
export function channelsHeard(space: string): (subject: string) => string | undefined {
  const lead = spaceSubjects(space).chatRead(">").slice(0, -1);
  const fixed = lead.split(".").slice(0, -1);
  return (subject) => {
    const rest = subject.startsWith(lead) ? subject.slice(lead.length) : behind(fixed, subject.split("."));
    return rest !== undefined && isChannelPattern(rest) ? rest : undefined;
  };
}

/** What stands behind the tokens before the channel: those of the sender may be anything. */
function behind(fixed: readonly string[], tokens: readonly string[]): string | undefined {
  for (const [at, wanted] of fixed.entries()) {
    const token = tokens[at];
    if (token === ">") return ">";
    if (token === undefined || (wanted !== "*" && token !== "*" && token !== wanted)) return undefined;
  }
  return tokens.slice(fixed.length).join(".");
}
