/**
 * The end of an actor's lifecycle: the terminal barrier (§13.1), as one operation that any process may take up
 * where another has left it.
 *
 * `beginEnd` denies everything new: gate frozen, head retiring, every root revoked. `endConnections` ends who is
 * connected and proves it. `finishEnd` does both, removes what the lifecycle left, and only then frees the alias.
 *
 * Invariants
 * 1. One operation id for the end of one lifecycle, whoever asks and however often, and one run of it at a time.
 * 2. The alias is free only when clean-up is done, and that begins only when nobody is connected.
 * 3. A proof frees it, never a clock: the question that it answers is asked after the last row was revoked, and the
 *    look at the connections begins later than any login that was under way then (decision H65).
 * 4. A lifecycle whose gate never opened has let nobody in, and needs no such proof.
 */
import type { Connected } from "../../../shared/broker/still-connected.ts";
import { type ActivationRequest, activate } from "../../../shared/ledger/activation.ts";
import { readGate, readHead } from "../../../shared/ledger/moves.ts";
import {
  type Retiring,
  beginRetirement,
  completeRetirement,
  managedRetirementOpId,
} from "../../../shared/ledger/retirement.ts";
import { endHolders } from "./holders.ts";
import { CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { type Principal, dotForm } from "../../../shared/protocol/base/principals.ts";
import { MAX_BEARER_SECONDS } from "../../../shared/trust/bearer.ts";
import { type PlaneParts, refusal, settled } from "./parts.ts";
import { openIfDead } from "./reconcile.ts";

/**
 * Begins a lifecycle that an enrolment has left, or not yet begun, without ever opening its gate: an end
 * needs a head, and what has an end can't be begun any more, however late somebody is with it.
 */
export async function beginToEnd(parts: PlaneParts, request: ActivationRequest): Promise<void> {
  const head = await readHead(parts.ledger, request.principal);
  if (head !== undefined && (head.value.state !== "retired" || head.value.lifecycleUid === request.uid)) return;
  const stop = refusal(ErrorCode.Cancelled, "it is only begun to be ended", "nothing is left to do");
  await activate(parts.ledger, request, () => Promise.reject(stop)).catch((thrown: unknown) => {
    if (thrown !== stop) throw thrown;
  });
}

/** Denies everything new. `undefined` if the lifecycle never began, or is over. */
export async function beginEnd(parts: PlaneParts, p: Principal, uid: string): Promise<Retiring | undefined> {
  await openIfDead(parts, p, uid);
  return settled(parts, async () => {
    const head = await readHead(parts.ledger, p);
    if (head === undefined || head.value.lifecycleUid !== uid || head.value.state === "retired") return undefined;
    return beginRetirement(parts.ledger, p, managedRetirementOpId(uid), uid);
  });
}

/** Of a lifecycle whose end has begun: ends its connections, and says what is proved of them then. */
export async function endConnections(parts: PlaneParts, p: Principal, uid: string): Promise<Connected> {
  // A gate is born at generation 0 and opens at 1: under one that never opened nobody has got anything.
  const gate = await readGate(parts.ledger, uid);
  return gate?.value.generation === 0 ? { kind: "none" } : parts.connectionsOf(p);
}

/** Through to the end; refuses, and says what is missing, until it is proved that nobody is connected. */
export async function finishEnd(parts: PlaneParts, p: Principal, uid: string): Promise<void> {
  await parts.ends(uid, () => finishOnce(parts, p, uid));
}

async function finishOnce(parts: PlaneParts, p: Principal, uid: string): Promise<void> {
  // First: from here on nobody gets in, and only therefore is the proof one.
  const begun = await beginEnd(parts, p, uid);
  if (begun === undefined) return;
  demandNobody(await endConnections(parts, p, uid), p, parts.now());
  await endHolders(parts, begun.others);
  await complete(parts, p, uid, begun.opId);
}

/** What is proved of the connections; `remains` says why it is not over yet, in words. */
export type Ended = {
  /** The operation that ends it; `undefined` if it never began, or is over. */
  readonly opId: string | undefined;
  readonly connections: Connected;
  readonly remains?: string;
};

/** As far as it goes now. What is denied stays denied, whatever this says. */
export async function endIfProved(parts: PlaneParts, p: Principal, uid: string): Promise<Ended> {
  return parts.ends(uid, async () => {
    const begun = await beginEnd(parts, p, uid);
    if (begun === undefined) return { opId: undefined, connections: { kind: "none" } };
    const { opId } = begun;
    const connections = await endConnections(parts, p, uid);
    try {
      demandNobody(connections, p, parts.now());
      await endHolders(parts, begun.others);
      await complete(parts, p, uid, opId);
      return { opId, connections };
    } catch (thrown) {
      if (!(thrown instanceof CotalError)) throw thrown;
      return { opId, connections, remains: thrown.message };
    }
  });
}

async function complete(parts: PlaneParts, p: Principal, uid: string, opId: string): Promise<void> {
  const streams = await parts.frontiers();
  await settled(parts, () =>
    completeRetirement(parts.ledger, p, uid, opId, streams, () => parts.removeRemains(p, uid)),
  );
}

/** Throws unless it is proved that nobody is connected. */
export function demandNobody(found: Connected, p: Principal, now: number): void {
  if (found.kind === "none") return;
  if (found.kind === "unknown") {
    throw refusal(found.code, `whether ${dotForm(p)} is still connected is not known: ${found.why}`, found.next);
  }
  // A hint and no more: nothing but the proof frees the name.
  const ends = new Date(now + MAX_BEARER_SECONDS * 1000).toISOString();
  throw refusal(
    ErrorCode.FailedPrecondition,
    `${dotForm(p)} is still connected: ${found.count} connection${found.count === 1 ? "" : "s"}`,
    `its last bearer ends by ${ends}: ask again then, or when it has disconnected; where the delivery service runs, it is ended at once`,
  );
}
