/**
 * What is known of a command's effect, on both sides (§13.3 "Effect outcome").
 *
 * Invariants
 * 1. Only the responder states an outcome in a reply. The caller classifies its own refusals from what
 *    it has seen, and of its four cases one alone is `unknown`.
 * 2. `not-executed` is said only if it is certain: somebody may repeat a `write` upon it.
 */
import { Outcome } from "../base/errors.ts";
import type { EndpointReply } from "./envelope.ts";

/** Where a responder was when it refused. */
export const Seam = {
  /** Before the handler was called. */
  BeforeDispatch: "before-dispatch",
  /** The handler itself refused, or failed. */
  InHandler: "in-handler",
  /** The handler had returned. */
  AfterHandler: "after-handler",
} as const;
export type Seam = (typeof Seam)[keyof typeof Seam];

/**
 * The outcome of a responder's refusal. `stated` is what the handler says of itself: a handler that says
 * nothing is `unknown`, and one whose effect may have begun can't say that nothing happened.
 */
export function responderOutcome(seam: Seam, stated?: Outcome, effectMayHaveBegun = false): Outcome {
  if (seam === Seam.BeforeDispatch) return Outcome.NotExecuted;
  if (seam === Seam.AfterHandler) return Outcome.Executed;
  const denies = stated === Outcome.NotExecuted && effectMayHaveBegun;
  return stated === undefined || denies ? Outcome.Unknown : stated;
}

/** What a caller has seen when it refuses locally. */
export type Observed =
  /** The request never went out. */
  | { readonly seen: "unpublished" }
  /** A reply was read, and then rejected for a reason of the caller's own. */
  | { readonly seen: "reply"; readonly reply: EndpointReply }
  /**
   * The broker's status for "no responders". Only on the reserved sentinel, which no responder may
   * publish to, is it the broker that speaks.
   */
  | { readonly seen: "no-responders"; readonly onSentinel: boolean }
  /** Nothing came, or the connection went away after the request did. */
  | { readonly seen: "nothing" };

export function outcomeOf(observed: Observed): Outcome {
  switch (observed.seen) {
    case "unpublished":
      return Outcome.NotExecuted;
    case "reply":
      return replyOutcome(observed.reply);
    case "no-responders":
      return observed.onSentinel ? Outcome.NotExecuted : Outcome.Unknown;
    case "nothing":
      return Outcome.Unknown;
  }
}

/** What a reply says of the effect; one that leaves it out says `unknown`. */
function replyOutcome(reply: EndpointReply): Outcome {
  return reply.ok ? Outcome.Executed : (reply.error.outcome ?? Outcome.Unknown);
}
