/**
 * Does somebody write the copies of each member group (H53)? Without a writer, members of durable channels get
 * nothing of what is posted while they are away, until there is one again.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { LEASE_TTL_MS, groupLease, readLease } from "../../../shared/broker/lease.ts";
import { type Finding, GROUP_CHECK } from "../../../shared/protocol/endpoint/provisioner-shapes.ts";
import { MAX_GROUPS } from "../../../shared/protocol/ledger/member-rows.ts";
import type { SpaceContext } from "../context.ts";
import { settingsNow } from "../groups.ts";
import { error, warning } from "./finding.ts";

/** A service that has just begun, or takes over, needs a moment. */
const AGAIN_MS = 400;
const TIMES = 5;

export async function groups(context: SpaceContext, brokerNow: () => Promise<number>): Promise<Finding[]> {
  if (context.settings.auth === "open") return [];
  const { groups: wanted } = await settingsNow(context);
  let idle = Array.from({ length: wanted }, (_, n) => n);
  for (let time = 1; idle.length > 0; time += 1) {
    const now = await brokerNow();
    const seen = await Promise.all(idle.map((n) => isWritten(context, n, now)));
    idle = idle.filter((_, at) => seen[at] !== true);
    if (time === TIMES) break;
    if (idle.length > 0) await sleep(AGAIN_MS);
  }
  const nobody = idle.map((n) =>
    error(
      GROUP_CHECK,
      `nobody writes the copies of member group ${n}: who is away gets nothing that is posted now, until somebody does`,
      "start the delivery service of this space; if it runs, its log says why it does not hold the group (after cotal groups set it takes a moment)",
    ),
  );
  const now = await brokerNow();
  const beyond = Array.from({ length: MAX_GROUPS - wanted }, (_, n) => wanted + n);
  const seen = await Promise.all(beyond.map((n) => isWritten(context, n, now)));
  return seen.includes(true) ? [...nobody, changing(wanted)] : nobody;
}

function changing(wanted: number): Finding {
  return warning(
    GROUP_CHECK,
    `${wanted} member groups are wanted, and others are written still: the delivery service has not carried it out`,
    "ask again in a moment; if it stays, cotal groups show says how many there are, and the service's log why",
  );
}

async function isWritten({ store, space }: SpaceContext, n: number, brokerNow: number): Promise<boolean> {
  const lease = await readLease(store, groupLease(space, n));
  return lease?.row.ready === true && brokerNow - lease.timeMs < LEASE_TTL_MS;
}
