/**
 * The durable consumers as data: a member's DM and DLV durables, the queue of a role (§8), and what a
 * trusted writer drains (supplement E).
 *
 * Invariants
 * 1. All are pull, explicit ack, `max_deliver` -1: nothing is given up after some number of tries (field
 *    case: a stranded queue).
 * 2. What a client pulls: `max_batch` 1 and `max_expires` 30 s (H62), for a larger batch strands messages
 *    behind the front/store split, and a pull outlives the connection that made it.
 * 3. A durable of a lifecycle starts strictly after that lifecycle's activation frontier (§8).
 */
import { badRequest } from "../protocol/base/errors.ts";
import { dlvDurable, dmDurable, recordWriterDurable, roleDurable, spaceNames } from "../protocol/base/names.ts";
import type { Principal } from "../protocol/base/principals.ts";
import { spaceSubjects } from "../protocol/base/subjects.ts";
import { statusReports } from "../protocol/endpoint/status-rail.ts";

export type ConsumerConfig = {
  readonly durable_name: string;
  readonly name: string;
  readonly filter_subject: string;
  readonly deliver_policy: "all" | "by_start_sequence";
  readonly opt_start_seq?: number;
  readonly ack_policy: "explicit";
  /** Nanoseconds, as `max_expires`. */
  readonly ack_wait: number;
  readonly max_deliver: number;
  readonly max_ack_pending: number;
  readonly max_waiting: number;
  readonly max_batch: number;
  readonly max_expires: number;
  readonly replay_policy: "instant";
};

export type ConsumerSpec = { readonly stream: string; readonly name: string; readonly config: ConsumerConfig };

const SECOND_NS = 1e9;
/** H55 says 256 for `dlv_`; one bound for all keeps a slow member from holding a whole stream. */
const MAX_ACK_PENDING = 256;
/** Several pulls of one member stand at a time, and abandoned ones up to 30 s more. */
const MEMBER_WAITING = 64;
/** The holders of a role share one durable. */
const ROLE_WAITING = 512;

type Start = Pick<ConsumerConfig, "deliver_policy" | "opt_start_seq">;

const ALL: Start = { deliver_policy: "all" };

/** `startSeq` is the activation frontier plus one: 1 on a stream that is empty (§8). */
function from(startSeq: number): Start {
  if (!Number.isSafeInteger(startSeq) || startSeq < 1) {
    throw badRequest("a durable starts at a sequence from 1", "pass the activation frontier plus one");
  }
  return { deliver_policy: "by_start_sequence", opt_start_seq: startSeq };
}

/** `dm_<owner>-<actor>-<uid>` (§8). */
export function dmConsumer(space: string, p: Principal, uid: string, startSeq: number): ConsumerSpec {
  return durable(
    spaceNames(space).dm,
    dmDurable(p, uid),
    spaceSubjects(space).instTo(p),
    from(startSeq),
    MEMBER_WAITING,
  );
}

/** `dlv_<owner>-<actor>-<uid>` (H55): all, for its subject is this lifecycle's own; a restore passes a start. */
export function dlvConsumer(space: string, p: Principal, uid: string, startSeq?: number): ConsumerSpec {
  return durable(
    spaceNames(space).dlv,
    dlvDurable(p, uid),
    spaceSubjects(space).dlv(p, uid),
    startSeq === undefined ? ALL : from(startSeq),
    MEMBER_WAITING,
  );
}

/** `svc_<role>` (§8): shared by the holders of the role, on purpose. */
export function roleConsumer(space: string, role: string): ConsumerSpec {
  return durable(spaceNames(space).task, roleDurable(role), spaceSubjects(space).svcTo(role), ALL, ROLE_WAITING);
}

/** What the record writer pulls at once; one is out at a time all the same. */
const RECORD_WRITER_BATCH = 64;
/** What a writer that was killed held is given to the next one after this long. */
const RECORD_WRITER_ACK_SECONDS = 5;

/**
 * `recw_<s>-svc`: reports of how instances are (supplement A and E). One message is out at a time, however
 * many writers there are, so they are written in the order in which they came.
 */
export function recordWriterConsumer(space: string): ConsumerSpec {
  const name = recordWriterDurable(space, "svc");
  const { stream, config } = durable(spaceNames(space).epr, name, statusReports(space), ALL, MEMBER_WAITING);
  return {
    stream,
    name,
    config: {
      ...config,
      ack_wait: RECORD_WRITER_ACK_SECONDS * SECOND_NS,
      max_ack_pending: 1,
      max_batch: RECORD_WRITER_BATCH,
    },
  };
}

function durable(stream: string, name: string, filter: string, start: Start, waiting: number): ConsumerSpec {
  return {
    stream,
    name,
    config: {
      durable_name: name,
      name,
      filter_subject: filter,
      ...start,
      ack_policy: "explicit",
      ack_wait: 60 * SECOND_NS,
      max_deliver: -1,
      max_ack_pending: MAX_ACK_PENDING,
      max_waiting: waiting,
      max_batch: 1,
      max_expires: 30 * SECOND_NS,
      replay_policy: "instant",
    },
  };
}
