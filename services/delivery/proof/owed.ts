/**
 * Whom a post concerns (§4, §7): lifecycles whose membership holds it, and those whose name it mentions.
 *
 * Invariant: this decides nothing. Who gets a copy was decided when it was written; here is only whom to look at.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { parseJson } from "../../../shared/protocol/base/json.ts";
import { allRows } from "../../../shared/broker/reads.ts";
import { canonicalDigest, digestHex } from "../../../shared/protocol/base/canonical.ts";
import { covers } from "../../../shared/protocol/base/channels.ts";
import { CopyKind } from "../../../shared/protocol/base/headers.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import { type Lifecycle, MemberRow, memberOf } from "../../../shared/protocol/ledger/member-rows.ts";
import { readList } from "./pending.ts";

export type Owed = { readonly lifecycle: Lifecycle; readonly why: CopyKind };

/** `whole`: more rows than one answer looks at were there. */
export type OwedList = { readonly owed: readonly Owed[]; readonly whole: boolean };

const PAGE = 500;
/** Rows of memberships, and of read lists, that one answer looks at. */
const MOST_ROWS = 10_000;
/** A channel lies in as many families as it has segments, up to 2,000: for more than these all rows are looked at once. */
const MOST_FILTERS = 16;

export type Concern = {
  readonly channel: string;
  /** The post's sequence in CHAT. */
  readonly seq: number;
  readonly mentions: readonly string[];
};

/** In the order of their keys, so that a page goes on behind the last one. */
export async function owedOf(nc: NatsConnection, space: string, concern: Concern): Promise<OwedList> {
  const found = new Map<string, Owed>();
  const whole = (await addMembers(nc, space, concern, found)) && (await addMentioned(nc, space, concern, found));
  const owed = [...found.values()].toSorted((a, b) => (a.lifecycle.key < b.lifecycle.key ? -1 : 1));
  return { owed, whole };
}

async function addMembers(
  nc: NatsConnection,
  space: string,
  { channel, seq }: Concern,
  found: Map<string, Owed>,
): Promise<boolean> {
  const { members } = spaceNames(space).bucket;
  let rows = 0;
  for (const filter of filtersOf(channel)) {
    for await (const { key, kind, data } of allRows(nc, members, { filter, limit: PAGE })) {
      rows += 1;
      if (rows > MOST_ROWS) return false;
      const lifecycle = kind === "marker" ? undefined : memberOf(key);
      if (lifecycle === undefined || !mayHold(data, { channel, seq })) continue;
      found.set(lifecycle.key, { lifecycle, why: CopyKind.Durable });
    }
  }
  return true;
}

/** A row's key ends in the digest of its pattern. */
function filtersOf(channel: string): string[] {
  if (channel.split(".", MOST_FILTERS + 1).length > MOST_FILTERS) return [">"];
  return [...patternsOf(channel)].map((pattern) => `*.*.*.${digestHex(canonicalDigest(pattern))}`);
}

/** The channel, and each family that it lies in. */
function* patternsOf(channel: string): Generator<string> {
  yield channel;
  for (let dot = channel.indexOf("."); dot !== -1; dot = channel.indexOf(".", dot + 1)) {
    yield `${channel.slice(0, dot)}.>`;
  }
}

/** A join that is under way will hold it as soon as it is done. */
function mayHold(data: Uint8Array, { channel, seq }: Pick<Concern, "channel" | "seq">): boolean {
  const row = MemberRow.safeParse(parseJson(data)).data;
  if (row === undefined || !covers([row.pattern], channel)) return false;
  return seq > row.join && (row.state !== "left" || seq <= row.leave);
}

async function addMentioned(
  nc: NatsConnection,
  space: string,
  { channel, mentions }: Concern,
  found: Map<string, Owed>,
): Promise<boolean> {
  if (mentions.length === 0) return true;
  const names = new Set(mentions.map((name) => name.toLowerCase()));
  let rows = 0;
  for await (const { key, kind, data } of allRows(nc, spaceNames(space).bucket.acl, { limit: PAGE })) {
    rows += 1;
    if (rows > MOST_ROWS) return false;
    const [listed] = kind === "marker" ? [] : readList(key, data);
    if (listed === undefined || found.has(key) || !names.has(listed.row.name.toLowerCase())) continue;
    if (covers(listed.row.allowSubscribe, channel)) {
      found.set(key, { lifecycle: listed.lifecycle, why: CopyKind.Mention });
    }
  }
  return true;
}
