/**
 * Opens and keeps one connection to the broker.
 *
 * Invariants
 * 1. The reply-inbox prefix is set before anything is sent (§10, decision H61).
 * 2. Every end has a cause: `closed` resolves with a `CotalError`, or with nothing after our own
 *    `drain` or `close`. Whoever opens a connection owns it and reads `closed` (field case 23).
 * 3. Waits grow to a cap with jitter. Three states end a connection however patient its policy is:
 *    a broker below the floor, a CONNECT line the broker drops for its length, and a credential
 *    refused `denials` times in a row. A fetched credential ends a standing connection by its maker's
 *    word only (supply.ts).
 * 4. Status events tell what happens, never what was meant to.
 */
import { type ConnectionOptions, type NatsConnection, connect } from "@nats-io/transport-node";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type DialedAuth, dialedAuth } from "./authenticator.ts";
import type { ConnectOptions, Connection } from "./connection.ts";
import { fromNats } from "./errors.ts";
import {
  DIAL_TIMEOUT_MS,
  MIN_SUPPLY_DENIALS,
  calloutRefusal,
  denialsAllowed,
  explain,
  isDenial,
  isTerminal,
  unfitness,
} from "./login-errors.ts";
import { type Pace, createPace } from "./pace.ts";
import { multiplex } from "./requests.ts";
import { keep } from "./standing.ts";
import { type Gate, type Supply, createGate } from "./supply.ts";

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
  const gate = createGate(options.supply, pace);
  try {
    const nc = await dialFirst(options, auth, pace, gate);
    pace.up();
    return keep(nc, options, auth, pace, gate);
  } catch (thrown) {
    options.supply?.close();
    throw thrown;
  }
}

function natsOptions(options: ConnectOptions, auth: DialedAuth, gate: Gate): ConnectionOptions {
  const { reconnect, tls, supply } = options;
  return {
    servers: [...options.servers],
    name: options.name,
    inboxPrefix: options.inboxPrefix,
    authenticator: auth.authenticate,
    timeout: options.timeoutMs ?? DIAL_TIMEOUT_MS,
    pingInterval: options.pingMs ?? 5000,
    maxPingOut: 2,
    reconnect: reconnect.kind !== "single",
    maxReconnectAttempts: reconnect.kind === "endless" ? -1 : reconnect.attempts,
    reconnectDelayHandler: gate.waitMs,
    ...(supply === undefined ? {} : { reconnectToServer: gate.dialing }),
    // We count refusals ourselves: nats.js remembers one over later successes.
    ignoreAuthErrorAbort: true,
    noAsyncTraces: true,
    ...(tls === undefined ? {} : { tls }),
  };
}

async function dialFirst(options: ConnectOptions, auth: DialedAuth, pace: Pace, gate: Gate): Promise<NatsConnection> {
  const { reconnect, signal, supply } = options;
  let denials = 0;
  for (;;) {
    if (signal?.aborted === true) throw cancelled(options.name);
    const before = auth.count();
    try {
      await supply?.ready(signal);
      const round = oneRound(options, auth, gate);
      const nc = await connect({ ...natsOptions(options, auth, gate), reconnectDelayHandler: round.waitMs });
      round.end();
      const unfit = unfitness(nc, options, auth);
      if (unfit === undefined) {
        multiplex(nc);
        return nc;
      }
      await nc.close();
      throw unfit;
    } catch (thrown) {
      const reached = auth.count() > before;
      const failed = thrown instanceof RoundOver ? await oneByOne(options, auth, gate) : thrown;
      const error = failed instanceof CotalError ? failed : await explain(failed, options, auth, reached);
      if (error.code === ErrorCode.Unauthenticated) denials += 1;
      pace.failed();
      const last = reconnect.kind !== "endless" && pace.failures() >= reconnect.attempts;
      const cause =
        supply === undefined ? credentialEnd(error, options, auth, denials) : supplyEnd(error, options, denials);
      if (cause !== undefined) throw cause;
      if (last) throw error;
      if (reached && error.code === ErrorCode.Unauthenticated) supply?.refused();
      const waitMs = Math.max(pace.waitMs(), supply?.waitMs() ?? 0);
      options.onStatus?.({ type: "retrying", failures: pace.failures(), waitMs, error });
      await pause(pace.waitMs(), signal);
    }
  }
}

/**
 * nats.js puts servers that it has given up back into its pool when the next one tells of its cluster: from three
 * servers on a first dial that fails would go round for ever, without a pause. One round is enough.
 */
function oneRound({ servers, signal }: ConnectOptions, auth: DialedAuth, gate: Gate) {
  const before = auth.count();
  let isUp = false;
  return {
    waitMs: (): number => {
      // More dials than servers are configured: those that the cluster told of are among them, and failed too.
      if (!isUp && (signal?.aborted === true || auth.count() - before > servers.length)) throw new RoundOver();
      return gate.waitMs();
    },
    end: (): void => void (isUp = true),
  };
}

/** A round was ended, and nats.js tells of none of its dials how it failed. */
class RoundOver extends Error {}

/**
 * Why a round failed: each configured server is asked by itself, where nats.js says it. A refusal counts, whoever else
 * dropped the dial: a cluster whose servers restart drops logins, and refuses nobody.
 */
async function oneByOne(options: ConnectOptions, auth: DialedAuth, gate: Gate): Promise<unknown> {
  let last: unknown;
  for (const server of options.servers) {
    if (options.signal?.aborted === true) return cancelled(options.name);
    try {
      const nc = await connect({
        ...natsOptions({ ...options, servers: [server], reconnect: { kind: "single", attempts: 1 } }, auth, gate),
        ignoreClusterUpdates: true,
      });
      await nc.close();
    } catch (thrown) {
      if (thrown instanceof Error && isDenial(thrown)) return thrown;
      last = thrown;
    }
  }
  return last;
}

/** What no patience helps, with a credential that is at hand. */
function credentialEnd(error: CotalError, { reconnect }: ConnectOptions, auth: DialedAuth, denials: number) {
  const isEnd = auth.failure() !== undefined || isTerminal(error) || denials >= denialsAllowed(reconnect);
  return isEnd ? error : undefined;
}

/** The same with one that is fetched. */
function supplyEnd(error: CotalError, { reconnect, supply }: ConnectOptions, denials: number) {
  const ended = supply?.ended();
  if (ended !== undefined) return ended;
  if (isTerminal(error)) return error;
  return denials >= Math.max(MIN_SUPPLY_DENIALS, denialsAllowed(reconnect)) ? calloutRefusal(error) : undefined;
}

/**
 * Waits, by a connection's policy, until a supply has its first credential. Throws what ended the wait.
 */
export async function waitFor(
  supply: Supply,
  options: Pick<ConnectOptions, "reconnect" | "signal" | "onStatus" | "name">,
): Promise<void> {
  const { reconnect, signal, onStatus, name } = options;
  for (let failures = 1; ; failures += 1) {
    if (signal?.aborted === true) throw cancelled(name);
    try {
      return await supply.ready(signal);
    } catch (thrown) {
      const error = fromNats(thrown);
      const isLast = reconnect.kind !== "endless" && failures >= reconnect.attempts;
      if (isLast || supply.ended() !== undefined || error.code === ErrorCode.Cancelled) throw error;
      // The supply has its own pace: `ready` waits for its next attempt.
      onStatus?.({ type: "retrying", failures, waitMs: supply.waitMs(), error });
    }
  }
}

const cancelled = (name: string) =>
  new CotalError(ErrorCode.Cancelled, `the wait for connection ${JSON.stringify(name)} was ended`, {
    outcome: Outcome.NotExecuted,
  });

/** Resolves early when the signal aborts, or has; the caller looks at the signal. */
function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done);
  });
}
