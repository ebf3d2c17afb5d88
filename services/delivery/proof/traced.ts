/**
 * What became of one message of the caller's own, by its kind.
 *
 * Invariants
 * 1. Who may not read a channel now is not told who its members are, whatever it may post there.
 * 2. An answer tells of so many recipients, and reads so much for them; the next one goes on behind the last.
 */
import { durableState } from "../../../shared/broker/durable-state.ts";
import { parseJson } from "../../../shared/protocol/base/json.ts";
import { type StoredEntry, allRows, isMarker, leaderGet, leaderLast, rowPage } from "../../../shared/broker/reads.ts";
import { bucketStream, spaceNames } from "../../../shared/protocol/base/names.ts";
import { kvKey } from "../../../shared/protocol/base/broker-subjects.ts";
import { covers } from "../../../shared/protocol/base/channels.ts";
import { CopyKind } from "../../../shared/protocol/base/headers.ts";
import { parseSubject } from "../../../shared/protocol/base/subjects.ts";
import { type AnycastStatus, parseAnycastKey } from "../../../shared/protocol/chat/anycast.ts";
import {
  ChannelConfig,
  ChannelDefaults,
  DEFAULTS_KEY,
  type DeliveryClass,
  effectiveConfig,
  registryKey,
} from "../../../shared/protocol/chat/channel-config.ts";
import { readDelivery } from "../../../shared/protocol/chat/message.ts";
import type { Caller } from "../../../shared/protocol/endpoint/grammar.ts";
import type { TracedMessage } from "../../../shared/protocol/endpoint/proof-shapes.ts";
import { ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import { AnycastRow, keptId } from "../anycast/row.ts";
import { atOnce } from "../../../shared/broker/at-once.ts";
import { owedOf } from "./owed.ts";
import { listOf, readList } from "./pending.ts";
import { copyRecipient, dmRecipient } from "./recipients.ts";
import { type ProofParts, copiedOf, rolePlace } from "./tiers.ts";

export type TraceParts = ProofParts & {
  /** The record of the caller's own request (§8.1); `from` is the caller's dot-form. */
  readonly statusOf: (from: string, args: { readonly seq: number; readonly id: string }) => Promise<AnycastStatus>;
};

/** Recipients of one answer, and how many are looked at together. */
const PAGE = 64;
const AT_ONCE = 16;
/** Reads for copies of one answer: 64 MiB at most. */
const READS = 16_384;
/** Lifecycles that one principal may have with a read list: one, or two around its renewal. */
const LIFECYCLES = 16;
/** Records that are looked through for a request that has left the queue. */
const RECORDS = 4096;

export async function tracedChat(
  parts: TraceParts,
  { principal, uid }: Caller,
  entry: StoredEntry,
  after = "",
): Promise<TracedMessage> {
  const { store, space } = parts;
  const channel = parseSubject(entry.subject)?.rest ?? "";
  const copied = await copiedOf(parts);
  const read = readDelivery(entry.subject, entry.data);
  const mentions = read.ok ? (read.delivery.message.mentions ?? []) : [];
  const [deliveryClass, own, { owed, whole }] = await Promise.all([
    classOf(parts, channel),
    listOf(parts, { key: ledgerKey.acl(principal, uid), principal, uid }),
    owedOf(store, space, { channel, seq: entry.seq, mentions }),
  ]);
  const is = {
    kind: "chat",
    seq: entry.seq,
    stream: spaceNames(space).chat,
    storedAt: entry.timeMs,
    channel,
    deliveryClass,
    fanout: copied.fanout,
  } as const;
  if (!covers(own?.row.allowSubscribe ?? [], channel)) {
    return { ...is, recipients: { shown: false, count: owed.length } };
  }
  const rest = owed.filter(({ lifecycle }) => lifecycle.key > after);
  const page = rest.slice(0, PAGE);
  const budget = { left: READS };
  const post = { seq: entry.seq, timeMs: entry.timeMs };
  const all = await atOnce(page, AT_ONCE, (one) => copyRecipient(parts, one, post, copied.groups, budget));
  // A name in a text owes nothing on a durable channel, nor does a membership on a live one.
  const owes = deliveryClass === "live" ? CopyKind.Mention : CopyKind.Durable;
  const list = all.filter(({ why, copiedAt }) => why === owes || copiedAt !== undefined);
  const last = page.at(-1)?.lifecycle.key;
  const more = last === undefined || rest.length <= PAGE ? {} : { after: last };
  return { ...is, recipients: { shown: true, list, whole, ...more } };
}

export async function tracedDm(parts: TraceParts, entry: StoredEntry): Promise<TracedMessage> {
  const { store, space } = parts;
  const to = parseSubject(entry.subject)?.rest ?? "";
  const { rows } = await rowPage(store, spaceNames(space).bucket.acl, { filter: `${to}.*`, limit: LIFECYCLES });
  const listed = rows.flatMap(({ key, kind, data }) => (kind === "marker" ? [] : readList(key, data)));
  const recipients = await atOnce(listed, AT_ONCE, (one) => dmRecipient(parts, one, entry.seq));
  return { kind: "dm", seq: entry.seq, stream: spaceNames(space).dm, storedAt: entry.timeMs, to, recipients };
}

export async function tracedAsk(parts: TraceParts, from: string, id: string, entry: StoredEntry) {
  const { store, space } = parts;
  const { seq, timeMs: storedAt } = entry;
  const role = parseSubject(entry.subject)?.rest ?? "";
  const { stream, durable } = rolePlace(space, role);
  const state = await durableState(store, stream, durable);
  const request = await parts.statusOf(from, { seq, id });
  const isThere = (await leaderGet(store, stream, seq)) !== undefined;
  const stands = state === undefined ? "missing" : seq > state.deliveredSeq ? "waiting" : "handed";
  return {
    kind: "ask",
    seq,
    stream,
    storedAt,
    role,
    request,
    queue: isThere ? stands : "off",
  } as const satisfies TracedMessage;
}

/** Requests that have left the queue, by their records; those that are known from the queue are left out. */
export async function recordedAsks(parts: TraceParts, from: string, id: string, known: ReadonlySet<number>) {
  const { store, space } = parts;
  const { bucket, task: stream } = spaceNames(space);
  const found: TracedMessage[] = [];
  let records = 0;
  for await (const { key, kind, data } of allRows(store, bucket.anycast, { filter: "r.>", limit: 512 })) {
    records += 1;
    if (records > RECORDS) return { found, whole: false };
    const row = kind === "marker" ? undefined : AnycastRow.safeParse(parseJson(data)).data;
    const seq = parseAnycastKey(key)?.seq;
    if (row?.sender !== from || row.id !== keptId(id) || seq === undefined || known.has(seq)) continue;
    const request = await parts.statusOf(from, { seq, id });
    found.push({ kind: "ask", seq, stream, role: row.role, request, queue: "off" });
  }
  return { found, whole: true };
}

async function classOf({ store, space }: ProofParts, channel: string): Promise<DeliveryClass> {
  const { channels } = spaceNames(space).bucket;
  const at = async (key: string): Promise<unknown> => {
    const entry = await leaderLast(store, bucketStream(channels), kvKey(channels, key));
    return entry === undefined || isMarker(entry.headers) ? undefined : parseJson(entry.data);
  };
  const [config, defaults] = await Promise.all([at(registryKey(channel)), at(DEFAULTS_KEY)]);
  return effectiveConfig(ChannelConfig.safeParse(config).data, ChannelDefaults.safeParse(defaults).data).deliveryClass;
}
