/**
 * What a fan-out writer decides by: read lists, memberships of its group, channel settings.
 *
 * Invariants
 * 1. A refresh leaves nothing out that the stores had when it began (`follow.ts`). The writer refreshes before
 *    each batch, and never writes a copy for a lifecycle whose list it does not hold.
 * 2. A list that covers less than before, or is gone, puts its lifecycle among those to be swept; so does one
 *    that is newer than what the group's marker says was swept.
 * 3. A row that does not parse authorises nothing.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { contains, containedIn, covers } from "../../../shared/protocol/base/channels.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import {
  ChannelConfig,
  ChannelDefaults,
  DEFAULTS_KEY,
  SPACE_KEY,
  type DeliveryClass,
  effectiveConfig,
} from "../../../shared/protocol/chat/channel-config.ts";
import { MemberRow, groupOf, memberOf, parseLifecycle } from "../../../shared/protocol/ledger/member-rows.ts";
import { AclRow } from "../../../shared/protocol/ledger/rows.ts";
import { type Cover, createCover } from "./cover.ts";
import { follow } from "./follow.ts";

export type ReadList = Pick<AclRow, "name" | "allowSubscribe" | "durables">;

export type View = {
  readonly refresh: () => Promise<void>;
  readonly cover: Cover;
  readonly list: (lifecycle: string) => ReadList | undefined;
  /** May this lifecycle read the channel now? */
  readonly reads: (lifecycle: string, channel: string) => boolean;
  /** Does one entry of its list hold the whole pattern, and has it an inbox of its own? */
  readonly mayJoin: (lifecycle: string, pattern: string) => boolean;
  readonly classOf: (channel: string) => DeliveryClass;
  /** Lifecycles, of every group, whose list carries this name (H64). */
  readonly named: (name: string) => ReadonlySet<string>;
  /** Lifecycles of this group whose stored copies must be looked through. */
  readonly toSweep: ReadonlySet<string>;
  readonly swept: (lifecycle: string) => void;
  /** Last sequence of the read lists, */
  readonly aclSeq: () => number;
  /** and of those of this group. */
  readonly listsSeq: () => number;
  /** Grows with every change: what was computed from an older one is void. */
  readonly version: () => number;
  /** A change of a membership that this process has made itself. */
  readonly changed: () => void;
};

export type ViewOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly group: number;
  readonly groups: number;
  /** Lists up to this sequence were swept for already. */
  readonly sweptAcl: number;
};

export function createView({ nc, space, group, groups, sweptAcl }: ViewOptions): View {
  const { bucket } = spaceNames(space);
  const cover = createCover();
  const lists = new Map<string, ReadList>();
  const names = new Map<string, Set<string>>();
  const configs = new Map<string, ChannelConfig>();
  const toSweep = new Set<string>();
  let defaults: ChannelDefaults | undefined;
  let version = 0;
  let listsSeq = 0;

  const rename = (lifecycle: string, before: string | undefined, after: string | undefined): void => {
    if (before === after) return;
    const old = before === undefined ? undefined : names.get(before);
    old?.delete(lifecycle);
    if (old?.size === 0 && before !== undefined) names.delete(before);
    if (after !== undefined) names.set(after, (names.get(after) ?? new Set()).add(lifecycle));
  };

  const acl = follow(nc, bucket.acl, ({ key, seq, value }) => {
    if (parseLifecycle(key) === undefined) return;
    version += 1;
    const before = lists.get(key);
    const after = AclRow.safeParse(value).data;
    if (after === undefined) lists.delete(key);
    else lists.set(key, { name: after.name, allowSubscribe: after.allowSubscribe, durables: after.durables });
    rename(key, before?.name.toLowerCase(), after?.name.toLowerCase());
    const known = before?.allowSubscribe;
    const isNarrower = known?.some((entry) => containedIn(after?.allowSubscribe ?? [], entry) === undefined);
    if (groupOf(key, groups) !== group) return;
    listsSeq = seq;
    if (isNarrower ?? seq > sweptAcl) toSweep.add(key);
  });
  const members = follow(nc, bucket.members, ({ key, seq, value }) => {
    const lifecycle = memberOf(key);
    if (lifecycle === undefined || groupOf(lifecycle.key, groups) !== group) return;
    // A page that was on its way while this process wrote the row itself brings an older one.
    if ((cover.get(key)?.revision ?? 0) >= seq) return;
    version += 1;
    const row = MemberRow.safeParse(value).data;
    if (row === undefined) cover.remove(key);
    else cover.set({ key, revision: seq, lifecycle, row });
  });
  const channels = follow(nc, bucket.channels, ({ key, value }) => {
    if (key === SPACE_KEY) return;
    version += 1;
    if (key === DEFAULTS_KEY) defaults = ChannelDefaults.safeParse(value).data;
    else {
      const config = ChannelConfig.safeParse(value).data;
      if (config === undefined) configs.delete(key);
      else configs.set(key, config);
    }
  });

  return {
    refresh: async () => {
      await Promise.all([acl.refresh(), members.refresh(), channels.refresh()]);
    },
    cover,
    list: (lifecycle) => lists.get(lifecycle),
    reads: (lifecycle, channel) => covers(lists.get(lifecycle)?.allowSubscribe ?? [], channel),
    mayJoin: (lifecycle, pattern) => {
      const list = lists.get(lifecycle);
      return list?.durables === true && list.allowSubscribe.some((entry) => contains(entry, pattern));
    },
    classOf: (channel) => effectiveConfig(configs.get(channel), defaults).deliveryClass,
    named: (name) => names.get(name) ?? NOBODY,
    toSweep,
    swept: (lifecycle) => void toSweep.delete(lifecycle),
    aclSeq: acl.seq,
    listsSeq: () => listsSeq,
    version: () => version,
    changed: () => {
      version += 1;
    },
  };
}

const NOBODY: ReadonlySet<string> = new Set();
