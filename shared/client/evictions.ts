/**
 * Ends a principal's connections and proves that nobody is connected as it (§13.1), through the delivery
 * daemon's oracle; where that does not answer, whoever asks counts for himself.
 *
 * Invariants
 * 1. `none` rests on a complete look that began after logins had settled, whoever took it.
 * 2. An oracle that is silent, refuses, or does not know is no proof of anything: the own sweep decides. Where that
 *    can't tell either, what the oracle misses is said.
 */
import { randomBytes } from "node:crypto";
import type { Connection } from "../broker/connect.ts";
import type { Connected } from "../broker/still-connected.ts";
import { DeliveryCommand } from "../grants/commands.ts";
import { CotalError, ErrorCode } from "../protocol/base/errors.ts";
import type { Principal } from "../protocol/base/principals.ts";
import {
  AclSweptAnswer,
  ORACLE_DEADLINE_MS,
  type PrincipalVerdict,
  PrincipalsAnswer,
  SWEEP_PATIENCE_MS,
} from "../protocol/endpoint/delivery-shapes.ts";
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

/** Ends whoever is connected now. True: each of those is proved gone; who comes back is let in anew. */
export function endedThrough(call: () => Call | undefined): (p: Principal) => Promise<boolean> {
  return async (p) => {
    const ask = call();
    const verdict = ask === undefined ? undefined : await verdictOf(ask, p);
    return verdict?.state === "gone" || verdict?.survived === 0;
  };
}

/** Is a read list swept for? Silence, and any refusal, is no. */
export function sweptThrough(call: () => Call | undefined): (p: Principal, uid: string, n: number) => Promise<boolean> {
  return async ({ owner, actor }, uid, revision) => {
    const args = { owner, actor, uid, revision };
    const options = { deadlineMs: 2 * SWEEP_PATIENCE_MS };
    try {
      const answer = await call()?.(EndpointName.Delivery, DeliveryCommand.AclSwept, args, options);
      return AclSweptAnswer.safeParse(answer?.data).data?.swept === true;
    } catch (thrown) {
      if (thrown instanceof CotalError) return false;
      throw thrown;
    }
  };
}

/** `call` is there once the connection is. */
export function evictedThrough(call: () => Call | undefined, sweep: ConnectionsOf): ConnectionsOf {
  return async (p) => {
    const ask = call();
    const verdict = ask === undefined ? undefined : await verdictOf(ask, p);
    if (verdict?.state === "gone") return { kind: "none" };
    if (verdict?.state === "live") return { kind: "some", count: Math.max(1, verdict.found - verdict.closed) };
    const own = await sweep(p);
    return own.kind === "unknown" && verdict?.why !== undefined ? { ...missing, why: verdict.why } : own;
  };
}

/** The oracle has looked, and knows better than who sees one server what keeps it from a proof. */
const missing = {
  kind: "unknown",
  code: ErrorCode.Unavailable,
  next: "bring every server of the broker back, and ask again; it goes on where it stands",
} as const;

async function verdictOf(call: Call, { owner, actor }: Principal): Promise<PrincipalVerdict | undefined> {
  try {
    const args = { principals: [{ owner, actor }] };
    const options = { deadlineMs: ORACLE_DEADLINE_MS };
    const { data } = await call(EndpointName.Delivery, DeliveryCommand.EvictPrincipals, args, options);
    const [verdict] = PrincipalsAnswer.parse(data).principals;
    return verdict?.owner === owner && verdict.actor === actor ? verdict : undefined;
  } catch (thrown) {
    if (thrown instanceof CotalError) return undefined;
    throw thrown;
  }
}
