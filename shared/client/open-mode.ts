/**
 * An open space has no provisioner to make a member's durables, so the SDK makes its own there, and
 * only there (decision H57). What exists is bound as it is and never changed.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { type ConsumerSpec, dmConsumer, roleConsumer } from "../broker/durables.ts";
import { ensureConsumer, streamState, verifyConsumer } from "../broker/ensure.ts";
import { spaceNames } from "../protocol/base/names.ts";
import type { Identity } from "./identity.ts";

/** Makes the DM inbox: it starts with what is sent from now on, and stays under the same uid. */
export async function ensureOpenInbox(nc: NatsConnection, { space, principal, uid }: Identity): Promise<void> {
  const there = await exists(nc, dmConsumer(space, principal, uid, 1));
  if (there) return;
  const { lastSeq } = await streamState(nc, spaceNames(space).dm);
  const spec = dmConsumer(space, principal, uid, lastSeq + 1);
  try {
    await ensureConsumer(nc, spec);
  } catch (error) {
    // Another process of this identity may have made it, with a start of its own.
    if (!(await exists(nc, spec))) throw error;
  }
}

export async function ensureOpenRole(nc: NatsConnection, space: string, role: string): Promise<void> {
  const spec = roleConsumer(space, role);
  if (await exists(nc, spec)) return;
  try {
    await ensureConsumer(nc, spec);
  } catch (error) {
    if (!(await exists(nc, spec))) throw error;
  }
}

async function exists(nc: NatsConnection, spec: ConsumerSpec): Promise<boolean> {
  const [first] = await verifyConsumer(nc, spec);
  return first?.field !== "consumer";
}
