/** A caller and a foreign server on one broker: what the tests of the caller share. */
import { randomBytes } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import { z } from "zod";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import { type EndpointClient, createEndpointClient } from "../../shared/client/endpoint-client.ts";
import { type Rail, type RailOptions, createRail } from "../../shared/client/rail.ts";
import type { RetryClock } from "../../shared/client/retry.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import {
  OPEN_OWNER,
  type Principal,
  drawLifecycleUid,
  drawNonce,
  principal,
} from "../../shared/protocol/base/principals.ts";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { defineCluster } from "../../shared/protocol/contract/declare.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";

export const SPACE = "caller";
export const ENDPOINT = "com.acme.clerk";
export const me = { principal: principal(OPEN_OWNER, "caller"), uid: drawLifecycleUid(randomBytes) };

export const CLERK = defineCluster({
  urn: "com.acme.clerk.v1",
  revision: 1,
  commands: [
    {
      name: "look",
      class: "ephemeral",
      effect: "read",
      input: z.looseObject({ at: z.string() }),
      output: z.looseObject({ seen: z.string() }),
    },
    { name: "put", class: "ephemeral", effect: "write", input: z.looseObject({ at: z.string() }) },
    {
      name: "file",
      class: "journal",
      effect: "write",
      admissionCeiling: { maxBytes: 100, maxDepth: 4, maxItems: 10 },
    },
    { name: "nudge", class: "ephemeral", effect: "write", modes: ["self", "owner", "exact"] },
  ],
});
export const contract = compileContract([CLERK], createValidators());

/** An open broker's connection, as a caller has it. */
export async function dial(url: string, name: string): Promise<Connection> {
  const prefix = inboxPrefix(drawLifecycleUid(randomBytes), drawNonce(randomBytes));
  return openConnection({ servers: [url], inboxPrefix: prefix, name, reconnect: { kind: "endless" } });
}

export type CallerRig = { readonly rail: Rail; readonly client: EndpointClient };

export type CallerRigOptions = {
  readonly rail?: Partial<RailOptions>;
  readonly peer?: (who: Principal) => Promise<{ readonly protocolVersion?: string } | undefined>;
  readonly clock?: Partial<RetryClock>;
};

export function callerOn(nc: NatsConnection, prefix: string, options: CallerRigOptions = {}): CallerRig {
  const rail = createRail({
    nc,
    space: SPACE,
    caller: me,
    name: "caller",
    inboxPrefix: prefix,
    denials: watchDenials(nc),
    random: randomBytes,
    ...options.rail,
  });
  const client = createEndpointClient({
    rail,
    ...(options.peer === undefined ? {} : { peer: options.peer }),
    ...(options.clock === undefined ? {} : { clock: options.clock }),
  });
  return { rail, client };
}
