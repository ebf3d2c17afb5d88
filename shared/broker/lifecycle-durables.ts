/**
 * What a new lifecycle receives through (§8): its inbox, its backstop, and its role's queue.
 *
 * Invariants
 * 1. The inbox begins after what is stored when it is made, and a repetition keeps the one that is
 *    there, with the frontier of the first run.
 * 2. Every creation passes through `effect`, so that a test can end the process around it.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { spaceNames } from "../protocol/base/names.ts";
import type { Principal } from "../protocol/base/principals.ts";
import { type ConsumerSpec, dlvConsumer, dmConsumer, roleConsumer } from "./durables.ts";
import { type Drift, ensureConsumer, streamState, verifyConsumer } from "./ensure.ts";
import type { Writer } from "./write.ts";

export type LifecycleDurables = {
  readonly space: string;
  readonly principal: Principal;
  readonly uid: string;
  readonly role?: string | undefined;
};

/** Safe to run again. */
export async function ensureLifecycleDurables(
  nc: NatsConnection,
  { effect }: Pick<Writer, "effect">,
  { space, principal, uid, role }: LifecycleDurables,
): Promise<void> {
  const { lastSeq } = await streamState(nc, spaceNames(space).dm);
  await effect(() => ensureWherever(nc, dmConsumer(space, principal, uid, lastSeq + 1)));
  await effect(() => ensureWherever(nc, dlvConsumer(space, principal, uid)));
  if (role !== undefined) await ensureRoleQueue(nc, { effect }, space, role);
}

/** The queue that all holders of a role share. Safe to run again. */
export async function ensureRoleQueue(
  nc: NatsConnection,
  { effect }: Pick<Writer, "effect">,
  space: string,
  role: string,
): Promise<void> {
  await effect(() => ensureConsumer(nc, roleConsumer(space, role)));
}

/** A retry finds the inbox that the first run made, with the frontier of that run, or of a restore: it stays (§8). */
async function ensureWherever(nc: NatsConnection, spec: ConsumerSpec): Promise<void> {
  const drift = await verifyConsumer(nc, spec);
  if (drift.length > 0 && drift.every(isStart)) return;
  await ensureConsumer(nc, spec);
}

/** Where a durable begins is its own affair: after a frontier (§8), or where a restore found its former one. */
export function isStart({ field }: Drift): boolean {
  return field === "opt_start_seq" || field === "deliver_policy";
}
