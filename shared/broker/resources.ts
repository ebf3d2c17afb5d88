/**
 * Every stream, bucket and durable consumer of a space, as data (§8, supplement H).
 *
 * `ensure.ts` creates what stands here and compares what it finds with it; nothing else decides a
 * setting. Durables are in `durables.ts`.
 *
 * Invariants
 * 1. Nothing evicts by bytes or by a global count: `max_bytes` and `max_msgs` are -1 everywhere, and
 *    the account's disk limit bounds the sum (§8 "no global byte reservation", supplement H).
 * 2. A stream that clients publish into never allows rollup, message TTL, schedules, counters or
 *    batches: a publisher's header would then reach over other people's messages.
 * 3. `adjustable` names the fields an operator may change (§8 history limits): they get their value
 *    at creation and are never compared afterwards.
 */
import { kvAll, objectChunks, objectMeta } from "../protocol/base/broker-subjects.ts";
import { type BucketKey, bucketStream, objectStream, spaceNames, transferBucket } from "../protocol/base/names.ts";
import { spaceSubjects } from "../protocol/base/subjects.ts";
import { MAX_FEED_BYTES } from "../protocol/chat/membership-feed.ts";

/** The settings the contract fixes, in the broker's own names. Times are nanoseconds. */
export type StreamSettings = {
  readonly retention: "limits" | "workqueue";
  readonly storage: "file";
  readonly discard: "old" | "new";
  readonly discard_new_per_subject: boolean;
  readonly max_age: number;
  readonly max_msgs: number;
  readonly max_msgs_per_subject: number;
  readonly max_bytes: number;
  readonly max_msg_size: number;
  readonly max_consumers: number;
  readonly duplicate_window: number;
  readonly num_replicas: number;
  readonly no_ack: boolean;
  readonly allow_direct: boolean;
  readonly mirror_direct: boolean;
  readonly deny_delete: boolean;
  readonly deny_purge: boolean;
  readonly allow_rollup_hdrs: boolean;
  readonly allow_msg_ttl: boolean;
  readonly allow_msg_schedules: boolean;
  readonly allow_msg_counter: boolean;
  readonly allow_atomic: boolean;
  readonly allow_batched: boolean;
};

export type StreamSpec = StreamSettings & {
  readonly name: string;
  readonly subjects: readonly string[];
  readonly adjustable: readonly (keyof StreamSettings)[];
};

export { type ConsumerSpec, dlvConsumer, dmConsumer, recordWriterConsumer, roleConsumer } from "./durables.ts";

export type SpaceOptions = { readonly replicas: number };

const SECOND_NS = 1e9;
const MINUTE_NS = 60 * SECOND_NS;
const HOUR_NS = 60 * MINUTE_NS;
const DAY_NS = 24 * HOUR_NS;

/** The least the broker takes (§13.4: "the reference config sets the server minimum"). */
const SMALLEST_WINDOW_NS = 100e6;
/** §8: presence lives 6000 ms. */
const PRESENCE_AGE_NS = 6 * SECOND_NS;
/** A record holds a card, a condition and channel modes; a flood of large ones is refused. */
const PRESENCE_MAX_BYTES = 65_536;
/** §8, table of buckets. */
const ANYCAST_MAX_BYTES = 65_536;
/** §8: what a new space starts with, per sender and channel, and per member lifecycle. */
const CHAT_COUNT = 1000;
const DLV_COUNT = 1000;
/** Supplement H leaves `EPE` to the space: events of a week. */
const EVENT_AGE_NS = 7 * DAY_NS;

const PLAIN: StreamSettings = {
  retention: "limits",
  storage: "file",
  discard: "old",
  discard_new_per_subject: false,
  max_age: 0,
  max_msgs: -1,
  max_msgs_per_subject: -1,
  max_bytes: -1,
  max_msg_size: -1,
  max_consumers: -1,
  duplicate_window: 2 * MINUTE_NS,
  num_replicas: 1,
  no_ack: false,
  allow_direct: false,
  mirror_direct: false,
  deny_delete: false,
  deny_purge: false,
  allow_rollup_hdrs: false,
  allow_msg_ttl: false,
  allow_msg_schedules: false,
  allow_msg_counter: false,
  allow_atomic: false,
  allow_batched: false,
};

type Definition = Partial<StreamSettings> & { readonly adjustable?: readonly (keyof StreamSettings)[] };

const HISTORY_LIMIT = ["max_age", "max_msgs_per_subject"] as const;

/** All streams and buckets of a space; the transfer bucket is made when first needed (§8). */
export function spaceStreams(space: string, options: SpaceOptions): readonly StreamSpec[] {
  const names = spaceNames(space);
  const p = spaceSubjects(space);
  const stream = (name: string, subjects: readonly string[], definition: Definition = {}): StreamSpec =>
    specify(name, subjects, definition, options);
  return [
    // §8: per sender and channel; age 0 and 1000 at the start; `allow_msg_ttl` could never be undone.
    stream(names.chat, [p.chatAll], {
      max_msgs_per_subject: CHAT_COUNT,
      allow_direct: true,
      adjustable: HISTORY_LIMIT,
    }),
    // §8: no limit at the start. A full store refuses; direct gets would pass the consumer deny.
    stream(names.dm, [p.instAll], { discard: "new", adjustable: HISTORY_LIMIT }),
    // §8: a cancelled request is deleted by sequence, so deletes stay allowed.
    stream(names.task, [p.svcAll], { retention: "workqueue", discard: "new" }),
    // §8 backstop: newest copies stay. delivery.md: batches carry the marker, which no age removes.
    stream(names.dlv, [p.dlvAll, p.dlvMarkers], {
      max_msgs_per_subject: DLV_COUNT,
      duplicate_window: 2 * HOUR_NS,
      allow_atomic: true,
      allow_msg_ttl: true,
      adjustable: HISTORY_LIMIT,
    }),
    // §13.4: dedupe is not relied upon; retention bounds the deadlines of journals (H18).
    stream(names.epj, [p.epjAll], { discard: "new", duplicate_window: SMALLEST_WINDOW_NS, adjustable: ["max_age"] }),
    // Supplement H: protected facts leave at their horizon only, which is the stream's age.
    stream(names.epf, [p.epfAll], {
      discard: "new",
      allow_direct: true,
      deny_delete: true,
      deny_purge: true,
      adjustable: ["max_age"],
    }),
    stream(names.epe, [p.epeAll], { max_age: EVENT_AGE_NS, adjustable: HISTORY_LIMIT }),
    // Reports of how something is: drained at once, and told anew; a day old they say nothing.
    stream(names.epr, [p.eprAll], { discard: "new", max_age: DAY_NS, adjustable: ["max_age"] }),
    // Supplement H: requests only; a scheduling header is refused by the broker itself.
    stream(names.eptRequest, [p.eptSchedule], { discard: "new", adjustable: ["max_age"] }),
    // Schedules need rollup and message TTL, and can't be had with `deny_purge`. Timer writer only.
    stream(names.ept, [p.eptArmed, p.eptFire], {
      allow_msg_schedules: true,
      allow_rollup_hdrs: true,
      allow_msg_ttl: true,
      adjustable: ["max_age"],
    }),
    stream(names.epw, [p.epwAll], { retention: "workqueue", discard: "new" }),
    // Supplement H: immutable. One message per subject, and a second one is refused.
    stream(names.epc, [p.epcAll], {
      discard: "new",
      discard_new_per_subject: true,
      max_msgs_per_subject: 1,
      allow_direct: true,
      deny_delete: true,
      deny_purge: true,
    }),
    // Supplement H: an append-only journal per run; a hole in one is never lawful.
    stream(names.wfj, [p.wfjAll], { discard: "new", deny_delete: true }),
    ...bucketSpecs(space, options),
  ];
}

/**
 * Buckets: history 1 and, as stock KV has it, `discard` new: only a key's older value ever leaves.
 * No rollup, and no life for a message but in `auth`: a row that was deleted stands as a marker.
 */
const BUCKETS: Readonly<Record<BucketKey, Definition>> = {
  // §6: written by its owner, read in pages (batched direct gets).
  presence: {
    max_age: PRESENCE_AGE_NS,
    duplicate_window: PRESENCE_AGE_NS,
    max_msg_size: PRESENCE_MAX_BYTES,
    allow_direct: true,
    deny_delete: true,
  },
  // §7.
  channels: { allow_direct: true, deny_delete: true },
  membership: { max_msg_size: MAX_FEED_BYTES, allow_direct: true },
  // §8.1: rows go a day after their request left the queue.
  anycast: { max_msg_size: ANYCAST_MAX_BYTES, allow_direct: true },
  // Supplement B: never-deleted families live here; direct for non-fencing reads.
  records: { allow_direct: true, deny_delete: true, deny_purge: true },
  // H24: no row is deleted or has a life of its own; a prunable one leaves under a marker that has one.
  auth: { allow_msg_ttl: true, deny_delete: true, deny_purge: true },
  sessions: { deny_purge: true },
  issued: { deny_delete: true, deny_purge: true },
  accepted: { allow_direct: true, deny_delete: true, deny_purge: true },
  admission: { deny_delete: true, deny_purge: true },
  acl: { allow_direct: true },
  members: { allow_direct: true },
  leases: { allow_direct: true },
};

function bucketSpecs(space: string, options: SpaceOptions): StreamSpec[] {
  const { bucket } = spaceNames(space);
  const keys: readonly BucketKey[] = Object.keys(BUCKETS).filter((key): key is BucketKey => key in bucket);
  return keys.map((key) => {
    const definition: Definition = { discard: "new", max_msgs_per_subject: 1, ...BUCKETS[key] };
    return specify(bucketStream(bucket[key]), [kvAll(bucket[key])], definition, options);
  });
}

/** The resume transfer bucket of one manager instance (§8): the stock object store's layout. */
export function transferStream(space: string, instanceId: string, options: SpaceOptions): StreamSpec {
  const bucket = transferBucket(space, instanceId);
  return specify(
    objectStream(bucket),
    [objectChunks(bucket, ">"), objectMeta(bucket, ">")],
    { discard: "new", allow_direct: true, allow_rollup_hdrs: true },
    options,
  );
}

function specify(
  name: string,
  subjects: readonly string[],
  { adjustable = [], ...settings }: Definition,
  { replicas }: SpaceOptions,
): StreamSpec {
  return { ...PLAIN, ...settings, num_replicas: replicas, name, subjects, adjustable };
}
