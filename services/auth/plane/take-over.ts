/**
 * A takeover of an actor's lifecycle: everything that it was let in by ends, and what it is granted stays (§13.1).
 *
 * Invariant: it runs beside no end and no other takeover of the same lifecycle in this process; between processes the
 * gate decides.
 */
import { takeOver, takeoverOpId } from "../../../shared/ledger/takeover.ts";
import { stageTakeover } from "../../../shared/ledger/takeover-stage.ts";
import { readHead } from "../../../shared/ledger/moves.ts";
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { type Principal, dotForm } from "../../../shared/protocol/base/principals.ts";
import { type PlaneParts, refusal } from "./parts.ts";
import { demandNobody, endConnections } from "./retire.ts";

/** Hands back the epoch that has begun. Throws until it is proved that nobody of the one before is connected. */
export async function takeOverActor(
  parts: PlaneParts,
  p: Principal,
  uid: string,
  epoch: number | undefined,
): Promise<number> {
  return parts.ends(uid, async () => {
    const head = await readHead(parts.ledger, p);
    if (head?.value.state !== "active" || head.value.lifecycleUid !== uid) {
      throw refusal(
        ErrorCode.FailedPrecondition,
        `${dotForm(p)} is not active under ${uid}`,
        "ask again with the lifecycle that cotal actor list shows",
      );
    }
    const fromEpoch = epoch ?? head.value.processEpoch;
    const takeover = { principal: p, uid, opId: takeoverOpId(uid, fromEpoch), fromEpoch };
    // An epoch that is over has been staged by whoever ended it.
    if (head.value.processEpoch === fromEpoch) await stageTakeover(parts.ledger, takeover, parts.executor());
    return takeOver(parts.ledger, takeover, async () => {
      demandNobody(await endConnections(parts, p, uid), p, parts.now());
    });
  });
}
