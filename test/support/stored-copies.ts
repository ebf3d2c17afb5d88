/** What stands in a space's DLV and members bucket, counted from the stream itself and not from any log. */
import type { NatsConnection } from "@nats-io/transport-node";
import { leaderLast, leaderNext, rowPage } from "../../shared/broker/reads.ts";
import { Header } from "../../shared/protocol/base/headers.ts";
import { jsApi } from "../../shared/protocol/base/broker-subjects.ts";
import { dlvDurable, spaceNames } from "../../shared/protocol/base/names.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { MarkerRow, MemberRow } from "../../shared/protocol/ledger/member-rows.ts";
import { ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import type { Caller } from "../../shared/protocol/endpoint/grammar.ts";

export type StoredCopy = {
  readonly seq: number;
  readonly source: number;
  readonly channel: string;
  readonly kind: string;
  readonly limit: string;
  readonly text: string;
  readonly headers: readonly string[];
};

/** Copies of one member, oldest first; those at or above a sequence of DLV. */
export async function copiesOf(
  store: NatsConnection,
  { principal, uid }: Caller,
  space = "main",
  from = 1,
): Promise<StoredCopy[]> {
  const { dlv } = spaceNames(space);
  const found: StoredCopy[] = [];
  for (let seq = from; ;) {
    const entry = await leaderNext(store, dlv, spaceSubjects(space).dlv(principal, uid), seq);
    if (entry === undefined) return found;
    seq = entry.seq + 1;
    const header = (name: string): string => entry.headers?.get(name) ?? "";
    const { parts } = JSON.parse(new TextDecoder().decode(entry.data)) as { parts?: { text?: string }[] };
    found.push({
      seq: entry.seq,
      source: Number(header(Header.SourceSequence)),
      channel: header(Header.SourceSubject).split(".").slice(5).join("."),
      kind: header(Header.CopyKind),
      limit: header(Header.DeliveryLimit),
      text: parts?.[0]?.text ?? "",
      headers: (entry.headers?.keys() ?? []).toSorted(),
    });
  }
}

export async function markerOf(store: NatsConnection, group = 0, space = "main"): Promise<MarkerRow | undefined> {
  const entry = await leaderLast(store, spaceNames(space).dlv, spaceSubjects(space).dlvMarker(group));
  return entry === undefined ? undefined : MarkerRow.parse(JSON.parse(new TextDecoder().decode(entry.data)));
}

/** Membership rows of one lifecycle, by pattern. */
export async function rowsOf(store: NatsConnection, { principal, uid }: Caller, space = "main"): Promise<MemberRow[]> {
  const filter = `${ledgerKey.acl(principal, uid)}.*`;
  const page = await rowPage(store, spaceNames(space).bucket.members, { filter, limit: 1000, via: "leader" });
  return page.rows
    .map(({ data }) => MemberRow.parse(JSON.parse(new TextDecoder().decode(data))))
    .toSorted((a, b) => (a.pattern < b.pattern ? -1 : 1));
}

export const nameOf = ({ principal }: Caller): string => dotForm(principal);

/** What the member's durable says: copies that wait, and those that were delivered and not acknowledged. */
export async function backstopOf(store: NatsConnection, { principal, uid }: Caller, space = "main") {
  const answer = await store.request(jsApi.consumerInfo(spaceNames(space).dlv, dlvDurable(principal, uid)));
  const info = answer.json() as { num_pending: number; num_ack_pending: number };
  return { waiting: info.num_pending, unacknowledged: info.num_ack_pending };
}
