/**
 * The durable half of the membership feed (§8): who has which membership, as its rows are now.
 *
 * Whose lifecycle has no read list any more, or one without an inbox, is no member, whatever rows it left: no copy is
 * written for it.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { overlap } from "../../../shared/protocol/base/channels.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import { dotForm } from "../../../shared/protocol/base/principals.ts";
import { MemberRow, memberOf, parseLifecycle } from "../../../shared/protocol/ledger/member-rows.ts";
import { AclRow } from "../../../shared/protocol/ledger/rows.ts";
import { follow } from "../fanout/follow.ts";

export type DurableView = {
  readonly refresh: () => Promise<void>;
  /** Each membership that stands, with whose it is. */
  readonly all: () => Iterable<{ readonly id: string; readonly pattern: string }>;
};

type Standing = { readonly id: string; readonly lifecycle: string; readonly pattern: string };

export function followDurable(nc: NatsConnection, space: string): DurableView {
  const { bucket } = spaceNames(space);
  const lists = new Map<string, readonly string[]>();
  const standing = new Map<string, Standing>();
  const acl = follow(nc, bucket.acl, ({ key, value }) => {
    if (parseLifecycle(key) === undefined) return;
    const row = AclRow.safeParse(value).data;
    if (row?.durables === true) lists.set(key, row.allowSubscribe);
    else lists.delete(key);
  });
  const members = follow(nc, bucket.members, ({ key, value }) => {
    const lifecycle = memberOf(key);
    const row = MemberRow.safeParse(value).data;
    if (lifecycle === undefined || row === undefined || !isMember(row)) standing.delete(key);
    else standing.set(key, { id: dotForm(lifecycle.principal), lifecycle: lifecycle.key, pattern: row.pattern });
  });
  return {
    refresh: async () => {
      await Promise.all([acl.refresh(), members.refresh()]);
    },
    *all() {
      for (const { id, lifecycle, pattern } of standing.values()) {
        if (lists.get(lifecycle)?.some((entry) => overlap(entry, pattern)) === true) yield { id, pattern };
      }
    },
  };
}

/** Nobody is one before `joined`, and a leave has no cursor before `left`. */
const isMember = ({ state }: MemberRow): boolean => state === "joined" || state === "leaving";
