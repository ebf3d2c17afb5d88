/**
 * The other half of the command `members` (§4): whom a mention reaches in a channel, because the read list covers it.
 *
 * From the rows of the read lists, as they are now, and not from the feed: nobody has to be here to be reached. Who has
 * no inbox of its own is reached by nothing, and is not told.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { parseJson } from "../../../shared/protocol/base/json.ts";
import { overlap } from "../../../shared/protocol/base/channels.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import { dotForm } from "../../../shared/protocol/base/principals.ts";
import {
  MAX_SHOWN_PATTERNS,
  type MembersArgs,
  type ReachedAnswer,
} from "../../../shared/protocol/endpoint/delivery-shapes.ts";
import { parseLifecycle } from "../../../shared/protocol/ledger/member-rows.ts";
import { AclRow } from "../../../shared/protocol/ledger/rows.ts";
import { shownPage } from "./page.ts";

export async function readReached(
  nc: NatsConnection,
  space: string,
  { channel, cursor }: Omit<MembersArgs, "of">,
): Promise<ReachedAnswer> {
  const { acl } = spaceNames(space).bucket;
  const { shown, ...rest } = await shownPage(nc, acl, { cursor, via: "leader" }, ({ key, data }) => {
    const lifecycle = parseLifecycle(key);
    const row = AclRow.safeParse(parseJson(data)).data;
    if (row === undefined || lifecycle === undefined) return "unreadable";
    const by = row.allowSubscribe.filter((entry) => overlap(entry, channel)).slice(0, MAX_SHOWN_PATTERNS);
    return row.durables && by.length > 0 ? { id: dotForm(lifecycle.principal), name: row.name, by } : undefined;
  });
  return { reached: shown, ...rest };
}
