/**
 * Rows for the other daemons of a space (decisions H14, H45): they mint their own credentials from their
 * own signing keys, and this service alone writes the ledger.
 *
 * Invariant: only a daemon that is named here is served, under the owner that is the space itself.
 */
import { enterDaemonRows } from "../../../shared/ledger/daemon-enter.ts";
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { dotForm } from "../../../shared/protocol/base/principals.ts";
import type { DaemonEnterArgs } from "../../../shared/protocol/endpoint/auth-shapes.ts";
import type { Caller } from "../../../shared/protocol/endpoint/grammar.ts";
import { type PlaneParts, demandPlane, refusal } from "./parts.ts";

/** Daemons that have their rows from here. */
const SERVED: ReadonlySet<string> = new Set(["provisioner", "delivery"]);

export async function enterDaemon(
  parts: PlaneParts,
  caller: Caller,
  args: DaemonEnterArgs,
): Promise<{ readonly epoch?: number }> {
  await demandPlane(parts);
  const { owner, actor } = caller.principal;
  if (!parts.isReservedOwner(owner) || !SERVED.has(actor)) {
    throw refusal(
      ErrorCode.PermissionDenied,
      `${dotForm(caller.principal)} is no daemon of this space`,
      "nothing to do",
    );
  }
  return enterDaemonRows(parts.ledger, caller, args, parts.now());
}
