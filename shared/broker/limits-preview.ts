/**
 * What a change of a stream's history limit would remove, before it is made (§8).
 *
 * Invariants
 * 1. Nothing is changed and no message is read: the broker counts, by subject and from a time on. What is written
 *    meanwhile moves the answer.
 * 2. Both parts of a limit take the oldest of a subject first, so of each it is the larger that goes.
 * 3. So many subjects are asked about, those with most messages first; where there are more, the numbers are the
 *    least that goes, and `whole` says so.
 */
import { randomBytes } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import { jsApi } from "../protocol/base/broker-subjects.ts";
import { drawNonce } from "../protocol/base/principals.ts";
import { apiRequest, numberIn } from "./api.ts";
import { type HistoryLimits, lawfulHere } from "./limits.ts";
import { directCount } from "./pages.ts";
import { subjectCounts } from "./subject-counts.ts";

export type Removal = {
  readonly subjects: readonly { readonly subject: string; readonly messages: number; readonly kept: number }[];
  readonly whole: boolean;
};

export type PreviewOptions = {
  /** The subjects of interest: others of the stream are left out. */
  readonly filter: string;
  /** Tests: subjects whose age is asked about, and what time it is; else the broker's clock says it. */
  readonly mostAged?: number;
  readonly nowMs?: number;
};

/** Each is one question. */
const MOST_AGED = 2000;
const AT_ONCE = 32;

/** Throws `bad-request` for a limit that could not be set. Subjects that lose most come first. */
export async function previewLimits(
  nc: NatsConnection,
  stream: string,
  limits: HistoryLimits,
  { filter, mostAged = MOST_AGED, nowMs }: PreviewOptions,
): Promise<Removal> {
  const { atMs, config } = await lawfulHere(nc, stream, limits);
  const counts = await subjectCounts(nc, stream, filter);
  const { maxAgeSeconds, maxPerSubject } = limits;
  const countFrom = config["allow_direct"] === true ? directCount : consumerCount;
  const since = maxAgeSeconds === null ? undefined : (nowMs ?? atMs) - maxAgeSeconds * 1000;
  const aged = since === undefined ? [] : counts.of.slice(0, mostAged);
  const young = new Map<string, number>();
  for (let at = 0; at < aged.length; at += AT_ONCE) {
    const some = aged.slice(at, at + AT_ONCE);
    const left = await Promise.all(some.map(([subject]) => countFrom(nc, stream, subject, since ?? 0)));
    for (const [index, [subject]] of some.entries()) young.set(subject, left[index] ?? 0);
  }
  const subjects = counts.of.flatMap(([subject, stored]) => {
    const kept = Math.min(stored, maxPerSubject ?? stored, young.get(subject) ?? stored);
    return kept === stored ? [] : [{ subject, messages: stored - kept, kept }];
  });
  const whole = counts.whole && (since === undefined || aged.length === counts.of.length);
  return { subjects: subjects.toSorted((a, b) => b.messages - a.messages), whole };
}

/** Where there are no direct gets: a consumer that nobody reads knows what it would begin with, and goes by itself. */
async function consumerCount(nc: NatsConnection, stream: string, subject: string, sinceMs: number): Promise<number> {
  const name = `count_${drawNonce(randomBytes)}`;
  const config = {
    name,
    filter_subject: subject,
    deliver_policy: "by_start_time",
    opt_start_time: new Date(sinceMs).toISOString(),
    ack_policy: "none",
    mem_storage: true,
    num_replicas: 1,
    inactive_threshold: 1e9,
  };
  const at = jsApi.consumerCreateFiltered(stream, name, subject);
  const made = await apiRequest(nc, at, `count in ${stream}`, { stream_name: stream, config, action: "create" });
  return numberIn(made, "num_pending");
}
