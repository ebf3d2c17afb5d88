/**
 * Ends a principal's connections and proves that nobody is connected as it (§13.1), through the delivery
 * daemon's oracle; where that does not answer, whoever asks counts for himself.
 *
 * Invariants
 * 1. `none` rests on a complete look that began after logins had settled, whoever took it.
 * 2. An oracle that is silent, refuses, or does not know is no proof of anything: the own sweep decides.
 */
import { randomBytes } from "node:crypto";
import type { Connection } from "../broker/connect.ts";
import type { Connected } from "../broker/still-connected.ts";
import { DeliveryCommand } from "../grants/commands.ts";
import { CotalError } from "../protocol/base/errors.ts";
import type { Principal } from "../protocol/base/principals.ts";
import { ORACLE_DEADLINE_MS, PrincipalsAnswer } from "../protocol/endpoint/delivery-shapes.ts";
import { type Caller, EndpointName } from "../protocol/endpoint/grammar.ts";
import { type Call, createCaller } from "./caller.ts";
import { watchDenials } from "./denials.ts";

type ConnectionsOf = (p: Principal) => Promise<Connected>;

/** A daemon's calls over a connection in front that it has for other things. */
export function daemonCalls(connection: Pick<Connection, "nc" | "inboxPrefix">, space: string, me: Caller): Call {
  return createCaller({
    nc: connection.nc,
    space,
    caller: me,
    name: me.principal.actor,
    inboxPrefix: connection.inboxPrefix,
    denials: watchDenials(connection.nc),
    random: randomBytes,
  });
}

/** `call` is there once the connection is. */
export function evictedThrough(call: () => Call | undefined, sweep: ConnectionsOf): ConnectionsOf {
  return async (p) => {
    const ask = call();
    return (ask === undefined ? undefined : await evicted(ask, p)) ?? sweep(p);
  };
}

async function evicted(call: Call, { owner, actor }: Principal): Promise<Connected | undefined> {
  try {
    const args = { principals: [{ owner, actor }] };
    const options = { deadlineMs: ORACLE_DEADLINE_MS };
    const { data } = await call(EndpointName.Delivery, DeliveryCommand.EvictPrincipals, args, options);
    const [verdict] = PrincipalsAnswer.parse(data).principals;
    if (verdict?.owner !== owner || verdict.actor !== actor) return undefined;
    if (verdict.state === "gone") return { kind: "none" };
    return verdict.state === "live" ? { kind: "some", count: Math.max(1, verdict.found - verdict.closed) } : undefined;
  } catch (thrown) {
    if (thrown instanceof CotalError) return undefined;
    throw thrown;
  }
}
