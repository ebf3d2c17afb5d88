/** How many groups the members of a test's space fall into, set before anybody writes them. */
import type { NatsConnection } from "@nats-io/transport-node";
import { leaderLast } from "../../shared/broker/reads.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { SPACE_KEY } from "../../shared/protocol/chat/channel-config.ts";

export async function inGroups(store: NatsConnection, groups: number): Promise<void> {
  const { channels } = spaceNames("main").bucket;
  const subject = kvKey(channels, SPACE_KEY);
  const row = await leaderLast(store, bucketStream(channels), subject);
  const settings = JSON.parse(new TextDecoder().decode(row?.data)) as object;
  await store.request(subject, JSON.stringify({ ...settings, groups }));
}
