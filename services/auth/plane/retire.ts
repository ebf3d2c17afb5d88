/**
 * The end of an actor's lifecycle, as far as the auth service can prove it by itself.
 *
 * `beginEnd` denies everything new: gate frozen, head retiring, every root revoked. Who is connected then
 * stays so until the connection ends, with its bearer at the latest. `finishEnd` frees the alias once it is
 * proved that nobody is connected under it. (The barrier that ends connections is the lifecycle work's: it
 * comes behind `connectionsOf`.)
 *
 * Invariants
 * 1. One operation id for the end of one lifecycle, whoever asks and however often (§13.1).
 * 2. The alias is free only when clean-up is done, and that begins only when nobody is connected.
 * 3. A proof frees it, never a clock: the time in a refusal is a hint of when to ask again.
 * 4. A lifecycle whose gate never opened has let nobody in, and needs no such proof.
 */
import { type ActivationRequest, activate } from "../../../shared/ledger/activation.ts";
import { beginRetirement, completeRetirement } from "../../../shared/ledger/retirement.ts";
import { readRow } from "../../../shared/ledger/store.ts";
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { type Principal, dotForm } from "../../../shared/protocol/base/principals.ts";
import { GateRow, HeadRow, ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import { MAX_BEARER_SECONDS } from "../../../shared/trust/bearer.ts";
import { type PlaneParts, refusal, settled } from "./parts.ts";

export const endOpId = (uid: string): string => `retire-${uid}`;

/**
 * Begins a lifecycle that an enrolment has left, or not yet begun, without ever opening its gate: an end
 * needs a head, and what has an end can't be begun any more, however late somebody is with it.
 */
export async function beginToEnd(parts: PlaneParts, request: ActivationRequest): Promise<void> {
  const head = await readRow(parts.ledger, "records", ledgerKey.head(request.principal), HeadRow);
  if (head !== undefined && (head.value.state !== "retired" || head.value.lifecycleUid === request.uid)) return;
  const stop = refusal(ErrorCode.Cancelled, "it is only begun to be ended", "nothing is left to do");
  await activate(parts.ledger, request, () => Promise.reject(stop)).catch((thrown: unknown) => {
    if (thrown !== stop) throw thrown;
  });
}

/** First half. `undefined` if the lifecycle never began, or is over. */
export async function beginEnd(parts: PlaneParts, p: Principal, uid: string): Promise<string | undefined> {
  return settled(parts, async () => {
    const head = await readRow(parts.ledger, "records", ledgerKey.head(p), HeadRow);
    if (head === undefined || head.value.lifecycleUid !== uid || head.value.state === "retired") return undefined;
    return (await beginRetirement(parts.ledger, p, endOpId(uid), uid)).opId;
  });
}

/** Second half; refuses, and says what is missing, until it is proved that nobody is connected. */
export async function finishEnd(parts: PlaneParts, p: Principal, uid: string, revokedAt: number): Promise<void> {
  // First: from here on nobody gets in, and only therefore is the proof one.
  const opId = await beginEnd(parts, p, uid);
  if (opId === undefined) return;
  if (await everOpened(parts, uid)) await demandNobody(parts, p, revokedAt);
  const streams = await parts.frontiers();
  await settled(parts, () =>
    completeRetirement(parts.ledger, p, uid, opId, streams, () => parts.removeRemains(p, uid)),
  );
}

/** A gate is born at generation 0 and opens at 1: under one that never opened nobody has got anything (§13.1). */
async function everOpened({ ledger }: PlaneParts, uid: string): Promise<boolean> {
  const gate = await readRow(ledger, "auth", ledgerKey.gate(uid), GateRow);
  return gate?.value.generation !== 0;
}

async function demandNobody(parts: PlaneParts, p: Principal, revokedAt: number): Promise<void> {
  const found = await parts.connectionsOf(p);
  if (found.kind === "none") return;
  if (found.kind === "unknown") {
    throw refusal(found.code, `whether ${dotForm(p)} is still connected is not known: ${found.why}`, found.next);
  }
  const ends = new Date(revokedAt + MAX_BEARER_SECONDS * 1000).toISOString();
  throw refusal(
    ErrorCode.FailedPrecondition,
    `the revoked ${dotForm(p)} is still connected: ${found.count} connection${found.count === 1 ? "" : "s"}`,
    `its last bearer ends by ${ends}: ask again then, or when it has disconnected`,
  );
}
