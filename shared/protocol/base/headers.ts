/**
 * Every header name of the wire, and the stored-copy rule.
 *
 * A message with a native provenance header is a copy that the broker made of something stored.
 * It is refused on every delivery and command rail before it is parsed, because a broker's answer
 * can be aimed at a live subject (§13.3, extended to every rail; names are case-insensitive and an
 * empty value still counts).
 */
export const Header = {
  MsgId: "Nats-Msg-Id",
  ExpectedLastSubjectSequence: "Nats-Expected-Last-Subject-Sequence",
  ExpectedLastSubjectSequenceSubject: "Nats-Expected-Last-Subject-Sequence-Subject",
  ExpectedLastSequence: "Nats-Expected-Last-Sequence",
  ExpectedStream: "Nats-Expected-Stream",
  Ttl: "Nats-TTL",
  Rollup: "Nats-Rollup",
  BatchId: "Nats-Batch-Id",
  BatchSequence: "Nats-Batch-Sequence",
  BatchCommit: "Nats-Batch-Commit",
  KvOperation: "KV-Operation",
  MarkerReason: "Nats-Marker-Reason",
  PendingMessages: "Nats-Pending-Messages",
  /** On answers of a direct get: where the copy came from, and what is left of the batch. */
  StoredStream: "Nats-Stream",
  StoredSubject: "Nats-Subject",
  StoredSequence: "Nats-Sequence",
  StoredTime: "Nats-Time-Stamp",
  NumPending: "Nats-Num-Pending",
  LastSequence: "Nats-Last-Sequence",
  Schedule: "Nats-Schedule",
  ScheduleTarget: "Nats-Schedule-Target",
  Scheduler: "Nats-Scheduler",
  /** On a sealed authorization request: the curve key of the server that sealed it. */
  ServerXkey: "Nats-Server-Xkey",
  /** The DLV count in force when a copy was written (§8). */
  DeliveryLimit: "Cotal-Delivery-Limit",
  /** What a copy is of: the subject and the sequence of the post in CHAT, and why the member gets it. */
  SourceSubject: "Cotal-Source-Subject",
  SourceSequence: "Cotal-Source-Sequence",
  CopyKind: "Cotal-Copy-Kind",
} as const;
export type Header = (typeof Header)[keyof typeof Header];

/** Why a member has a copy: it is a member of that durable channel, or was mentioned on a live one (§4). */
export const CopyKind = { Durable: "durable", Mention: "mention" } as const;
export type CopyKind = (typeof CopyKind)[keyof typeof CopyKind];

/** What the broker writes on a copy of a stored message (§13.3). */
export const PROVENANCE_HEADERS = ["Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"] as const;

const PROVENANCE_LOWER: ReadonlySet<string> = new Set(PROVENANCE_HEADERS.map((name) => name.toLowerCase()));
const PROVENANCE_LENGTHS: ReadonlySet<number> = new Set(PROVENANCE_HEADERS.map(({ length }) => length));

/** Does a header of this name, in any case, mark a stored copy? Most names differ by their length already. */
export function isProvenance(name: string): boolean {
  return PROVENANCE_LENGTHS.has(name.length) && PROVENANCE_LOWER.has(name.toLowerCase());
}

/** True if any of the header names, whatever its value, marks a stored copy. */
export function hasProvenance(names: Iterable<string>): boolean {
  for (const name of names) if (isProvenance(name)) return true;
  return false;
}
