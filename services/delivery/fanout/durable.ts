/** The commands of durable membership (§7): a caller changes and lists its own, and nobody else's. */
import type { NatsConnection } from "@nats-io/transport-node";
import { parseJson } from "../../../shared/protocol/base/json.ts";
import { rowPage } from "../../../shared/broker/reads.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import type { DurableListAnswer } from "../../../shared/protocol/endpoint/delivery-shapes.ts";
import type { Caller } from "../../../shared/protocol/endpoint/grammar.ts";
import { MemberRow } from "../../../shared/protocol/ledger/member-rows.ts";
import { ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import { membershipOf } from "./membership-steps.ts";

/** A channel has at most 4096 characters, and an answer is one message. */
const PAGE = 48;

export async function listMemberships(
  nc: NatsConnection,
  space: string,
  { principal, uid }: Caller,
  cursor: number | undefined,
): Promise<DurableListAnswer> {
  const page = await rowPage(nc, spaceNames(space).bucket.members, {
    filter: `${ledgerKey.acl(principal, uid)}.*`,
    limit: PAGE,
    via: "leader",
    ...(cursor === undefined ? {} : { cursor }),
  });
  const memberships = page.rows.flatMap(({ data }) => {
    const row = MemberRow.safeParse(parseJson(data)).data;
    return row === undefined ? [] : [membershipOf({ row })];
  });
  return page.cursor === undefined ? { memberships } : { memberships, cursor: page.cursor };
}
