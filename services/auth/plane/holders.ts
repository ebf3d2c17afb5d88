/** The connections of whoever holds what was taken back (§13.1): ended, and proved ended, or the operation stops here. */
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { type Principal, dotForm } from "../../../shared/protocol/base/principals.ts";
import { type PlaneParts, refusal } from "./parts.ts";

/**
 * They may come back with what is their own, so that nobody is there is not asked for: every connection from before is
 * ended, and what was taken back lets nobody in. Throws `unavailable` where that is not proved.
 */
export async function endHolders(
  { endConnections }: Pick<PlaneParts, "endConnections">,
  holders: readonly Principal[],
): Promise<void> {
  const ended = await Promise.all(holders.map(async (p) => ({ p, proved: await endConnections(p) })));
  const left = ended.find(({ proved }) => !proved);
  if (left === undefined) return;
  throw refusal(
    ErrorCode.Unavailable,
    `whether the connections of ${dotForm(left.p)} have ended is not known: it held what was taken back`,
    "ask again once the delivery service runs: it ends them and proves it",
  );
}
