/**
 * One take: a core request on the take rail, answered under its own subject (§8.1).
 *
 * Invariants
 * 1. The reply is on a subscription of one's own under the take's subject, so the broker's no-responders is seen.
 * 2. Every take ends: by its answer, the broker's word, its time, or the end of its connection.
 */
import { randomUUID } from "node:crypto";
import type { Msg, NatsConnection, Subscription } from "@nats-io/transport-node";
import type { Principal } from "../protocol/base/principals.ts";
import { spaceSubjects } from "../protocol/base/subjects.ts";
import { TakeReply, type TakeRequest } from "../protocol/chat/anycast.ts";
import type { DenialWatch } from "./denials.ts";
import type { TakeCause } from "./take-causes.ts";
import { statusOf } from "./wire.ts";

export type TakeSaid =
  | { readonly kind: "reply"; readonly reply: TakeReply }
  /** The broker says that nobody serves it. */
  | { readonly kind: "nobody" }
  | { readonly kind: "failed"; readonly cause: TakeCause }
  /** The connection dropped: nothing is known, and it is asked anew. */
  | { readonly kind: "down" };

/** Which copy is taken. */
export type Taking = Pick<TakeRequest, "seq" | "id" | "count" | "epoch">;

export type TakeRail = {
  readonly ask: (take: Taking) => Promise<TakeSaid>;
  /** The connection dropped. */
  readonly down: () => void;
  readonly close: () => void;
};

export type TakeRailOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly role: string;
  readonly me: Principal;
  /** Dot-form. */
  readonly id: string;
  readonly name: string;
  readonly denials: DenialWatch;
  readonly timeoutMs: number;
};

export function createTakeRail(options: TakeRailOptions): TakeRail {
  const { nc, role, me, id, denials, timeoutMs } = options;
  const subjects = spaceSubjects(options.space);
  const subject = subjects.take(role, me);
  const from = { id, name: holderName(options.name) };
  const waiting = new Map<string, (said: TakeSaid) => void>();
  let subscription: Subscription | undefined;

  const endAll = (said: TakeSaid): void => {
    for (const end of waiting.values()) end(said);
  };
  const receive = (error: Error | null, message: Msg): void => {
    if (error !== null) {
      // The broker does not let this credential hear answers.
      subscription = undefined;
      return endAll({ kind: "failed", cause: "old-credential" });
    }
    waiting.get(message.subject)?.(saidBy(message));
  };
  const ask = (take: Taking): Promise<TakeSaid> => {
    const reply = subjects.takeReply(role, me, randomUUID());
    return new Promise((resolve) => {
      const end = (said: TakeSaid): void => {
        clearTimeout(timer);
        unwatch();
        waiting.delete(reply);
        resolve(said);
      };
      waiting.set(reply, end);
      const unwatch = denials.watch("publish", subject, () => end({ kind: "failed", cause: "old-credential" }));
      const timer = setTimeout(() => end({ kind: "failed", cause: "no-answer" }), timeoutMs);
      try {
        subscription ??= nc.subscribe(subjects.takeReplies(role, me), { callback: receive });
        nc.publish(subject, JSON.stringify({ from, ...take }), { reply });
      } catch {
        end({ kind: "down" });
      }
    });
  };
  return {
    ask,
    down: () => endAll({ kind: "down" }),
    close: () => {
      endAll({ kind: "down" });
      if (subscription?.isClosed() === false) subscription.unsubscribe();
      subscription = undefined;
    },
  };
}

function saidBy(message: Msg): TakeSaid {
  const status = statusOf(message);
  if (status === 503) return { kind: "nobody" };
  try {
    const reply = status === undefined ? TakeReply.safeParse(message.json()).data : undefined;
    if (reply !== undefined) return { kind: "reply", reply };
  } catch {
    // No JSON: an answer of nobody that follows §8.1.
  }
  return { kind: "failed", cause: "old-daemon" };
}

/** A display name as a take may carry it: no slash, which a name elsewhere may have. */
function holderName(name: string): string {
  return name.replaceAll(/[/\\]/g, "-");
}
