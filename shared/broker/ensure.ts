/**
 * Makes streams and durables exist as `resources.ts` and `durables.ts` say, and finds where they differ.
 *
 * Siblings: `limits.ts` is the only place that updates a stream.
 *
 * Invariants
 * 1. What exists is never updated: setting up an existing space changes nothing (§8), and reports.
 * 2. Any number of processes may run this at once and again; the broker's create decides.
 * 3. A field that could bend a stream's shape and that we never set must be absent (`FOREIGN`).
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { jsApi } from "../protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Json, apiRequest, asObject, numberIn, objectIn } from "./api.ts";
import type { ConsumerSpec } from "./durables.ts";
import { ApiCode, apiNumber } from "./errors.ts";
import type { StreamSpec } from "./resources.ts";

/** One difference between what is and what the contract says. `field` "stream": there is none. */
export type Drift = {
  readonly stream: string;
  readonly field: string;
  readonly expected: unknown;
  readonly found: unknown;
};

/** `created`: what was missing when looked at. Processes that race may both say so of one stream. */
export type Ensured = { readonly created: readonly string[]; readonly drift: readonly Drift[] };

/** Fields that redirect, copy, seal or loosen a stream: never ours (supplement H "primary"). */
const FOREIGN = [
  "mirror",
  "sources",
  "republish",
  "subject_transform",
  "subject_delete_marker_ttl",
  "sealed",
  "persist_mode",
] as const;

/** Creates what is missing and compares the rest. */
export async function ensureStreams(nc: NatsConnection, specs: readonly StreamSpec[]): Promise<Ensured> {
  const ensured = await Promise.all(
    specs.map(async (spec) => {
      const found = await streamConfig(nc, spec.name);
      const config = found ?? (await createStream(nc, spec));
      return { created: found === undefined ? [spec.name] : [], drift: streamDrift(spec, config) };
    }),
  );
  return { created: ensured.flatMap(({ created }) => created), drift: ensured.flatMap(({ drift }) => drift) };
}

/** Compares only; a missing stream is a drift of its field "stream". */
export async function verifyStreams(nc: NatsConnection, specs: readonly StreamSpec[]): Promise<readonly Drift[]> {
  const found = await Promise.all(specs.map(({ name }) => streamConfig(nc, name)));
  return specs.flatMap((spec, at) => {
    const config = found[at];
    return config === undefined
      ? [{ stream: spec.name, field: "stream", expected: "present", found: "absent" }]
      : streamDrift(spec, config);
  });
}

async function createStream(nc: NatsConnection, spec: StreamSpec): Promise<Json> {
  const { adjustable: _, ...config } = spec;
  try {
    // Pedantic: the broker refuses what it would otherwise change in silence.
    const answer = await apiRequest(nc, jsApi.streamCreate(spec.name), `create stream ${spec.name}`, {
      ...config,
      pedantic: true,
    });
    return objectIn(answer, "config");
  } catch (error) {
    if (apiNumber(error) !== ApiCode.StreamNameExists) throw error;
    // Somebody else made it meanwhile, differently: what is there is compared, as always.
    const found = await streamConfig(nc, spec.name);
    if (found === undefined) throw error;
    return found;
  }
}

async function streamConfig(nc: NatsConnection, stream: string): Promise<Json | undefined> {
  const answer = await unlessMissing(ApiCode.StreamNotFound, streamInfo(nc, stream));
  return answer === undefined ? undefined : objectIn(answer, "config");
}

function streamInfo(nc: NatsConnection, stream: string): Promise<Json> {
  return apiRequest(nc, jsApi.streamInfo(stream), `look at stream ${stream}`);
}

async function unlessMissing<T>(number: number, asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (apiNumber(error) === number) return undefined;
    throw error;
  }
}

function streamDrift(spec: StreamSpec, found: Json): Drift[] {
  const { name, adjustable, ...expected } = spec;
  const free: ReadonlySet<string> = new Set(adjustable);
  const own = Object.entries(expected)
    .filter(([field, value]) => !free.has(field) && !same(value, found[field]))
    .map(([field, value]) => ({ stream: name, field, expected: value, found: found[field] }));
  const foreign = FOREIGN.filter((field) => !isAbsent(found[field])).map((field) => ({
    stream: name,
    field,
    expected: undefined,
    found: found[field],
  }));
  return [...own, ...foreign];
}

/** The broker leaves out what is false or zero. */
function same(expected: unknown, found: unknown): boolean {
  if (Array.isArray(expected)) return Array.isArray(found) && sorted(expected) === sorted(found);
  return found === undefined ? expected === false || expected === 0 : expected === found;
}

const sorted = (list: readonly unknown[]): string => JSON.stringify(list.map(String).toSorted());

function isAbsent(found: unknown): boolean {
  return found === undefined || found === false || found === null || found === 0 || found === "default";
}

export type StreamState = {
  readonly firstSeq: number;
  readonly lastSeq: number;
  readonly messages: number;
  readonly bytes: number;
  readonly config: Json;
  /** RFC 3339, as the broker wrote it: the epoch of §8.1. */
  readonly created: string;
  /** The broker's own clock when it answered, in milliseconds. */
  readonly atMs: number;
};

export async function streamState(nc: NatsConnection, stream: string): Promise<StreamState> {
  const answer = await streamInfo(nc, stream);
  const state = objectIn(answer, "state");
  return {
    firstSeq: numberIn(state, "first_seq"),
    lastSeq: numberIn(state, "last_seq"),
    messages: numberIn(state, "messages"),
    bytes: numberIn(state, "bytes"),
    config: objectIn(answer, "config"),
    created: String(answer["created"]),
    atMs: Date.parse(String(answer["ts"])),
  };
}

/** Creates a durable. One that is there and identical passes; a different one is a `conflict`. */
export async function ensureConsumer(nc: NatsConnection, spec: ConsumerSpec): Promise<{ readonly created: boolean }> {
  const found = await consumerConfig(nc, spec);
  if (found === undefined) {
    const { stream, name, config } = spec;
    const subject = jsApi.consumerCreateFiltered(stream, name, config.filter_subject);
    try {
      await apiRequest(nc, subject, `create consumer ${name}`, { stream_name: stream, config, action: "create" });
      return { created: true };
    } catch (error) {
      if (apiNumber(error) !== ApiCode.ConsumerExists) throw error;
    }
  }
  const drift = found === undefined ? await verifyConsumer(nc, spec) : consumerDrift(spec, found);
  const [first] = drift;
  if (first === undefined) return { created: false };
  throw new CotalError(
    ErrorCode.Conflict,
    `consumer ${spec.name} has ${first.field} ${JSON.stringify(first.found)} where ${JSON.stringify(first.expected)} is required`,
    {
      outcome: Outcome.NotExecuted,
      next: "nothing was changed; run cotal doctor, and deprovision the lifecycle if it is over",
    },
  );
}

/** Where a durable differs; a missing one is a drift of its field "consumer". */
export async function verifyConsumer(nc: NatsConnection, spec: ConsumerSpec): Promise<readonly Drift[]> {
  const found = await consumerConfig(nc, spec);
  if (found === undefined) {
    return [{ stream: spec.stream, field: "consumer", expected: "present", found: "absent" }];
  }
  return consumerDrift(spec, found);
}

/** True if it was there. */
export async function deleteConsumer(nc: NatsConnection, stream: string, name: string): Promise<boolean> {
  const asked = apiRequest(nc, jsApi.consumerDelete(stream, name), `delete consumer ${name}`);
  return (await unlessMissing(ApiCode.ConsumerNotFound, asked)) !== undefined;
}

async function consumerConfig(nc: NatsConnection, { stream, name }: ConsumerSpec): Promise<Json | undefined> {
  const asked = apiRequest(nc, jsApi.consumerInfo(stream, name), `look at consumer ${name}`);
  const answer = await unlessMissing(ApiCode.ConsumerNotFound, asked);
  return answer === undefined ? undefined : asObject(answer["config"]);
}

/** A push subject, a wider filter, a pause or an idle limit: each bends a durable that we never made so. */
const FOREIGN_CONSUMER = [
  "deliver_subject",
  "deliver_group",
  "filter_subjects",
  "opt_start_time",
  "inactive_threshold",
  "backoff",
  "headers_only",
  "mem_storage",
  "pause_until",
  "rate_limit_bps",
  "flow_control",
  "idle_heartbeat",
  "priority_policy",
  "max_bytes",
] as const;

/** Where the configuration of a durable differs from what it should be. */
export function consumerDrift({ stream, config }: ConsumerSpec, found: Json): Drift[] {
  const own = Object.entries(config)
    .filter(([field, value]) => !same(value, found[field]))
    .map(([field, value]) => ({ stream, field, expected: value as unknown, found: found[field] }));
  const start = config.opt_start_seq === undefined ? ["opt_start_seq"] : [];
  const foreign = [...FOREIGN_CONSUMER, ...start]
    .filter((field) => !isAbsent(found[field]))
    .map((field) => ({ stream, field, expected: undefined, found: found[field] }));
  return [...own, ...foreign];
}
