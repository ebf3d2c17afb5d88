/**
 * Does somebody write the copies of each member group (H53)? Without a writer, members of durable channels get
 * nothing of what is posted while they are away, until there is one again.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { LEASE_TTL_MS, groupLease, readLease } from "../../../shared/broker/lease.ts";
import { type Finding, GROUP_CHECK } from "../../../shared/protocol/endpoint/provisioner-shapes.ts";
import type { SpaceContext } from "../context.ts";
import { error } from "./finding.ts";

/** A service that has just begun, or takes over, needs a moment. */
const AGAIN_MS = 400;
const TIMES = 5;

export async function groups(context: SpaceContext, brokerNow: () => Promise<number>): Promise<Finding[]> {
  const { settings } = context;
  if (settings.auth === "open") return [];
  let idle = Array.from({ length: settings.groups }, (_, n) => n);
  for (let time = 1; idle.length > 0; time += 1) {
    const now = await brokerNow();
    const seen = await Promise.all(idle.map((n) => isWritten(context, n, now)));
    idle = idle.filter((_, at) => seen[at] !== true);
    if (time === TIMES) break;
    if (idle.length > 0) await sleep(AGAIN_MS);
  }
  return idle.map((n) =>
    error(
      GROUP_CHECK,
      `nobody writes the copies of member group ${n}: who is away gets nothing that is posted now, until somebody does`,
      "start the delivery service of this space; if it runs, its log says why it does not hold the group",
    ),
  );
}

async function isWritten({ store, space }: SpaceContext, n: number, brokerNow: number): Promise<boolean> {
  const lease = await readLease(store, groupLease(space, n));
  return lease?.row.ready === true && brokerNow - lease.timeMs < LEASE_TTL_MS;
}
