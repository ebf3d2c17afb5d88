/**
 * Proves a restored space before anybody is served from it: everything is read again, and counted.
 *
 * Invariant: what differs in one message, one row, one position or one setting refuses the restore by its name.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { consumersOf } from "../broker/consumers.ts";
import { streamState, verifyStreams } from "../broker/ensure.ts";
import { historyLimits, setHistoryLimits } from "../broker/limits.ts";
import type { StreamSpec } from "../broker/resources.ts";
import type { Restored } from "../broker/recreate.ts";
import type { LedgerStore } from "../ledger/store.ts";
import { readRow } from "../ledger/store.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { bucketStream, dlvDurable, dmDurable, spaceNames } from "../protocol/base/names.ts";
import { dotForm } from "../protocol/base/principals.ts";
import { spaceSubjects } from "../protocol/base/subjects.ts";
import { GateRow, HeadRow, ledgerKey } from "../protocol/ledger/rows.ts";
import { CONTENT, type Content, type Manifest, type Store, partStream } from "./format.ts";
import { lineOf, storedMessages } from "./messages.ts";
import { inParallel } from "./parallel.ts";
import type { Enrolment, Plan } from "./plan.ts";
import { type Written, digesting } from "./written.ts";

export type ProofOptions = {
  readonly nc: NatsConnection;
  readonly ledger: Pick<LedgerStore, "read">;
  readonly manifest: Manifest;
  readonly specs: readonly StreamSpec[];
  readonly plan: Plan;
  readonly written: Readonly<Record<Content, Written>>;
  readonly channels: number;
  readonly memberships: number;
};

export async function prove(options: ProofOptions): Promise<void> {
  const { nc, manifest, specs, plan } = options;
  const names = spaceNames(manifest.space);
  for (const part of CONTENT) await proveContent(options, part);
  for (const [bucket, count] of [
    [names.bucket.channels, options.channels],
    [names.bucket.members, options.memberships],
    [names.bucket.acl, plan.enrolled.size],
    [names.bucket.anycast, 0],
    [names.bucket.sessions, 0],
  ] as const) {
    const { messages } = await streamState(nc, bucketStream(bucket));
    if (messages !== count) throw unproved(`${bucket} holds ${messages} rows, and ${count} were written`);
  }
  const all = [...plan.enrolled.values()];
  await proveDurables(nc, names.dm, new Map(all.map((one) => [dmDurable(one.principal, one.uid), one.dmNext])));
  await proveDurables(nc, names.dlv, new Map(all.map((one) => [dlvDurable(one.principal, one.uid), one.dlvNext])));
  const lives = async function* lives(): AsyncGenerator<() => Promise<void>> {
    for (const one of all) yield () => proveLife(options.ledger, one);
  };
  await inParallel(lives());
  // Ages begin to count only now: what is older than a restore is not known to the broker.
  for (const part of ["chat", "dm", "dlv"] as const) await setLimit(nc, names[part], manifest.stores[part]);
  const [drift] = await verifyStreams(nc, specs);
  if (drift !== undefined) {
    throw unproved(
      `${drift.stream} has ${drift.field} ${JSON.stringify(drift.found)}, not ${JSON.stringify(drift.expected)}`,
    );
  }
}

async function proveContent({ nc, manifest, written }: ProofOptions, part: Content): Promise<void> {
  const stream = partStream(spaceNames(manifest.space), part);
  const { firstSeq, lastSeq } = await streamState(nc, stream);
  if (lastSeq < manifest.stores[part].lastSeq) throw unproved(`${stream} ends at ${lastSeq}`);
  const read = digesting(readAgain(nc, manifest.space, stream, firstSeq, lastSeq));
  for await (const _ of read.messages);
  const { count, sha256 } = read.written();
  if (count !== written[part].count)
    throw unproved(`${stream} holds ${count} messages, and ${written[part].count} were written`);
  if (sha256 !== written[part].sha256) throw unproved(`${stream} holds other bytes than were written`);
}

async function* readAgain(
  nc: NatsConnection,
  space: string,
  stream: string,
  firstSeq: number,
  lastSeq: number,
): AsyncGenerator<Restored> {
  const markers = spaceSubjects(space).dlvMarkers.slice(0, -1);
  for await (const entry of storedMessages(nc, stream, Math.max(1, firstSeq), lastSeq)) {
    if (entry.subject.startsWith(markers)) continue;
    const { headers } = lineOf(entry);
    const { seq, subject, data } = entry;
    yield { seq, subject, data, ...(headers === undefined ? {} : { headers }) };
  }
}

async function proveDurables(nc: NatsConnection, stream: string, expected: Map<string, number>): Promise<void> {
  for await (const { name, config } of consumersOf(nc, stream)) {
    const next = expected.get(name);
    if (next === undefined) throw unproved(`${stream} has a durable ${name} that nobody was given`);
    const starts = Number(config["opt_start_seq"]);
    if (starts !== next) throw unproved(`${name} goes on at ${starts}, and ${next} was its place`);
    expected.delete(name);
  }
  const [missing] = expected.keys();
  if (missing !== undefined) throw unproved(`${stream} has no ${missing}`);
}

async function proveLife(ledger: Pick<LedgerStore, "read">, { principal, uid, before }: Enrolment): Promise<void> {
  const [head, gate, former] = await Promise.all([
    readRow(ledger, "records", ledgerKey.head(principal), HeadRow),
    readRow(ledger, "auth", ledgerKey.gate(uid), GateRow),
    readRow(ledger, "auth", ledgerKey.gate(before), GateRow),
  ]);
  const lives = head?.value.state === "active" && head.value.lifecycleUid === uid && gate?.value.state === "open";
  if (!lives || former?.value.state !== "retired")
    throw unproved(`${dotForm(principal)} is not enrolled as it should be`);
}

const SECOND_NS = 1e9;

async function setLimit(nc: NatsConnection, stream: string, { maxAge, maxPerSubject }: Store): Promise<void> {
  const wanted = {
    maxAgeSeconds: maxAge <= 0 ? null : maxAge / SECOND_NS,
    maxPerSubject: maxPerSubject <= 0 ? null : maxPerSubject,
  };
  const found = await historyLimits(nc, stream);
  const isSame = found.maxAgeSeconds === wanted.maxAgeSeconds && found.maxPerSubject === wanted.maxPerSubject;
  if (!isSame) await setHistoryLimits(nc, stream, wanted);
}

function unproved(why: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the restore is not proved: ${why}`, {
    outcome: Outcome.NotExecuted,
    next: "nothing is served from it; find out who else writes to this broker, then restore again",
  });
}
