/**
 * Whom a post on a live channel mentions (§4, decisions H52, H64): names as the ledger has them, presence only to
 * tell which of several is live.
 *
 * Invariants
 * 1. A name has one target or none: two that are live, or none live and several registered, give no copy.
 * 2. A post has at most `MAX_MENTIONS` of them, however many it names.
 * 3. Nobody is a target whose own read list does not cover the channel.
 * 4. Who is live is asked once for each bearer and page of posts, after the page was read: a flood of posts that name
 *    many bearers would else cost a read each, while everybody's copies wait behind it.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { isMarker, leaderLast } from "../../../shared/broker/reads.ts";
import { parseJson } from "../../../shared/protocol/base/json.ts";
import { kvKey } from "../../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../../shared/protocol/base/names.ts";
import { dotForm } from "../../../shared/protocol/base/principals.ts";
import { readPresence } from "../../../shared/protocol/chat/presence.ts";
import { groupOf, parseLifecycle } from "../../../shared/protocol/ledger/member-rows.ts";
import { type Post, type Target, inOrder, targetOf } from "./copies.ts";
import type { View } from "./view.ts";

export const MAX_MENTIONS = 16;
/** Before every record: none has aged. */
const AT_NO_TIME = 0;
/** Bearers of one name that are looked at; more of them than this are not told apart. */
const MAX_BEARERS = 16;

/** Who is live, as of the page of posts that is being written. */
export type PresenceLook = {
  readonly isLive: (lifecycle: string) => Promise<boolean>;
  /** Another page was read: what was seen before it counts no more. */
  readonly forget: () => void;
};

export function lookAtPresence(nc: NatsConnection, space: string): PresenceLook {
  const seen = new Map<string, Promise<boolean>>();
  return {
    isLive: (lifecycle) => {
      const look = seen.get(lifecycle) ?? isLive(nc, space, lifecycle);
      seen.set(lifecycle, look);
      return look;
    },
    forget: () => seen.clear(),
  };
}

export type MentionParts = {
  readonly space: string;
  readonly group: number;
  readonly groups: number;
  readonly view: View;
  readonly presence: PresenceLook;
  /** A name that gave no copy. */
  readonly onUnresolved: () => void;
};

/** Targets of this group, in order. */
export async function mentioned(parts: MentionParts, { message, channel }: Post): Promise<Target[]> {
  const { space, group, groups, view, onUnresolved } = parts;
  const names = [...new Set((message.mentions ?? []).map((name) => name.toLowerCase()))].slice(0, MAX_MENTIONS);
  const resolved = await Promise.all(names.map((name) => bearerOf(parts, name)));
  const found = new Set<string>();
  for (const lifecycle of resolved) {
    if (lifecycle === undefined) onUnresolved();
    else if (groupOf(lifecycle, groups) === group && view.mayJoin(lifecycle, channel)) found.add(lifecycle);
  }
  return inOrder([...found].map((lifecycle) => targetOf(space, lifecycle)));
}

/** The one lifecycle that a name means now. */
async function bearerOf({ presence, view }: MentionParts, name: string): Promise<string | undefined> {
  const bearers = [...view.named(name)];
  if (bearers.length <= 1) return bearers[0];
  if (bearers.length > MAX_BEARERS) return undefined;
  const live = await Promise.all(bearers.map(presence.isLive));
  const [only, ...more] = bearers.filter((_, at) => live[at] === true);
  return more.length === 0 ? only : undefined;
}

/**
 * A presence record stands in its bucket as long as it is renewed, by the broker's clock (§6), so its age is not asked
 * for here; one that says `offline`, or can't be read, is nobody's who is here.
 */
async function isLive(nc: NatsConnection, space: string, lifecycle: string): Promise<boolean> {
  const parsed = parseLifecycle(lifecycle);
  if (parsed === undefined) return false;
  const { presence } = spaceNames(space).bucket;
  const key = dotForm(parsed.principal);
  const entry = await leaderLast(nc, bucketStream(presence), kvKey(presence, key));
  if (entry === undefined || isMarker(entry.headers)) return false;
  const read = readPresence(key, parseJson(entry.data), AT_NO_TIME);
  return read.ok && read.entry.live;
}
