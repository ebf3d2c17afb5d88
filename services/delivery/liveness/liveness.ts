/**
 * Says whether this daemon serves the delivery plane (§6.1), and nothing else about it.
 *
 * Invariants
 * 1. A request with no reply target, or one that is not under its own subject, is dropped unanswered, counted,
 *    and serving goes on (W61.03). So is what is no request but a copy of something stored (§5).
 * 2. `instance` is drawn at each bind and derived from nothing (W61.05). Every connection that replaces the one
 *    it was bound on is a new bind (W61.08).
 * 3. Who can't determine its state says `unknown`, and says no more than plane, verdict and instance (W61.04).
 * 4. However many ask at once, one reading of the lease answers all that came before it began.
 */
import type { Msg, NatsConnection, Subscription } from "@nats-io/transport-node";
import { type RandomBytes, drawNonce } from "../../../shared/protocol/base/principals.ts";
import { LIVE_QUEUE, Plane, isReplyUnder, spaceSubjects } from "../../../shared/protocol/base/subjects.ts";
import type { LivenessAnswer, ResponderState } from "../../../shared/protocol/chat/liveness.ts";
import { whyNoRequest } from "../requests-only.ts";

export type LivenessOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  /** What this daemon's own lease rows say of it now. */
  readonly verdict: () => Promise<ResponderState>;
  readonly onDropped: (why: string) => void;
  readonly random: RandomBytes;
};

export type Liveness = {
  /** Serves the filter: on the connection as it is now, as a new instance. */
  readonly bind: () => void;
  readonly unbind: () => void;
  /** The connection went: what is bound is bound anew on the one that replaces it. */
  readonly disconnected: () => void;
};

export function createLiveness({ nc, space, verdict, onDropped, random }: LivenessOptions): Liveness {
  const subjects = spaceSubjects(space);
  let bound: { readonly subscription: Subscription; readonly instance: string } | undefined;
  const read = shareReads(async () => {
    try {
      return await verdict();
    } catch {
      return "unknown" as const;
    }
  });

  const answer = async (reply: string, instance: string): Promise<void> => {
    const said: LivenessAnswer = { plane: Plane.Delivery, responder: await read(), instance };
    try {
      nc.publish(reply, JSON.stringify(said));
    } catch {
      // The connection is closed: whoever asked grades its silence.
    }
  };
  const receive = (instance: string) => (error: Error | null, message: Msg) => {
    if (error !== null) return;
    const { subject, reply } = message;
    if (reply === undefined || !isReplyUnder(subject, reply)) return onDropped("its reply target is none of its own");
    const why = whyNoRequest(message);
    if (why !== undefined) return onDropped(why);
    void answer(reply, instance);
  };
  const unbind = (): void => {
    const before = bound;
    bound = undefined;
    try {
      before?.subscription.unsubscribe();
    } catch {
      // It went with its connection.
    }
  };
  const bind = (): void => {
    unbind();
    if (nc.isClosed()) return;
    const instance = drawNonce(random);
    const subscription = nc.subscribe(subjects.liveServe(Plane.Delivery), {
      queue: LIVE_QUEUE(Plane.Delivery),
      callback: receive(instance),
    });
    bound = { subscription, instance };
  };
  return {
    bind,
    unbind,
    disconnected: () => {
      if (bound !== undefined) bind();
    },
  };
}

/** One reading at a time; who asks while one runs gets the next. */
function shareReads<T>(read: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  let next: Promise<T> | undefined;
  const begin = (): Promise<T> => {
    const one = read().finally(() => {
      if (running === one) running = undefined;
    });
    running = one;
    return one;
  };
  return () => {
    if (running === undefined) return begin();
    next ??= running.then(
      () => {
        next = undefined;
        return begin();
      },
      () => {
        next = undefined;
        return begin();
      },
    );
    return next;
  };
}
