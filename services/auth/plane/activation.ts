/**
 * The activation of a lifecycle whose UID a row names (§13.1): one operation for one UID, whoever drives it.
 *
 * Its id and digest come from the row alone, so an enrolment or an opening, its retry, the sweep, and an end that
 * begins it first, from any process, are the same operation and never a second one.
 */
import type { ActivationRequest } from "../../../shared/ledger/activation.ts";
import { canonicalDigest } from "../../../shared/protocol/base/canonical.ts";
import { type Principal, dotForm } from "../../../shared/protocol/base/principals.ts";
import type { PlaneParts } from "./parts.ts";

/** `by`: what makes such lifecycles, an actor's row or a chat session's. */
export function activationOf(
  { managerInstance, now, random }: Pick<PlaneParts, "managerInstance" | "now" | "random">,
  by: "enrol" | "chat",
  p: Principal,
  uid: string,
): ActivationRequest {
  return {
    opId: `${by}-${uid}`,
    principal: p,
    requestDigest: canonicalDigest({ principal: dotForm(p), uid }),
    managerInstance,
    uid,
    now: now(),
    random,
  };
}
