/**
 * One caller's requests on the rails of §13.2: what is on the wire, and nothing of contracts.
 *
 * Siblings: `caller.ts` calls this project's own endpoints, `endpoint-client.ts` anybody's; `rail-errors.ts`
 * says what is known when no answer comes.
 *
 * Invariants
 * 1. The exact nonce subject is subscribed before the request is published, one subscription for each request:
 *    a standing one for all nonces would be cheaper, and §13.2 forbids it. A nonce is drawn for each request,
 *    kept nowhere else, and gone when its request ends: nothing that still comes on its subject is heard.
 * 2. The broker's "no responders" is believed on the reserved sentinel alone: it lies in the caller's own
 *    inbox, where no responder may publish.
 * 3. Who answers is read off the subject. An incarnation older than one that has answered before is stale,
 *    and its answer is rejected with what it says of the effect.
 * 4. So many requests wait at once and no more; the next one is refused before it is sent.
 * 5. Nothing is repeated here.
 */
import type { Msg, NatsConnection, Subscription } from "@nats-io/transport-node";
import { LRUCache } from "lru-cache";
import { CotalError, ErrorCode } from "../protocol/base/errors.ts";
import { type RandomBytes, drawNonce } from "../protocol/base/principals.ts";
import { type Asked, readAnswer } from "../protocol/endpoint/answer.ts";
import type { EndpointReply } from "../protocol/endpoint/envelope.ts";
import type { Caller, Incarnation } from "../protocol/endpoint/grammar.ts";
import { outcomeOf } from "../protocol/endpoint/outcome.ts";
import { tailOf } from "../protocol/endpoint/rails.ts";
import { createCallSubjects } from "./call-subjects.ts";
import type { DenialWatch } from "./denials.ts";
import { createDeadlines } from "../broker/deadlines.ts";
import { createDismissals } from "./dismissals.ts";
import {
  closedAfter,
  closedBefore,
  deniedCall,
  deniedReply,
  named,
  nobodyThere,
  silence,
  tooManyPending,
} from "./rail-errors.ts";
import { flushed } from "./flushed.ts";
import { type RailRequest, checkDeadline, encodeRequest } from "./request.ts";
import { statusOf } from "./wire.ts";

export type RailOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly caller: Caller;
  /** Display name in `from`. */
  readonly name: string;
  readonly inboxPrefix: string;
  readonly denials: DenialWatch;
  readonly random: RandomBytes;
  /** Requests that may wait for an answer at once. */
  readonly maxPending?: number;
};

/** Supplement D. */
const MAX_PENDING = 1024;
/** Incarnations that are remembered. */
const MAX_EPOCHS = 1024;

export type Heard = { readonly by: Incarnation; readonly reply: EndpointReply };

export type Gathering = {
  /** An answer to this request, or what is wrong with one. */
  readonly heard: (subject: string, bytes: Uint8Array) => void;
  /** It is over: refused, nobody there, or the connection closed. */
  readonly ended: (error: CotalError) => void;
};

export type Rail = {
  readonly space: string;
  /** The one answer to a request, or the reason there is none. */
  readonly ask: (request: RailRequest, deadlineMs: number) => Promise<Heard>;
  /** Publishes without an answer. Resolves once the broker has had its say about it. */
  readonly cast: (request: RailRequest, deadlineMs: number, onNobody?: () => void) => Promise<void>;
  /** Publishes, and hands every answer over until `stop`. */
  readonly gather: (
    request: RailRequest,
    deadlineMs: number,
    to: Gathering,
  ) => { readonly stop: () => void; readonly asked: Asked };
  /** Requests that wait. */
  readonly pending: () => number;
};

/** What a request tells the rail while it is open. */
type On = {
  readonly onNobody: () => void;
  readonly onEnd: (error: CotalError) => void;
};
type Open = On & { readonly what: string; readonly request: string; readonly reply: string };

export function createRail(options: RailOptions): Rail {
  const { nc, space, caller, denials, maxPending = MAX_PENDING } = options;
  const subjectsOf = createCallSubjects(space, caller);
  const dismissals = createDismissals();
  const deadlines = createDeadlines();
  const epochs = new LRUCache<string, number>({ max: MAX_EPOCHS });
  /** By nonce; what is open and waits. */
  const open = new Map<string, Open>();
  // Of this rail alone: the broker tells one subscription of a connection that nobody is there, not all.
  const sentinels = `${options.inboxPrefix}.nr.${drawNonce(options.random)}.`;
  // An id is no secret, only nobody else's: one draw and a count.
  const ids = drawNonce(options.random);
  let sentCount = 0;
  let sentinel: Subscription | undefined;
  /** One subscription for all: the nonce is the last token. */
  const listen = (): void => {
    if (sentinel !== undefined) return;
    sentinel = nc.subscribe(`${sentinels}*`, {
      callback: (error, message) => {
        if (error !== null || statusOf(message) !== 503) return;
        open.get(message.subject.slice(sentinels.length))?.onNobody();
      },
    });
    denials.claim(({ operation, subject }) => {
      const denied = open.get(subject.slice(subject.lastIndexOf(".") + 1));
      if (denied === undefined) return false;
      const { what, onEnd, request, reply } = denied;
      if (operation === "publish" && subject === request) onEnd(deniedCall(what, subject));
      else if (operation === "subscription" && subject === reply) onEnd(deniedReply(what, subject));
      else return false;
      return true;
    });
    void nc.closed().then(() => {
      for (const { onEnd, what } of open.values()) onEnd(closedAfter(what));
    });
  };

  /** Subscribes what comes back, then publishes. What it returns ends it. */
  const send = (
    { address, ...request }: RailRequest,
    replyExpected: boolean,
    deadlineMs: number | undefined,
    on: On,
    heard?: (message: Msg) => void,
  ) => {
    const what = named(address.endpoint, address.command);
    if (nc.isClosed() || nc.isDraining()) throw closedBefore(what);
    if (open.size >= maxPending) throw tooManyPending(what, maxPending);
    const nonce = drawNonce(options.random);
    const id = `${ids}${(sentCount += 1)}`;
    const subjects = subjectsOf(address, nonce);
    const payload = encodeRequest(options, { address, ...request }, { id, replyExpected, deadlineMs }, what);
    listen();
    open.set(nonce, { ...on, ...subjects, what });
    let reply: Subscription | undefined;
    const close = (): void => {
      if (open.delete(nonce) && reply !== undefined) dismissals.add(reply);
    };
    try {
      if (heard !== undefined) {
        reply = nc.subscribe(subjects.reply, {
          callback: (error, message) => {
            if (error === null && open.has(nonce)) heard(message);
          },
        });
      }
      nc.publish(subjects.request, payload, { reply: `${sentinels}${nonce}` });
      dismissals.flush();
    } catch (cause) {
      close();
      throw closedBefore(what, cause);
    }
    const asked: Asked = {
      space,
      endpoint: address.endpoint,
      id,
      ...tailOf(caller, nonce),
      ...(request.bind === undefined ? {} : { bind: request.bind }),
    };
    return { close, asked, what };
  };

  /** Who answered must not be older than who answered before. */
  const current = (endpoint: string, heard: Heard): Heard => {
    const key = `${endpoint} ${heard.by.instanceId}`;
    const newest = epochs.get(key) ?? -1;
    if (heard.by.epoch > newest) epochs.set(key, heard.by.epoch);
    if (heard.by.epoch >= newest) return heard;
    throw new CotalError(ErrorCode.Expired, "an incarnation that has been succeeded answered", {
      outcome: outcomeOf({ seen: "reply", reply: heard.reply }),
      next: "its successor serves; ask again if this did not run",
    });
  };

  return {
    space,
    pending: () => open.size,
    ask: async (request, deadlineMs) => {
      checkDeadline(deadlineMs);
      return new Promise((resolve, reject) => {
        const settle = (end: () => void): void => {
          inTime();
          sent?.close();
          end();
        };
        const fail = (error: unknown): void => settle(() => reject(error));
        const on: On = { onEnd: fail, onNobody: () => fail(nobodyThere(request.address.endpoint, sent?.what ?? "")) };
        const take = (message: Msg): void => {
          if (sent === undefined) return;
          const { asked } = sent;
          settle(() => {
            const answer = readAnswer(asked, message.subject, message.data);
            if (!answer.ok) return reject(answer.error);
            try {
              resolve(current(asked.endpoint, answer));
            } catch (thrown) {
              reject(thrown);
            }
          });
        };
        let sent: ReturnType<typeof send> | undefined;
        try {
          sent = send(request, true, deadlineMs, on, take);
        } catch (thrown) {
          return reject(thrown);
        }
        const { what } = sent;
        const inTime = deadlines.add(deadlineMs, () => fail(silence(what, deadlineMs)));
      });
    },
    cast: async (request, deadlineMs, onNobody) => {
      checkDeadline(deadlineMs);
      let refused: CotalError | undefined;
      const sent = send(request, false, undefined, {
        onEnd: (error) => void (refused ??= error),
        onNobody: () => onNobody?.(),
      });
      try {
        await flushed(nc, deadlineMs, sent.what);
      } finally {
        sent.close();
      }
      if (refused !== undefined) throw refused;
    },
    gather: (request, deadlineMs, to) => {
      checkDeadline(deadlineMs);
      const sent = send(
        request,
        true,
        deadlineMs,
        {
          onEnd: to.ended,
          onNobody: () => to.ended(nobodyThere(request.address.endpoint, sent.what)),
        },
        (message) => to.heard(message.subject, message.data),
      );
      return { stop: sent.close, asked: sent.asked };
    },
  };
}
