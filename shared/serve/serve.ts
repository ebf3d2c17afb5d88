/**
 * Serves an endpoint by its contract, on every route of both rails (§13.2, §13.3).
 *
 * Siblings: `served.ts` what may be served at all, `answer.ts` one request, `send.ts` the reply,
 * `places.ts` the bounds, `handlers.ts` what a server writes.
 *
 * Invariants
 * 1. A stored copy and a subject of no form are dropped before anything of them is read. What is longer than any
 *    request is refused unread: else whoever may ask costs a parse with each, and the broker ends a connection that
 *    falls behind.
 * 2. The reply rides the rail derived from the request subject; a transport reply target is ignored.
 * 3. The class rail is subscribed through the queue of the endpoint's name and not otherwise.
 * 4. What runs at once is bounded, in all, for one caller and for one owner; over it the answer is
 *    `resource-exhausted`, not memory. What everybody may ask (`describe`) takes no place from anything else.
 * 5. `stop` takes no new request and lets every running one answer.
 * 6. Nothing that a caller sends, a handler returns, or the connection does makes an answer reject: a
 *    rejection that nobody hears ends the process, and with it every other space.
 */
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { hasProvenance } from "../protocol/base/headers.ts";
import { dotForm } from "../protocol/base/principals.ts";
import type { Contract } from "../protocol/contract/contract.ts";
import type { TrustedView } from "../protocol/contract/descriptor.ts";
import type { BodyTarget } from "../protocol/endpoint/envelope.ts";
import {
  type Caller,
  DESCRIBE,
  type EndpointRequestSubject,
  endpointSubjects,
  parseRequestSubject,
} from "../protocol/endpoint/grammar.ts";
import { type Responder, answerTo, tooLong } from "./answer.ts";
import type { Guard, HandlerTable } from "./handlers.ts";
import { send } from "./send.ts";
import { servedCommands } from "./served.ts";
import { type Places, createPlaces } from "./places.ts";

export { type CallContext, type Handler, type HandlerTable, type Handlers, handlersOf } from "./handlers.ts";

/** What happened to a request, for logs and metrics. */
export type ServedEvent = {
  readonly command: string;
  readonly from: string;
  readonly requestId: string;
  /** `ok`, an error code, or `dropped` for a message that is no request. */
  readonly result: string;
  readonly milliseconds: number;
};

export type ServeOptions = {
  readonly nc: NatsConnection;
  /** The connection that one command is heard on, where it is another: a credential carries only so many rails. */
  readonly heardOn?: (command: string) => NatsConnection;
  readonly space: string;
  readonly endpoint: string;
  readonly instanceId: string;
  readonly epoch: number;
  readonly contract: Contract;
  readonly handlers: HandlerTable;
  /** The store revision of this instance's service record; `undefined` until it is registered. */
  readonly registrationRevision: () => number | undefined;
  /** Everybody may see the whole contract. Without it, and without a view, `describe` is `unavailable`. */
  readonly publicDescriptor?: boolean;
  readonly view?: (caller: Caller) => Promise<TrustedView | undefined>;
  /** Needed for a contract with targets: throws if a target is no more what it was. */
  readonly checkTarget?: (target: BodyTarget, caller: Caller) => Promise<void>;
  readonly guard?: Guard;
  /** Commands that share places: those of one lane take none from another. One lane, if it is left out. */
  readonly lane?: (command: string) => string;
  /** Bytes: a longer request, its headers counted, is refused unread. Left out: as long as the broker carries. */
  readonly longest?: (command: string) => number;
  /** Requests of a lane that may run at once. */
  readonly concurrency: number;
  /** Requests of one caller that may run at once in it. */
  readonly perCaller: number;
  readonly onServed: (event: ServedEvent) => void;
  readonly now: () => number;
};

export type ServedEndpoint = {
  /** Stops intake, waits for what runs, then resolves. */
  readonly stop: () => Promise<void>;
};

/** Starts serving; resolves once the broker has taken every subscription. */
export async function serveEndpoint(options: ServeOptions): Promise<ServedEndpoint> {
  const { nc, space, endpoint, instanceId, epoch, contract, now, onServed } = options;
  const commands = servedCommands(contract, options.handlers, options.checkTarget !== undefined);
  const responder: Responder = {
    endpoint,
    self: { instanceId, epoch },
    contract,
    commands,
    registrationRevision: options.registrationRevision,
    publicDescriptor: options.publicDescriptor ?? false,
    view: options.view ?? (() => Promise.resolve(undefined)),
    checkTarget: options.checkTarget ?? (() => Promise.resolve()),
    guard: options.guard,
  };
  const rails = endpointSubjects(space);
  const replyTo = rails.replies(endpoint, responder.self);
  const { lane = () => "", longest = () => Infinity } = options;
  const lanes = new Map<string, Places>();
  const placesOf = (command: string): Places => {
    const name = command === DESCRIBE ? DESCRIBE : lane(command);
    const places = lanes.get(name) ?? createPlaces(options.concurrency, options.perCaller);
    lanes.set(name, places);
    return places;
  };
  /** Everything that is being answered, refusals too: what `stop` waits for. */
  const running = new Set<Promise<void>>();

  const answer = async (subject: EndpointRequestSubject, bytes: Uint8Array): Promise<void> => {
    const started = now();
    const from = dotForm(subject);
    const places = placesOf(subject.command);
    let placed = false;
    const takePlace = (): boolean => (placed = places.take(subject));
    const { requestId, result, reply } = await answerTo(responder, subject, bytes, takePlace);
    if (placed) places.give(subject);
    const sent = reply && send(nc, replyTo(subject), reply);
    onServed({ command: subject.command, from, requestId, result: sent ?? result, milliseconds: now() - started });
  };
  const drop = (): void => onServed({ command: "", from: "", requestId: "", result: "dropped", milliseconds: 0 });
  const take = (error: Error | null, message: Msg): void => {
    if (error !== null) return;
    const subject = parseRequestSubject(message.subject);
    if (subject === undefined) return drop();
    const most = longest(subject.command);
    if (sizeOf(message) > most) {
      const { requestId, result, reply } = tooLong(most);
      send(nc, replyTo(subject), reply);
      onServed({ command: subject.command, from: dotForm(subject), requestId, result, milliseconds: 0 });
      return;
    }
    if (isStoredCopy(message)) return drop();
    const work = answer(subject, message.data).finally(() => running.delete(work));
    running.add(work);
  };
  const { heardOn = () => nc } = options;
  const subscriptions = [...commands.keys(), DESCRIBE].flatMap((command) =>
    rails
      .serve(endpoint, instanceId, command)
      .map(({ subject, queue }) =>
        heardOn(command).subscribe(subject, { callback: take, ...(queue === undefined ? {} : { queue }) }),
      ),
  );
  const heard = new Set([...commands.keys(), DESCRIBE].map(heardOn));
  await Promise.all([...heard].map((connection) => connection.flush()));
  return {
    stop: async () => {
      // A subscription of a connection that is closed has nothing left to give, and says so by throwing.
      await Promise.allSettled(subscriptions.map(async (subscription) => subscription.drain()));
      await Promise.all(running);
    },
  };
}

/** Bytes of a message with its headers, unread: nats.js has counted them, and leaves that out of its type. */
function sizeOf(message: Msg & { readonly size?: () => number }): number {
  return message.size?.() ?? message.data.length;
}

/** A header block that nats.js can't read throws here: nothing is known of it, so it is refused too. */
function isStoredCopy(message: Msg): boolean {
  try {
    return hasProvenance(message.headers?.keys() ?? []);
  } catch {
    return true;
  }
}
