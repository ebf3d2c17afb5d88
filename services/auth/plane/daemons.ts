/**
 * Rows for the other daemons of a space (decisions H14, H45): they mint their own credentials from their
 * own signing keys, and this service alone writes the ledger.
 *
 * Invariants
 * 1. The caller is the holder: who asks comes from the subject that the broker has checked.
 * 2. Only a daemon that is named here is served, under the owner that is the space itself.
 * 3. No row ends later than a daemon's credential lives.
 */
import { Life } from "../../../shared/grants/matrix.ts";
import { enterCredential } from "../../../shared/ledger/activation.ts";
import { takeEpoch } from "../../../shared/ledger/epoch.ts";
import { activateSelf } from "../../../shared/ledger/self.ts";
import { ErrorCode, badRequest } from "../../../shared/protocol/base/errors.ts";
import { dotForm } from "../../../shared/protocol/base/principals.ts";
import type { DaemonEnterArgs } from "../../../shared/protocol/endpoint/auth-shapes.ts";
import type { Caller } from "../../../shared/protocol/endpoint/grammar.ts";
import { type PlaneParts, demandPlane, refusal } from "./parts.ts";

/** Daemons that have their rows from here. */
const SERVED: ReadonlySet<string> = new Set(["provisioner"]);
const CLOCKS_APART = 60;

export async function enterDaemon(
  parts: PlaneParts,
  { principal, uid }: Caller,
  { begin, credentials }: DaemonEnterArgs,
): Promise<{ readonly epoch?: number }> {
  demandPlane(parts);
  if (!parts.isReservedOwner(principal.owner) || !SERVED.has(principal.actor)) {
    throw refusal(ErrorCode.PermissionDenied, `${dotForm(principal)} is no daemon of this space`, "nothing to do");
  }
  const latest = Math.floor(parts.now() / 1000) + Life.Host + CLOCKS_APART;
  if (credentials.some(({ expires }) => expires > latest)) {
    throw badRequest(
      "a daemon's credential lives for a day at most",
      "mint it with its profile's own life; if the clocks of both machines are apart, let them keep time by NTP",
    );
  }
  const { ledger } = parts;
  await activateSelf(ledger, { principal, uid });
  const epoch = begin ? await takeEpoch(ledger, principal, uid) : undefined;
  for (const { credentialId, expires } of credentials) {
    await enterCredential(ledger, { principal, uid, credentialId, expires });
  }
  return epoch === undefined ? {} : { epoch };
}
