/**
 * The record writer of `svc` (supplement B and E): what an instance says of itself on its own rail becomes
 * `svc.<endpoint>.<instanceId>.status`.
 *
 * Invariants
 * 1. Which process speaks is read from the subject. A report counts only if that process is the one that the
 *    last registration told of: the status itself remembers its epoch, and registration writes it before a
 *    credential of that epoch leaves.
 * 2. A status never goes back: an older process is not heard, and of one process the later report stays,
 *    told by its place in the stream. So a crash between write and acknowledgement, and several writers at
 *    once, come to the same end.
 * 3. What can't be read, and what can't be, is dropped and counted: no report holds up those behind it.
 */
import { isMarker, leaderLast } from "../../shared/broker/reads.ts";
import { type Draining, type Handled, type Pulled, drain } from "../../shared/broker/drain.ts";
import { recordWriterConsumer } from "../../shared/broker/durables.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { type CotalError, ErrorCode, toCotalError } from "../../shared/protocol/base/errors.ts";
import { bucketStream } from "../../shared/protocol/base/names.ts";
import {
  type StatusReport,
  type StatusSource,
  parseStatusSubject,
  readStatusReport,
} from "../../shared/protocol/endpoint/status-rail.ts";
import { recordKey } from "../../shared/protocol/ledger/record-kinds.ts";
import { RegistrationStatus } from "../../shared/protocol/ledger/service-rows.ts";
import type { SpaceContext } from "./context.ts";
import { parseJson } from "../../shared/protocol/base/json.ts";

/** What became of one report. */
export const Recorded = {
  Written: "written",
  /** It, or a later one of that process, is written already. */
  Repeated: "repeated",
  /** Another process has taken the instance over. */
  Stale: "stale",
  /** A process that nobody has registered. */
  Impossible: "impossible",
  /** No such instance. */
  Unknown: "unknown",
  Malformed: "malformed",
  /** The store did not take it; it comes again. */
  Later: "later",
  /** Something is wrong that no repetition mends. */
  Failed: "failed",
} as const;
export type Recorded = (typeof Recorded)[keyof typeof Recorded];

/** For logs and metrics; nothing in it is what a report says. */
export type RecordEvent = {
  readonly result: Recorded;
  /** Its place in the stream. */
  readonly seq: number;
  readonly source?: StatusSource;
  readonly why?: string;
};

export type RecordWriterHooks = {
  readonly onRecord: (event: RecordEvent) => void;
  /** The reports can't be read; it is tried again. */
  readonly onRecordFault: (error: CotalError) => void;
};

type Store = Pick<SpaceContext, "space" | "store" | "names" | "writer">;

export type RecordWriter = Draining;

/** Writes until it is stopped. */
export function startRecordWriter(context: Store, hooks: RecordWriterHooks): RecordWriter {
  return drain({
    nc: context.store,
    spec: recordWriterConsumer(context.space),
    handle: async (message) => {
      const event = await record(context, message);
      hooks.onRecord(event);
      return HANDLED[event.result];
    },
    onFault: (thrown) => hooks.onRecordFault(toCotalError(thrown)),
  });
}

const HANDLED: Readonly<Record<Recorded, Handled>> = {
  [Recorded.Written]: "done",
  [Recorded.Repeated]: "done",
  [Recorded.Stale]: "done",
  [Recorded.Impossible]: "never",
  [Recorded.Unknown]: "never",
  [Recorded.Malformed]: "never",
  [Recorded.Later]: "later",
  [Recorded.Failed]: "never",
};

/** One report. Never rejects. */
export async function record(context: Store, { subject, data, headerNames, seq }: Pulled): Promise<RecordEvent> {
  const source = parseStatusSubject(context.space, subject);
  if (source === undefined) return { result: Recorded.Malformed, seq, why: "no such subject" };
  if (headerNames === undefined) return { result: Recorded.Malformed, seq, source, why: "its headers do not parse" };
  const read = readStatusReport(data, headerNames);
  if (!read.ok) return { result: Recorded.Malformed, seq, source, why: read.why };
  try {
    return { seq, source, ...(await write(context, source, read.report, seq)) };
  } catch (thrown) {
    const { code, message } = toCotalError(thrown);
    return { result: PASSING.has(code) ? Recorded.Later : Recorded.Failed, seq, source, why: message };
  }
}

/** What a repetition may mend: the store is away, full, or somebody was faster. */
const PASSING: ReadonlySet<ErrorCode> = new Set([
  ErrorCode.Unavailable,
  ErrorCode.DeadlineExceeded,
  ErrorCode.ResourceExhausted,
  ErrorCode.Conflict,
]);

type Outcome = Pick<RecordEvent, "result" | "why">;

/** Decides on a leader's read, and writes over exactly what was read. A write that is lost is decided anew. */
async function write(
  { store, names, writer }: Store,
  { endpoint, instanceId, epoch }: StatusSource,
  report: StatusReport,
  seq: number,
): Promise<Outcome> {
  const { records } = names.bucket;
  const subject = kvKey(records, recordKey("svc", { endpoint, instanceId }, "status"));
  const stored = await leaderLast(store, bucketStream(records), subject);
  if (stored === undefined || isMarker(stored.headers)) return { result: Recorded.Unknown };
  const current = RegistrationStatus.safeParse(parseJson(stored.data)).data;
  if (current === undefined) return { result: Recorded.Failed, why: "the status that is stored does not parse" };
  const refused = refusal(current, epoch, seq);
  if (refused !== undefined) return refused;
  const next: RegistrationStatus = { ...report, epoch, reported: seq };
  const bytes = new TextEncoder().encode(JSON.stringify(next));
  await writer.cas(bucketStream(records), subject, bytes, stored.seq);
  return { result: Recorded.Written };
}

function refusal(current: RegistrationStatus, epoch: number, seq: number): Outcome | undefined {
  if (epoch < current.epoch) return { result: Recorded.Stale };
  if (epoch > current.epoch) return { result: Recorded.Impossible, why: `it is at epoch ${current.epoch}` };
  return (current.reported ?? -1) >= seq ? { result: Recorded.Repeated } : undefined;
}
