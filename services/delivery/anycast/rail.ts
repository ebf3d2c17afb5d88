/**
 * The take rail (§8.1): core requests of holders, shared by the daemons of a space through one queue.
 *
 * Invariants
 * 1. A reply goes under the take's own subject, or nowhere: a take with another reply target is dropped
 *    unanswered and counted (W81.02). So is a stored copy that the broker was made to put there.
 * 2. Role and holder come from the subject, which the broker has checked; a body that says another holder is
 *    a `mismatch` (W81.03).
 * 3. What runs at once is bounded, in all and for one holder; over it the answer is `busy`.
 * 4. Nothing that a holder sends, or that the store does, ends the process or goes unanswered.
 */
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { isBounded } from "../../../shared/protocol/base/canonical.ts";
import { parseJson } from "../../../shared/protocol/base/json.ts";
import { whyNoRequest } from "../requests-only.ts";
import { dotForm } from "../../../shared/protocol/base/principals.ts";
import {
  TAKE_QUEUE,
  type TakeSubject,
  isReplyUnder,
  parseTake,
  spaceSubjects,
} from "../../../shared/protocol/base/subjects.ts";
import { type TakeReply, TakeRequest } from "../../../shared/protocol/chat/anycast.ts";
import { within } from "../../../shared/client/shutdown.ts";
import { createPlaces } from "../../../shared/serve/places.ts";
import { type Requests, refusedTake } from "./requests.ts";

export type RailEvent =
  | { readonly kind: "answered"; readonly result: string; readonly milliseconds: number }
  | { readonly kind: "dropped"; readonly why: string }
  | { readonly kind: "failed"; readonly cause: unknown };

export type RailOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly requests: Pick<Requests, "take">;
  readonly concurrency: number;
  readonly perHolder: number;
  readonly onEvent: (event: RailEvent) => void;
  /** Monotonic milliseconds. */
  readonly now: () => number;
};

const DRAIN_MS = 300;

export type TakeRail = {
  /** Takes no more, and resolves when each that runs is answered. */
  readonly stop: () => Promise<void>;
};

/** Starts serving; resolves once the broker has taken the subscription. */
export async function serveTakes(options: RailOptions): Promise<TakeRail> {
  const { nc, space, onEvent, now } = options;
  const places = createPlaces(options.concurrency, options.perHolder);
  const running = new Set<Promise<void>>();

  const decide = async ({ role, ...caller }: TakeSubject, data: Uint8Array): Promise<TakeReply> => {
    const holder = dotForm(caller);
    const body = bodyOf(data);
    if (body === undefined || body.from.id !== holder) return refusedTake("mismatch");
    if (!places.take(caller)) return refusedTake("busy");
    try {
      return await options.requests.take({ role, holder, body });
    } catch (cause) {
      onEvent({ kind: "failed", cause });
      return refusedTake("busy");
    } finally {
      places.give(caller);
    }
  };
  const answer = async (message: Msg, reply: string, subject: TakeSubject): Promise<void> => {
    const began = now();
    const said = await decide(subject, message.data);
    try {
      nc.publish(reply, JSON.stringify(said));
    } catch (cause) {
      // The connection is closed: the holder asks again, and hears the same.
      return onEvent({ kind: "failed", cause });
    }
    onEvent({ kind: "answered", result: said.ok ? "ok" : said.code, milliseconds: now() - began });
  };
  const receive = (error: Error | null, message: Msg): void => {
    if (error !== null) return;
    const why = whyDropped(message);
    const subject = parseTake(message.subject);
    if (why !== undefined || subject === undefined || message.reply === undefined) {
      return onEvent({ kind: "dropped", why: why ?? "it is on no take's subject" });
    }
    const work = answer(message, message.reply, subject);
    running.add(work);
    void work.finally(() => running.delete(work));
  };
  const subscription = nc.subscribe(spaceSubjects(space).takeServe, { queue: TAKE_QUEUE, callback: receive });
  await nc.flush();
  return {
    stop: async () => {
      // A connection that is away drains nothing until it is back.
      await within(subscription.drain(), DRAIN_MS);
      await Promise.all(running);
    },
  };
}

function whyDropped(message: Msg): string | undefined {
  if (!isReplyUnder(message.subject, message.reply)) return "its reply target is none of its own";
  return whyNoRequest(message);
}

function bodyOf(data: Uint8Array): TakeRequest | undefined {
  const value = parseJson(data);
  return isBounded(value) ? TakeRequest.safeParse(value).data : undefined;
}
