/**
 * The other half of the command `members` (§4): whom a mention reaches in a channel, because the read list covers it.
 *
 * From the rows of the read lists, as they are now, and not from the feed: nobody has to be here to be reached. Who has
 * no inbox of its own is reached by nothing, and is not told.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { rowPage } from "../../../shared/broker/reads.ts";
import { overlap } from "../../../shared/protocol/base/channels.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import { dotForm } from "../../../shared/protocol/base/principals.ts";
import {
  MAX_SHOWN_PATTERNS,
  type MembersArgs,
  type ReachedAnswer,
  type ReachedMember,
} from "../../../shared/protocol/endpoint/delivery-shapes.ts";
import { parseLifecycle } from "../../../shared/protocol/ledger/member-rows.ts";
import { AclRow } from "../../../shared/protocol/ledger/rows.ts";
import { parseJson } from "../../../shared/broker/json-rows.ts";

const MAX_BYTES = 160_000;
const PAGE = 200;

export async function readReached(
  nc: NatsConnection,
  space: string,
  { channel, cursor }: Omit<MembersArgs, "of">,
): Promise<ReachedAnswer> {
  const { acl } = spaceNames(space).bucket;
  const page = await rowPage(nc, acl, { limit: PAGE, via: "leader", ...(cursor === undefined ? {} : { cursor }) });
  const reached: ReachedMember[] = [];
  let unreadable = 0;
  let bytes = 0;
  for (const { key, seq, kind, data } of page.rows) {
    const lifecycle = parseLifecycle(key);
    if (kind === "marker") continue;
    const row = AclRow.safeParse(parseJson(data)).data;
    if (row === undefined || lifecycle === undefined) {
      unreadable += 1;
      continue;
    }
    const by = row.allowSubscribe.filter((entry) => overlap(entry, channel)).slice(0, MAX_SHOWN_PATTERNS);
    if (!row.durables || by.length === 0) continue;
    const member = { id: dotForm(lifecycle.principal), name: row.name, by };
    bytes += JSON.stringify(member).length;
    if (bytes > MAX_BYTES && reached.length > 0) return { reached, unreadable, cursor: seq };
    reached.push(member);
  }
  return page.cursor === undefined ? { reached, unreadable } : { reached, unreadable, cursor: page.cursor };
}
