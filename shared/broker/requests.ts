/**
 * One request and its one answer, over a connection of ours.
 *
 * A daemon's ledger asks the broker for every single row. nats.js's own request makes a promise race, a timer
 * and an error for each, twice the time of everything else in it (measured: 14 µs against 7). Here all answers
 * come on one subscription and all deadlines run on one timer.
 *
 * Invariants
 * 1. It ends as nats.js's request does: with the answer, or with the same classes of error, at once where the
 *    broker refuses the publish or nobody serves the subject.
 * 2. The answer subject is the connection's own, under its inbox prefix, and drawn for each request by a count
 *    behind a drawn token: what comes late finds nobody waiting.
 * 3. Only a connection that `openConnection` made is asked this way; any other is asked by nats.js.
 */
import {
  ClosedConnectionError,
  type Msg,
  type MsgHdrs,
  type NatsConnection,
  NoRespondersError,
  PermissionViolationError,
  RequestError,
  TimeoutError,
} from "@nats-io/transport-node";
import { createDeadlines } from "./deadlines.ts";
import { newInbox } from "./inbox.ts";

export type RequestOptions = { readonly timeoutMs: number; readonly headers?: MsgHdrs };

type Ask = (subject: string, data: Uint8Array | string, options: RequestOptions) => Promise<Msg>;

const asking = new WeakMap<NatsConnection, Ask>();

/** From here on requests of this connection come over one subscription, made with the first of them. */
export function multiplex(nc: NatsConnection): void {
  asking.set(nc, multiplexed(nc));
}

/** Throws what nats.js's own request throws. */
export function request(
  nc: NatsConnection,
  subject: string,
  data: Uint8Array | string,
  { timeoutMs, headers }: RequestOptions,
): Promise<Msg> {
  const ask = asking.get(nc);
  if (ask !== undefined) return ask(subject, data, { timeoutMs, ...(headers === undefined ? {} : { headers }) });
  return nc.request(subject, data, { timeout: timeoutMs, ...(headers === undefined ? {} : { headers }) });
}

/** A header block that nats.js can't read throws when it is looked at; the broker's own is none of these. */
function isNobody(message: Msg): boolean {
  try {
    return message.data.length === 0 && message.headers?.code === 503;
  } catch {
    return false;
  }
}

type Waiting = {
  readonly subject: string;
  readonly resolve: (answer: Msg) => void;
  readonly reject: (error: Error) => void;
  readonly inTime: () => void;
};

function multiplexed(nc: NatsConnection): Ask {
  const waiting = new Map<string, Waiting>();
  const deadlines = createDeadlines();
  let base: string | undefined;
  let count = 0;

  const settle = (token: string): Waiting | undefined => {
    const one = waiting.get(token);
    if (one === undefined) return undefined;
    waiting.delete(token);
    one.inTime();
    return one;
  };
  const fail = (error: Error, of: (one: Waiting) => boolean = () => true): void => {
    for (const [token, one] of waiting) if (of(one)) settle(token)?.reject(error);
  };
  const listen = (): string => {
    const prefix = `${newInbox(nc)}.`;
    nc.subscribe(`${prefix}*`, {
      callback: (error, message) => {
        if (error !== null) {
          base = undefined;
          return fail(error);
        }
        const one = settle(message.subject.slice(prefix.length));
        if (one === undefined) return;
        if (isNobody(message)) one.reject(new NoRespondersError(one.subject));
        else one.resolve(message);
      },
    });
    void watch();
    void nc.closed().then(() => fail(new RequestError("connection closed")));
    return prefix;
  };
  const watch = async (): Promise<void> => {
    for await (const status of nc.status()) {
      if (status.type !== "error" || !(status.error instanceof PermissionViolationError)) continue;
      const { operation, subject } = status.error;
      if (operation === "publish") fail(status.error, (one) => one.subject === subject);
    }
  };

  return (subject, data, { timeoutMs, headers }) =>
    new Promise((resolve, reject) => {
      if (nc.isClosed()) return reject(new ClosedConnectionError());
      base ??= listen();
      const token = String((count += 1));
      const inTime = deadlines.add(timeoutMs, () => settle(token)?.reject(new TimeoutError()));
      waiting.set(token, { subject, resolve, reject, inTime });
      try {
        nc.publish(subject, data, { reply: `${base}${token}`, ...(headers === undefined ? {} : { headers }) });
      } catch (thrown) {
        settle(token);
        reject(thrown instanceof Error ? thrown : new RequestError(String(thrown)));
      }
    });
}
