/** Plane liveness (§6.1): the answer's shape, and how a caller grades what it got. */
import { z } from "zod";
import { parseJson } from "../base/json.ts";
import { Plane } from "../base/subjects.ts";

export const ResponderState = z.enum(["bound", "unbound", "stale", "unknown"]);
export type ResponderState = z.infer<typeof ResponderState>;

export const LivenessAnswer = z.looseObject({
  plane: z.enum([Plane.Manager, Plane.Delivery]),
  responder: ResponderState,
  instance: z.string().min(1).optional(),
});
export type LivenessAnswer = z.infer<typeof LivenessAnswer>;

export type LivenessGrade = { readonly responder: ResponderState; readonly instance?: string };

/** What happened when asking. Only the broker's own no-responders says `unbound` unanswered. */
export type ProbeOutcome =
  | { readonly kind: "reply"; readonly payload: Uint8Array }
  | { readonly kind: "no-responders" }
  | { readonly kind: "failed" };

/** The table of §6.1 "Caller grading". Never throws. */
export function gradeLiveness(asked: Plane, outcome: ProbeOutcome): LivenessGrade {
  if (outcome.kind === "no-responders") return { responder: "unbound" };
  if (outcome.kind === "failed") return { responder: "unknown" };
  const answer = LivenessAnswer.safeParse(parseJson(outcome.payload));
  if (!answer.success || answer.data.plane !== asked) return { responder: "unknown" };
  const { responder, instance } = answer.data;
  return instance === undefined ? { responder } : { responder, instance };
}
