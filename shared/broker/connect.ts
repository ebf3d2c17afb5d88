/**
 * Opens and keeps one connection to the broker.
 *
 * Invariants
 * 1. The reply-inbox prefix is set before anything is sent (§10, decision H61).
 * 2. Every end has a cause: `closed` resolves with a `CotalError`, or with nothing after our own
 *    `drain` or `close`. Whoever opens a connection owns it and reads `closed` (field case 23).
 * 3. Waits grow to a cap with jitter. Three states end a connection however patient its policy is:
 *    a broker below the floor, a CONNECT line the broker drops for its length, and a credential
 *    refused `denials` times in a row.
 * 4. Status events tell what happens, never what was meant to.
 */
import { type ConnectionOptions, type NatsConnection, connect } from "@nats-io/transport-node";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type DialedAuth, dialedAuth } from "./authenticator.ts";
import type { ConnectOptions, Connection } from "./connection.ts";
import { DIAL_TIMEOUT_MS, denialsAllowed, explain, isTerminal, unfitness } from "./login-errors.ts";
import { type Pace, createPace } from "./pace.ts";
import { keep } from "./standing.ts";

export type { Authenticator } from "./authenticator.ts";
export type { ConnectOptions, Connection, ConnectionStatus, ReconnectPolicy } from "./connection.ts";

/** Opens a connection by its policy. Throws a `CotalError`; see the invariants above. */
export async function openConnection(options: ConnectOptions): Promise<Connection> {
  const auth = dialedAuth(options.authenticator, options.name);
  const { random, now } = options;
  const pace = createPace({
    ...options.reconnect,
    ...(random === undefined ? {} : { random }),
    ...(now === undefined ? {} : { now }),
  });
  const nc = await dialFirst(options, auth, pace);
  pace.up();
  return keep(nc, options, auth, pace);
}

function natsOptions(options: ConnectOptions, auth: DialedAuth, pace: Pace): ConnectionOptions {
  const { reconnect, tls } = options;
  return {
    servers: [...options.servers],
    name: options.name,
    inboxPrefix: options.inboxPrefix,
    authenticator: auth.authenticate,
    timeout: options.timeoutMs ?? DIAL_TIMEOUT_MS,
    pingInterval: options.pingMs ?? 5000,
    maxPingOut: 2,
    maxReconnectAttempts: reconnect.kind === "endless" ? -1 : reconnect.attempts,
    reconnectDelayHandler: pace.waitMs,
    // We count refusals ourselves: nats.js remembers one over later successes.
    ignoreAuthErrorAbort: true,
    noAsyncTraces: true,
    ...(tls === undefined ? {} : { tls }),
  };
}

async function dialFirst(options: ConnectOptions, auth: DialedAuth, pace: Pace): Promise<NatsConnection> {
  const { reconnect, signal } = options;
  let denials = 0;
  for (;;) {
    if (signal?.aborted === true) throw cancelled(options.name);
    const before = auth.count();
    try {
      const nc = await connect(natsOptions(options, auth, pace));
      const unfit = unfitness(nc, options, auth);
      if (unfit === undefined) return nc;
      await nc.close();
      throw unfit;
    } catch (thrown) {
      const error = await explain(thrown, options, auth, auth.count() > before);
      if (error.code === ErrorCode.Unauthenticated) denials += 1;
      pace.failed();
      const last = reconnect.kind === "bounded" && pace.failures() >= reconnect.attempts;
      if (last || auth.failure() !== undefined || isTerminal(error) || denials >= denialsAllowed(reconnect))
        throw error;
      options.onStatus?.({ type: "retrying", failures: pace.failures(), waitMs: pace.waitMs(), error });
      await pause(pace.waitMs(), signal);
    }
  }
}

const cancelled = (name: string) =>
  new CotalError(ErrorCode.Cancelled, `the wait for connection ${JSON.stringify(name)} was ended`, {
    outcome: Outcome.NotExecuted,
  });

/** Resolves early when the signal aborts; the caller looks at the signal. */
function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done);
  });
}
