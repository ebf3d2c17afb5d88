/**
 * Headers of stored messages, which strangers wrote.
 *
 * Invariants
 * 1. No bytes make a read throw: nats.js's decoder throws on an unlawful header name, so one hostile
 *    post could end every reader of its channel. Here an unlawful line is left out.
 * 2. What the broker says of a copy is the last value of its header, for it appends: a sender who
 *    writes `Nats-Subject` himself comes first, and would pose as somebody else.
 * 3. What the sender wrote stays, his own provenance headers included, so that `hasProvenance` sees them.
 */
import { Match, type MsgHdrs, headers } from "@nats-io/transport-node";
import { Header } from "../protocol/base/headers.ts";

/** What the broker adds to a copy that a direct get returns. */
const ADDED = [
  Header.StoredStream,
  Header.StoredSubject,
  Header.StoredSequence,
  Header.StoredTime,
  Header.NumPending,
  Header.LastSequence,
] as const;

const utf8 = new TextDecoder();

/** A header block as stored; `undefined` if it holds no lawful header. */
export function parseHeaders(block: Uint8Array): MsgHdrs | undefined {
  const parsed = headers();
  for (const line of utf8.decode(block).split("\r\n").slice(1)) {
    const colon = line.indexOf(":");
    if (colon > 0) appendLawful(parsed, line.slice(0, colon), line.slice(colon + 1).trim());
  }
  return isEmpty(parsed) ? undefined : parsed;
}

function appendLawful(to: MsgHdrs, name: string, value: string): void {
  try {
    to.append(name, value);
  } catch {
    // Not lawful in nats.js: nobody could have read it either.
  }
}

export type Provenance = {
  readonly stream: string;
  readonly subject: string;
  readonly seq: number;
  readonly timeMs: number;
};

/** What the broker says of a copy; `undefined` for an answer that is no copy (a status). */
export function provenanceOf(of: MsgHdrs | undefined): Provenance | undefined {
  if (of?.has(Header.StoredStream) !== true) return undefined;
  return {
    stream: of.last(Header.StoredStream),
    subject: of.last(Header.StoredSubject),
    seq: Number(of.last(Header.StoredSequence)),
    timeMs: Date.parse(of.last(Header.StoredTime)),
  };
}

/** The headers of a copy without what the broker added; `undefined` if the sender set none. */
export function withoutProvenance(of: MsgHdrs): MsgHdrs | undefined {
  const added: ReadonlySet<string> = new Set(ADDED);
  const sent = headers();
  for (const name of of.keys()) {
    const values = of.values(name, Match.Exact);
    for (const value of added.has(name) ? values.slice(0, -1) : values) sent.append(name, value);
  }
  return isEmpty(sent) ? undefined : sent;
}

const isEmpty = (of: MsgHdrs): boolean => of.keys().length === 0;

/** A deleted or expired KV entry: a marker of a deleter, or of the broker's limits. */
export function isMarker(of: MsgHdrs | undefined): boolean {
  return of !== undefined && (of.has(Header.KvOperation) || of.has(Header.MarkerReason));
}
