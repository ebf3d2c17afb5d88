/**
 * Does a session stand for this holder (§10, §13.6)? Read from the session's own row at the leader, and
 * from the gate of the manager that serves it. This service never writes either.
 */
import { readRow } from "../../../shared/ledger/store.ts";
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { SessionRow, sessionKey } from "../../../shared/protocol/ledger/session-rows.ts";
import { demandManager } from "./managers.ts";
import type { PlaneParts } from "./parts.ts";

export type SessionClaim = {
  readonly endpoint: string;
  readonly sessionId: string;
  readonly epoch: number;
};

type Holder = { readonly owner: string; readonly actor: string; readonly lifecycleUid: string };

/** What must be equal beside the coordinates: the grant's signature at the exchange, its end at a connect. */
export type SessionProof = { readonly grantSig: string } | { readonly exp: number };

export type SessionStanding =
  | { readonly ok: true; readonly exp: number }
  | { readonly ok: false; readonly code: ErrorCode; readonly reason: string };

export async function sessionStanding(
  parts: Pick<PlaneParts, "ledger" | "isReservedOwner" | "now">,
  holder: Holder,
  { endpoint, sessionId, epoch }: SessionClaim,
  proof: SessionProof,
): Promise<SessionStanding> {
  const row = (await readRow(parts.ledger, "sessions", sessionKey(sessionId), SessionRow))?.value;
  const seconds = Math.floor(parts.now() / 1000);
  const { Expired, PermissionDenied, FailedPrecondition } = ErrorCode;
  if (row?.sessionId !== sessionId) return no(PermissionDenied, "there is no such session");
  if (row.state !== "active") return no(Expired, `the session is ${row.state}`);
  const wrong =
    "grantSig" in proof
      ? proof.grantSig === row.grantSig
        ? undefined
        : "the session was made by another grant"
      : proof.exp === row.exp
        ? undefined
        : "the session ends at another time than the bearer says";
  if (wrong !== undefined) return no(PermissionDenied, wrong);
  const { owner, actor, lifecycleUid } = row.holder;
  if (owner !== holder.owner || actor !== holder.actor || lifecycleUid !== holder.lifecycleUid) {
    return no(PermissionDenied, "the session is somebody else's");
  }
  if (row.endpoint !== endpoint || row.serving.epoch !== epoch) {
    return no(PermissionDenied, "the session is served by another start, or another endpoint");
  }
  if (row.exp <= seconds) return no(Expired, "the session has ended");
  const serving = await demandManager(parts, holder.owner, row.serving.instanceId);
  if (!serving.ok || serving.manager.epoch !== row.serving.epoch) {
    return no(FailedPrecondition, "the manager that serves the session is not registered under that start any more");
  }
  return { ok: true, exp: row.exp };
}

const no = (code: ErrorCode, reason: string): SessionStanding => ({ ok: false, code, reason });
