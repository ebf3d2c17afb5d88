/**
 * Asks whether a plane of the space is served (§6.1): presence only.
 *
 * Invariants: an unknown plane is refused before anything is published; the request names a reply
 * subject under its own, with a fresh nonce, so the broker's no-responders reaches it; only that
 * answer says `unbound` unanswered, and every other failure is `unknown`.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { badRequest } from "../protocol/base/errors.ts";
import { type Principal, type RandomBytes, drawNonce } from "../protocol/base/principals.ts";
import { type Plane, isPlane, spaceSubjects } from "../protocol/base/subjects.ts";
import { type LivenessGrade, type ProbeOutcome, gradeLiveness } from "../protocol/chat/liveness.ts";
import type { DenialWatch } from "./denials.ts";
import { statusOf } from "./wire.ts";

export type ProbeOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly me: Principal;
  readonly denials: DenialWatch;
  readonly random: RandomBytes;
  readonly timeoutMs: number;
};

export async function probePlane(options: ProbeOptions, plane: Plane): Promise<LivenessGrade> {
  if (!isPlane(plane)) throw badRequest("there is no such plane", "ask for manager or delivery");
  return gradeLiveness(plane, await ask(options, plane));
}

function ask({ nc, space, me, denials, random, timeoutMs }: ProbeOptions, plane: Plane): Promise<ProbeOutcome> {
  const subjects = spaceSubjects(space);
  const request = subjects.live(plane, me);
  const reply = subjects.liveReply(plane, me, drawNonce(random));
  return new Promise((resolve) => {
    const settle = (outcome: ProbeOutcome): void => {
      clearTimeout(timer);
      unwatch();
      subscription.unsubscribe();
      resolve(outcome);
    };
    const failed = (): void => settle({ kind: "failed" });
    const subscription = nc.subscribe(reply, {
      callback: (error, message) => {
        if (error !== null) return failed();
        settle(statusOf(message) === 503 ? { kind: "no-responders" } : { kind: "reply", payload: message.data });
      },
    });
    const unwatch = denials.watch("publish", request, failed);
    const timer = setTimeout(failed, timeoutMs);
    try {
      nc.publish(request, undefined, { reply });
    } catch {
      failed();
    }
  });
}
