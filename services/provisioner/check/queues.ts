/** Requests to a role that wait, and nobody who holds the role asks for one. */
import { consumersOf } from "../../../shared/broker/consumers.ts";
import { apiRequest, objectIn } from "../../../shared/broker/api.ts";
import { jsApi } from "../../../shared/protocol/base/broker-subjects.ts";
import type { Finding } from "../../../shared/protocol/endpoint/provisioner-shapes.ts";
import type { SpaceContext } from "../context.ts";
import { warning } from "./finding.ts";

/** Somebody who asks just now, or a holder that is being started, is nothing to tell. */
const WAITED_MS = 10 * 60_000;

export async function queues({ store, names }: SpaceContext, brokerNow: number): Promise<Finding[]> {
  const info = await apiRequest(store, jsApi.streamInfo(names.task), `look at stream ${names.task}`);
  const oldest = Date.parse(String(objectIn(info, "state")["first_ts"]));
  // Of an empty queue the broker says the year 1.
  if (!(oldest > 0) || brokerNow - oldest < WAITED_MS) return [];
  const findings: Finding[] = [];
  for await (const { name, pending, waiting, out } of consumersOf(store, names.task)) {
    if (pending === 0 || waiting > 0 || out > 0) continue;
    findings.push(
      warning(
        "role queue",
        `${pending} requests wait in ${name}, and no holder of the role asks for one`,
        "start an agent with that role, or take the requests back: cotal task cancel",
      ),
    );
  }
  return findings;
}
