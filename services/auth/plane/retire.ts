/**
 * The end of an actor's lifecycle, as far as the auth service can prove it by itself.
 *
 * `beginEnd` denies everything new: gate frozen, head retiring, every root revoked. What is connected
 * then is the callout's, and ends by itself: a JWT never outlives its bearer. Once the longest bearer
 * that could have left has expired, nobody holds a connection, and `finishEnd` may free the alias. (The
 * barrier that evicts at once is the lifecycle work's; it drives the same two halves.)
 *
 * Invariants
 * 1. One operation id for the end of one lifecycle, whoever asks and however often (§13.1).
 * 2. The alias is free only when clean-up is done.
 */
import { beginRetirement, completeRetirement } from "../../../shared/ledger/retirement.ts";
import { readRow } from "../../../shared/ledger/store.ts";
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { type Principal, dotForm } from "../../../shared/protocol/base/principals.ts";
import { HeadRow, ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import { MAX_BEARER_SECONDS } from "../../../shared/trust/bearer.ts";
import { type PlaneParts, refusal, settled } from "./parts.ts";

/** The longest life of a bearer, and room for clocks that differ and for an answer on its way (H65). */
export const QUIET_MS = (MAX_BEARER_SECONDS + 60) * 1000;

export const endOpId = (uid: string): string => `retire-${uid}`;

/** First half. `undefined` if the lifecycle never began, or is over. */
export async function beginEnd(parts: PlaneParts, p: Principal, uid: string): Promise<string | undefined> {
  return settled(parts, async () => {
    const head = await readRow(parts.ledger, "records", ledgerKey.head(p), HeadRow);
    if (head === undefined || head.value.lifecycleUid !== uid || head.value.state === "retired") return undefined;
    return (await beginRetirement(parts.ledger, p, endOpId(uid))).opId;
  });
}

/** Second half; refuses until nothing of the lifecycle can be connected any more. */
export async function finishEnd(parts: PlaneParts, p: Principal, uid: string, revokedAt: number): Promise<void> {
  const opId = await beginEnd(parts, p, uid);
  if (opId === undefined) return;
  const left = revokedAt + QUIET_MS - parts.now();
  if (left > 0) {
    throw refusal(
      ErrorCode.FailedPrecondition,
      `connections of the revoked ${dotForm(p)} may last ${Math.ceil(left / 60_000)} minutes more`,
      "grant it again after that, or grant another name",
    );
  }
  const streams = await parts.frontiers();
  await settled(parts, () =>
    completeRetirement(parts.ledger, p, uid, opId, streams, () => parts.removeRemains(p, uid)),
  );
}
