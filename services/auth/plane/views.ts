/**
 * May this actor have this view (§10)? Asked twice: when the exchange is about to sign, where a claim is
 * chosen, and at every connect, where the ledger is asked about that claim again.
 *
 * Invariants
 * 1. The scope is the row's as it is now; a bearer brings none.
 * 2. A managed agent has no view but `manager-caller`.
 * 3. Nothing is written here.
 */
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { dotForm } from "../../../shared/protocol/base/principals.ts";
import { ProofKind, VIEWS, View, type ViewClaim } from "../../../shared/protocol/endpoint/views.ts";
import type { ActorRow } from "../../../shared/protocol/ledger/actor-rows.ts";
import type { BearerAct, Refused, ViewRequest, Viewed } from "./authority-type.ts";
import { SelectionRefusal, demandManager, selectManager } from "./managers.ts";
import type { PlaneParts } from "./parts.ts";
import { sessionStanding } from "./session-grants.ts";

export type ViewParts = Pick<PlaneParts, "ledger" | "isReservedOwner" | "localManager" | "now">;

const refuse = (code: ErrorCode, reason: string): Refused => ({ ok: false, code, reason });

/** Why this row may not have this view, whatever is claimed. */
function unentitled(row: ActorRow, view: View): Refused | undefined {
  const { proof, scope } = VIEWS[view];
  const who = dotForm(row);
  if (row.kind === "managed" && !proof.includes(ProofKind.Agent)) {
    return refuse(ErrorCode.PermissionDenied, `${who} is a managed agent, and ${view} is for people`);
  }
  if (scope === undefined || row.capabilities.includes(scope)) return undefined;
  return refuse(ErrorCode.PermissionDenied, `${view} needs the scope ${scope}, which ${who} is not granted`);
}

/** At a connect: the bearer's view and its claim, against the ledger as it is now. */
export async function viewRefusal(parts: ViewParts, act: BearerAct, row: ActorRow): Promise<Refused | undefined> {
  if (act.view === undefined) return undefined;
  const refused = unentitled(row, act.view);
  if (refused !== undefined) return refused;
  if (act.view === View.ManagerCaller) {
    const selection = await demandManager(parts, act.owner, act.managerInstanceId);
    return selection.ok ? undefined : ofSelection(selection.refusal);
  }
  if (act.view === View.SessionCaller) {
    const standing = await sessionStanding(parts, act, act.session, { exp: act.session.exp });
    return standing.ok ? undefined : refuse(standing.code, standing.reason);
  }
  return undefined;
}

/** At the exchange: the claim that the bearer will carry. */
export async function chooseView(parts: ViewParts, row: ActorRow, request: ViewRequest): Promise<Viewed> {
  const refused = unentitled(row, request.view);
  if (refused !== undefined) return refused;
  if (request.view === View.ManagerCaller) {
    const person = row.kind === "interactive";
    const selection = await selectManager(parts, row.owner, { pinned: request.managerInstanceId, person });
    if (!selection.ok) return { ...ofSelection(selection.refusal), selection: selection.refusal };
    return chosen({ view: request.view, managerInstanceId: selection.manager.instanceId });
  }
  if (request.view === View.SessionCaller) {
    const { endpoint, sessionId, epoch, sig } = request.sessionGrant;
    const standing = await sessionStanding(parts, row, { endpoint, sessionId, epoch }, { grantSig: sig });
    if (!standing.ok) return refuse(standing.code, standing.reason);
    return chosen({ view: request.view, session: { endpoint, sessionId, epoch, exp: standing.exp } });
  }
  if (request.view === View.DmReader) {
    const { view, lifecycleUid } = request;
    if (lifecycleUid === row.lifecycleUid) return chosen({ view });
    return refuse(ErrorCode.PermissionDenied, `the proof was made for another lifecycle of ${dotForm(row)}`);
  }
  return chosen(request);
}

const chosen = (claim: ViewClaim): Viewed => ({ ok: true, claim });

const SELECTION_WORDS: Readonly<Record<SelectionRefusal, string>> = {
  [SelectionRefusal.None]: "no manager is registered that you may be sent to",
  [SelectionRefusal.Ambiguous]: "several managers are registered: name one as managerInstanceId",
  [SelectionRefusal.NotLive]: "that manager instance is not registered, not ready, or not one that you may call",
  [SelectionRefusal.OwnUnavailable]: "your own manager is registered and not ready; no other one stands in for it",
};

function ofSelection(refusal: SelectionRefusal): Refused {
  return refuse(ErrorCode.FailedPrecondition, SELECTION_WORDS[refusal]);
}
