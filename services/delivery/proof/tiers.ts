/**
 * Where something waits for a member, and how far its durables have come there (§8): by the broker's own counts,
 * without a look at any message but the oldest one's time.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { consumersOf } from "../../../shared/broker/consumers.ts";
import { durableState } from "../../../shared/broker/durable-state.ts";
import { streamState } from "../../../shared/broker/ensure.ts";
import { type Setting, markersInForce } from "../../../shared/broker/markers.ts";
import { leaderNext } from "../../../shared/broker/reads.ts";
import { dlvDurable, dmDurable, roleDurable, spaceNames } from "../../../shared/protocol/base/names.ts";
import { parseSubject, spaceSubjects } from "../../../shared/protocol/base/subjects.ts";
import { ROLE_TOKEN } from "../../../shared/protocol/base/grammar.ts";
import { subjectCounts } from "../../../shared/broker/subject-counts.ts";
import { atOnce } from "../../../shared/broker/at-once.ts";
import type { FanoutState, RolesLeft, TierPending } from "../../../shared/protocol/endpoint/proof-shapes.ts";
import { type Lifecycle, groupOf } from "../../../shared/protocol/ledger/member-rows.ts";

export type ProofParts = {
  readonly store: NatsConnection;
  readonly space: string;
  readonly setting: Setting;
};

/** A durable and the subject that it reads. */
export type Place = { readonly stream: string; readonly durable: string; readonly filter: string };

export const dmPlace = (space: string, { principal, uid }: Lifecycle): Place => ({
  stream: spaceNames(space).dm,
  durable: dmDurable(principal, uid),
  filter: spaceSubjects(space).instTo(principal),
});

export const copiesPlace = (space: string, { principal, uid }: Lifecycle): Place => ({
  stream: spaceNames(space).dlv,
  durable: dlvDurable(principal, uid),
  filter: spaceSubjects(space).dlv(principal, uid),
});

export const rolePlace = (space: string, role: string): Place => ({
  stream: spaceNames(space).task,
  durable: roleDurable(role),
  filter: spaceSubjects(space).svcTo(role),
});

/** What waits there. */
export async function pendingAt(
  store: NatsConnection,
  { stream, durable, filter }: Place,
  is: Pick<TierPending, "tier" | "role">,
): Promise<TierPending> {
  const found = await durableState(store, stream, durable);
  if (found === undefined) {
    const counts = await subjectCounts(store, stream, filter);
    return { ...is, state: "missing", stored: counts.of.reduce((sum, [, messages]) => sum + messages, 0) };
  }
  const { waiting, out: handed, redelivered, deliveredAt, settledAt } = found;
  const from = handed > 0 ? found.floorSeq : found.deliveredSeq;
  const oldest = waiting + handed === 0 ? undefined : await leaderNext(store, stream, filter, from + 1);
  return {
    ...is,
    state: "known",
    waiting,
    handed,
    redelivered,
    ...(oldest === undefined ? {} : { oldestAt: oldest.timeMs }),
    ...(deliveredAt === undefined ? {} : { deliveredAt }),
    ...(settledAt === undefined ? {} : { settledAt }),
  };
}

/**
 * Roles of one answer: those first that somebody was ever given, or requests to names that somebody made up would push
 * them out; then those with most requests.
 */
const MOST_QUEUES = 128;

export type Queues = { readonly queues: TierPending[]; readonly rolesLeft: RolesLeft };

/** What waits for each role that requests are stored for, by whoever they are; and how many roles it had no room for. */
export async function queuesOf({ store, space }: ProofParts): Promise<Queues> {
  const { task } = spaceNames(space);
  const { of, whole } = await subjectCounts(store, task, spaceSubjects(space).svcAll);
  const roles = new Set(
    of.flatMap(([subject]) => parseSubject(subject)?.rest ?? []).filter((role) => ROLE_TOKEN.test(role)),
  );
  const given = new Set<string>();
  for await (const { name } of consumersOf(store, task)) given.add(name);
  const [real, madeUp] = [true, false].map((is) => [...roles].filter((role) => given.has(roleDurable(role)) === is));
  const first = [...(real ?? []), ...(madeUp ?? [])].slice(0, MOST_QUEUES);
  const queues = await atOnce(first, QUEUES_AT_ONCE, (role) =>
    pendingAt(store, rolePlace(space, role), { tier: "role", role }),
  );
  return { queues, rolesLeft: { roles: roles.size - first.length, whole } };
}

const QUEUES_AT_ONCE = 32;

export type Moment = { readonly asOf: number; readonly fanout: FanoutState };

/** The broker's clock, what is posted, and how far the copies are: those of one lifecycle, or of the slowest. */
export async function momentOf(parts: ProofParts, lifecycle?: string): Promise<Moment> {
  const { asOf, fanout, groups } = await copiedOf(parts);
  return { asOf, fanout: lifecycle === undefined ? fanout : { ...fanout, copied: copiedFor(groups, lifecycle) } };
}

/** Up to which post each group in force has its copies (decision H25). */
export type Copied = readonly number[];

/** Up to which post this lifecycle has its copies. */
export const copiedFor = (groups: Copied, lifecycle: string): number => groups[groupOf(lifecycle, groups.length)] ?? 0;

/** The same, and of each group up to which post it has its copies. */
export async function copiedOf({ store, space, setting }: ProofParts) {
  const markers = await markersInForce(store, space, setting);
  const { atMs: asOf, lastSeq: stored } = await streamState(store, spaceNames(space).chat);
  const each = markers.map(({ row }) => Math.min(row?.sequence ?? 0, stored));
  return { asOf, fanout: { stored, copied: Math.min(...each) }, groups: each };
}
