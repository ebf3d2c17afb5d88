/**
 * A standing connection, watched to its end.
 *
 * Invariants
 * 1. Status events tell what happened, in order, never what was meant to.
 * 2. `closed` resolves once, with the cause, or with nothing after our own `drain` or `close`.
 * 3. Every wait of a caller ends: `up` and `drain` have bounds.
 */
import {
  AuthorizationError,
  type NatsConnection,
  PermissionViolationError,
  type Status,
  UserAuthenticationExpiredError,
} from "@nats-io/transport-node";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import type { DialedAuth } from "./authenticator.ts";
import type { ConnectOptions, Connection, ConnectionStatus } from "./connection.ts";
import { fromNats } from "./errors.ts";
import {
  MIN_SUPPLY_DENIALS,
  calloutRefusal,
  credentialError,
  denialsAllowed,
  isDenial,
  tooLong,
  unfitness,
} from "./login-errors.ts";
import type { Pace } from "./pace.ts";
import type { Gate, SupplyTrouble } from "./supply.ts";

const DRAIN_TIMEOUT_MS = 5000;

export function keep(
  nc: NatsConnection,
  options: ConnectOptions,
  auth: DialedAuth,
  pace: Pace,
  gate: Gate,
): Connection {
  const { reconnect, supply } = options;
  let info = nc.info ?? missingInfo();
  let isUp = true;
  let terminal: CotalError | undefined;
  let denials = 0;
  /** The dial in progress while down: did the broker refuse its login? */
  let dial: { readonly from: number; denied: boolean } | undefined;
  let diagnosing = false;
  let expired = false;
  /** Dials that have been judged. */
  let settled = auth.count();
  gate.guard(() => settled === auth.count());
  const waiting = new Set<() => void>();
  const tell = (status: ConnectionStatus): void => options.onStatus?.(status);
  const wake = () => {
    for (const woken of waiting) woken();
    waiting.clear();
  };

  const fail = async (error: CotalError): Promise<void> => {
    terminal ??= error;
    await nc.close();
  };

  /** Judges the dial that just ended without a connection. */
  const settleDial = async (): Promise<void> => {
    const ended = dial;
    dial = undefined;
    if (ended === undefined || auth.count() === ended.from) {
      settled = auth.count();
      return;
    }
    if (auth.failure() !== undefined) {
      tell({ type: "refused", error: credentialError(auth.failure()) });
    } else if (ended.denied) {
      denials += 1;
      supply?.refused();
      const error = deniedTooOften();
      if (error !== undefined) await fail(error);
    }
    settled = auth.count();
    if (auth.failure() !== undefined || ended.denied || diagnosing) return;
    diagnosing = true;
    const error = await tooLong(options, auth);
    diagnosing = false;
    if (error !== undefined) await fail(error);
  };

  const deniedTooOften = (): CotalError | undefined => {
    const error = fromNats(new AuthorizationError("denied"), "reconnect");
    if (supply === undefined) return denials >= denialsAllowed(reconnect) ? error : undefined;
    // Its maker is asked each time, and says when it is over.
    const most = Math.max(MIN_SUPPLY_DENIALS, denialsAllowed(reconnect));
    return reconnect.kind !== "endless" && denials >= most ? calloutRefusal(error) : undefined;
  };

  const onTrouble = ({ error, isFinal, failures, waitMs }: SupplyTrouble): void => {
    const isLast = !isUp && reconnect.kind !== "endless" && failures >= reconnect.attempts;
    if (isFinal || isLast) void fail(error);
    else if (isUp) tell({ type: "unrenewed", error, waitMs });
    else tell({ type: "retrying", failures, waitMs, error });
  };
  supply?.watch(onTrouble);
  supply?.accepted();
  const over = supply?.ended();
  if (over !== undefined) void fail(over);

  const onStatus = async (status: Status): Promise<void> => {
    switch (status.type) {
      case "reconnecting":
        await settleDial();
        dial = { from: auth.count(), denied: false };
        pace.failed();
        tell({ type: "retrying", failures: pace.failures(), waitMs: pace.waitMs() });
        break;
      case "disconnect":
        // nats.js says this again for each dial that got a socket.
        if (!isUp) return settleDial();
        isUp = false;
        pace.down();
        tell({ type: "down", server: status.server, ...(expired ? { expired } : {}) });
        expired = false;
        break;
      case "reconnect": {
        if (isUp) return;
        info = nc.info ?? info;
        const unfit = unfitness(nc, options, auth);
        if (unfit !== undefined) return fail(unfit);
        isUp = true;
        denials = 0;
        dial = undefined;
        settled = auth.count();
        supply?.accepted();
        pace.up();
        tell({ type: "up", server: status.server, version: info.version });
        wake();
        break;
      }
      case "error":
        if (supply !== undefined && isUp && status.error instanceof UserAuthenticationExpiredError) {
          // As it must: the next one is there, or is told of otherwise.
          expired = true;
        } else if (isDenial(status.error)) {
          if (dial !== undefined) dial.denied = true;
          tell({ type: "refused", error: fromNats(status.error, "login") });
        } else if (status.error instanceof PermissionViolationError) {
          tell({ type: "refused", error: fromNats(status.error, "the broker") });
        }
        break;
      case "slowConsumer":
        tell({ type: "slow", subject: status.sub.getSubject(), pending: status.pending });
        break;
      default:
    }
  };

  const watch = async (): Promise<void> => {
    for await (const status of nc.status()) await onStatus(status);
  };
  // `onStatus` handles what it starts; a throwing listener of the caller must not go unseen.
  const watched = watch().catch((thrown: unknown) => fail(fromNats(thrown, "a status listener")));

  const closed = nc.closed().then(async (error) => {
    supply?.close();
    await watched;
    isUp = false;
    const cause = terminal ?? (error instanceof Error ? fromNats(error, "the connection") : undefined);
    tell({ type: "closed", ...(cause === undefined ? {} : { error: cause }) });
    wake();
    return cause;
  });

  return {
    nc,
    name: options.name,
    inboxPrefix: options.inboxPrefix,
    get info() {
      return info;
    },
    get maxPayload() {
      return info.max_payload;
    },
    get version() {
      return info.version;
    },
    isUp: () => isUp,
    up: (timeoutMs) =>
      waitUp(
        () => isUp,
        () => nc.isClosed(),
        waiting,
        timeoutMs,
      ),
    closed,
    drain: (timeoutMs = DRAIN_TIMEOUT_MS) => drain(nc, () => isUp, timeoutMs),
    close: () => nc.close(),
  };
}

/** nats.js sets INFO before `connect` resolves. */
function missingInfo(): never {
  throw new CotalError(ErrorCode.Internal, "the broker sent no INFO");
}

function waitUp(
  isUp: () => boolean,
  isClosed: () => boolean,
  waiting: Set<() => void>,
  timeoutMs: number,
): Promise<void> {
  const down = (message: string) =>
    new CotalError(ErrorCode.Unavailable, message, {
      outcome: Outcome.NotExecuted,
      next: "check that the broker runs; the connection comes back by itself",
    });
  if (isClosed()) return Promise.reject(down("the connection is closed"));
  if (isUp()) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const settle = (): void => {
      clearTimeout(timer);
      waiting.delete(settle);
      if (isUp()) resolve();
      else
        reject(down(isClosed() ? "the connection is closed" : `the broker did not come back within ${timeoutMs} ms`));
    };
    const timer = setTimeout(settle, timeoutMs);
    waiting.add(settle);
  });
}

/** nats.js's own drain waits for a server that may be gone: it gets a bound, and then the axe. */
async function drain(nc: NatsConnection, isUp: () => boolean, timeoutMs: number): Promise<void> {
  if (nc.isClosed()) return;
  if (!isUp()) return nc.close();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, timeoutMs);
  });
  // A connection that falls while it drains rejects; closing it is all that is left to do.
  await Promise.race([nc.drain().catch(() => undefined), late]);
  clearTimeout(timer);
  if (!nc.isClosed()) await nc.close();
}
