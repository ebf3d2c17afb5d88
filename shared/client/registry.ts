/**
 * The registry of what serves, read through the delivery service (supplement A, service record): for browsing,
 * and for the set of instances that a scatter expects.
 */
import { ReadCommand } from "../grants/commands.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { PROTOCOL_VERSION } from "../protocol/contract/descriptor.ts";
import { EndpointName } from "../protocol/endpoint/grammar.ts";
import { EndpointsAnswer, type ShownEndpoint } from "../protocol/endpoint/reads-shapes.ts";
import type { Call } from "./caller.ts";

/** Every instance in the registry, by endpoint and instance; of one endpoint, if one is named. */
export async function readEndpoints(call: Call, deadlineMs: number, endpoint?: string): Promise<ShownEndpoint[]> {
  const found = new Map<string, ShownEndpoint>();
  let cursor: number | undefined;
  for (;;) {
    const args = cursor === undefined ? {} : { cursor };
    const { data } = await call(EndpointName.Delivery, ReadCommand.Endpoints, args, { deadlineMs });
    const page = EndpointsAnswer.safeParse(data);
    if (!page.success) throw malformed("the list of endpoints does not have the shape of one");
    for (const entry of page.data.endpoints) {
      // An entry that changes meanwhile is met again; the newer one counts.
      if (endpoint === undefined || entry.endpoint === endpoint) found.set(keyOf(entry), entry);
    }
    const next = page.data.cursor;
    if (next === undefined) {
      return [...found].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, entry]) => entry);
    }
    if (cursor !== undefined && next <= cursor) throw malformed("the list of endpoints does not advance");
    cursor = next;
  }
}

const keyOf = ({ endpoint, instanceId }: ShownEndpoint) => `${endpoint} ${instanceId}`;

const GONE = "stopped";

/** One that has said which process it is, and has not said that it stops. */
export function isLive(entry: ShownEndpoint): entry is ShownEndpoint & { readonly epoch: number } {
  return entry.epoch !== undefined && entry.state !== GONE;
}

/** An instance of another protocol is not addressed: it would read a request as something else (supplement A). */
export function refuseForeign(entries: readonly ShownEndpoint[]): void {
  const foreign = entries.find(({ protocol }) => protocol.v !== PROTOCOL_VERSION);
  if (foreign === undefined) return;
  throw new CotalError(
    ErrorCode.UnsupportedVersion,
    `the instance ${foreign.instanceId} of ${foreign.endpoint} speaks protocol version ${foreign.protocol.v}; this client knows ${PROTOCOL_VERSION}`,
    { outcome: Outcome.NotExecuted, next: "use a client of that version" },
  );
}

function malformed(message: string): CotalError {
  return new CotalError(ErrorCode.Internal, message, {
    outcome: Outcome.Executed,
    next: "check that the daemons and this client are of one version",
  });
}
