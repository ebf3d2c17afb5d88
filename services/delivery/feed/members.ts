/**
 * The command `members` (§8): who hears a channel, as the membership feed has it, with the age of what it says.
 *
 * The age is the broker's: the time at which the last look was stored against the broker's own clock, so no host's
 * clock makes a dead feed look fresh.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { streamState } from "../../../shared/broker/ensure.ts";
import { parseJson } from "../../../shared/protocol/base/json.ts";
import { leaderLast } from "../../../shared/broker/reads.ts";
import { overlap } from "../../../shared/protocol/base/channels.ts";
import { kvKey } from "../../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../../shared/protocol/base/names.ts";
import { parseDotForm } from "../../../shared/protocol/base/principals.ts";
import { FEED_VIEW_KEY, FeedRow, FeedView } from "../../../shared/protocol/chat/membership-feed.ts";
import {
  type FeedAge,
  type FeedMember,
  MAX_SHOWN_PATTERNS,
  type MembersAnswer,
  type MembersArgs,
} from "../../../shared/protocol/endpoint/delivery-shapes.ts";
import { shownPage } from "./page.ts";

export async function readMembers(
  nc: NatsConnection,
  space: string,
  { channel, cursor }: Omit<MembersArgs, "of">,
): Promise<MembersAnswer> {
  const bucket = spaceNames(space).bucket.membership;
  const view = await ageOf(nc, bucket);
  const { shown, ...rest } = await shownPage(nc, bucket, { cursor }, ({ key, data }) => {
    if (key === FEED_VIEW_KEY) return undefined;
    const row = FeedRow.safeParse(parseJson(data)).data;
    return row === undefined || parseDotForm(key) === undefined ? "unreadable" : memberOf(key, row, channel);
  });
  return { view, members: shown, ...rest };
}

/** One with subscriptions that are not shown is told too: nobody knows that it does not hear this channel. */
function memberOf(
  id: string,
  { live, durable, omitted, observedAt }: FeedRow,
  channel: string,
): FeedMember | undefined {
  const of = (patterns: readonly string[]): string[] =>
    patterns.filter((pattern) => overlap(pattern, channel)).slice(0, MAX_SHOWN_PATTERNS);
  const member = { id, live: of(live), durable: of(durable), omitted, observedAt };
  return member.live.length + member.durable.length + omitted === 0 ? undefined : member;
}

async function ageOf(nc: NatsConnection, bucket: string): Promise<FeedAge> {
  const stream = bucketStream(bucket);
  const [entry, { atMs }] = await Promise.all([
    leaderLast(nc, stream, kvKey(bucket, FEED_VIEW_KEY)),
    streamState(nc, stream),
  ]);
  const view = entry === undefined ? undefined : FeedView.safeParse(parseJson(entry.data)).data;
  if (entry === undefined || view === undefined) return { state: "none" };
  return { state: "seen", ageMs: Math.max(0, atMs - entry.timeMs), gap: view.gap };
}
