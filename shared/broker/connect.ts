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
import {
  AuthorizationError,
  type ConnectionOptions,
  type NatsConnection,
  PermissionViolationError,
  type ServerInfo,
  type Status,
  type TlsOptions,
  UserAuthenticationExpiredError,
  connect,
} from "@nats-io/transport-node";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Authenticator, type DialedAuth, dialedAuth } from "./authenticator.ts";
import { isLineTooLong } from "./diagnose.ts";
import { fromNats } from "./errors.ts";
import { type Version, assertFloor } from "./floor.ts";
import { type Pace, createPace } from "./pace.ts";

export type { Authenticator } from "./authenticator.ts";

export type ReconnectPolicy = {
  readonly baseMs?: number;
  readonly capMs?: number;
  /** How long a connection must have been up for the waits to start over. */
  readonly stableMs?: number;
  /** Refused credentials in a row that end it: 3 for an endless policy, 1 for a bounded one. */
  readonly denials?: number;
} & ({ readonly kind: "endless" } | { readonly kind: "bounded"; readonly attempts: number });

export type ConnectionStatus =
  | { readonly type: "up"; readonly server: string; readonly version: string }
  | { readonly type: "down"; readonly server: string }
  /** A dial failed, and another follows in about `waitMs`. */
  | { readonly type: "retrying"; readonly failures: number; readonly waitMs: number; readonly error?: CotalError }
  /** The broker refused something on this connection: a publish, a subscription, a login. */
  | { readonly type: "refused"; readonly error: CotalError }
  | { readonly type: "slow"; readonly subject: string; readonly pending: number }
  | { readonly type: "closed"; readonly error?: CotalError };

export type ConnectOptions = {
  /** `host:port` or `nats://host:port`, `tls://host:port`. */
  readonly servers: readonly string[];
  readonly authenticator?: Authenticator;
  readonly inboxPrefix: string;
  /** Shown by the broker's monitoring. Never a secret. */
  readonly name: string;
  readonly tls?: TlsOptions;
  /** Bound of one dial, login included, in milliseconds. */
  readonly timeoutMs?: number;
  readonly reconnect: ReconnectPolicy;
  readonly floor?: Version;
  /** A dead link is noticed after about three of these, in milliseconds. */
  readonly pingMs?: number;
  readonly onStatus?: (status: ConnectionStatus) => void;
  /** Ends the wait for the first connection. */
  readonly signal?: AbortSignal;
  readonly random?: () => number;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
};

export type Connection = {
  readonly nc: NatsConnection;
  readonly name: string;
  readonly inboxPrefix: string;
  /** INFO of the server that answered last. */
  readonly info: ServerInfo;
  readonly maxPayload: number;
  readonly version: string;
  readonly isUp: () => boolean;
  /** Waits until the connection is up; `unavailable`, not executed, when it isn't in time. */
  readonly up: (timeoutMs: number) => Promise<void>;
  readonly closed: Promise<CotalError | undefined>;
  /** Ends subscriptions, sends what is pending and closes, all within the bound. */
  readonly drain: (timeoutMs?: number) => Promise<void>;
  readonly close: () => Promise<void>;
};

const DIAL_TIMEOUT_MS = 2000;
const DRAIN_TIMEOUT_MS = 5000;
/** No server has a smaller line limit than this; a shorter CONNECT was dropped for another reason. */
const SHORTEST_SUSPECT_BYTES = 512;

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

const denialsAllowed = ({ denials, kind }: ReconnectPolicy): number => denials ?? (kind === "endless" ? 3 : 1);

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

/** Why a connection that stands must not be used. */
function unfitness(nc: NatsConnection, options: ConnectOptions, auth: DialedAuth): CotalError | undefined {
  if (auth.failure() !== undefined) return credentialError(auth.failure());
  try {
    assertFloor(nc.info?.version ?? "", options.floor);
    return undefined;
  } catch (thrown) {
    return fromNats(thrown);
  }
}

const isTerminal = (error: CotalError): boolean => error.code === ErrorCode.FailedPrecondition;

async function explain(
  thrown: unknown,
  options: ConnectOptions,
  auth: DialedAuth,
  reachedConnect: boolean,
): Promise<CotalError> {
  if (auth.failure() !== undefined) return credentialError(auth.failure());
  // A socket that closes during login may reject with `undefined`.
  const error = fromNats(
    thrown ?? new CotalError(ErrorCode.Unavailable, "the broker closed the connection"),
    "connect",
  );
  if (error.code === ErrorCode.Unauthenticated || !reachedConnect) return error;
  return (await tooLong(options, auth)) ?? error;
}

/** The named diagnosis of field case 26, if it is the cause. */
async function tooLong(options: ConnectOptions, auth: DialedAuth): Promise<CotalError | undefined> {
  const bytes = auth.connectBytes();
  if (bytes < SHORTEST_SUSPECT_BYTES) return undefined;
  const { servers, tls, timeoutMs = DIAL_TIMEOUT_MS } = options;
  if (!(await isLineTooLong({ servers, timeoutMs, ...(tls === undefined ? {} : { tls }) }, bytes))) return undefined;
  return new CotalError(
    ErrorCode.FailedPrecondition,
    `the broker drops the connection during CONNECT; its max_control_line is too small for the ${bytes} bytes of this login`,
    { outcome: Outcome.NotExecuted, next: "set max_control_line to 65536 on every server and reload it" },
  );
}

function credentialError(cause: unknown): CotalError {
  if (cause instanceof CotalError) return cause;
  return new CotalError(ErrorCode.Unauthenticated, "the credential of this connection can't be read", {
    outcome: Outcome.NotExecuted,
    next: "check the credential file that this process was given",
    cause,
  });
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

/** Watches a standing connection to its end. */
function keep(nc: NatsConnection, options: ConnectOptions, auth: DialedAuth, pace: Pace): Connection {
  let info = nc.info ?? missingInfo();
  let isUp = true;
  let terminal: CotalError | undefined;
  let denials = 0;
  /** The dial in progress while down: did the broker refuse its login? */
  let dial: { readonly from: number; denied: boolean } | undefined;
  let diagnosing = false;
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
    if (ended === undefined || auth.count() === ended.from) return;
    if (auth.failure() !== undefined) {
      tell({ type: "refused", error: credentialError(auth.failure()) });
    } else if (ended.denied) {
      denials += 1;
      const error = fromNats(new AuthorizationError("denied"), "reconnect");
      if (denials >= denialsAllowed(options.reconnect)) await fail(error);
    } else if (!diagnosing) {
      diagnosing = true;
      const error = await tooLong(options, auth);
      diagnosing = false;
      if (error !== undefined) await fail(error);
    }
  };

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
        tell({ type: "down", server: status.server });
        break;
      case "reconnect": {
        if (isUp) return;
        info = nc.info ?? info;
        const unfit = unfitness(nc, options, auth);
        if (unfit !== undefined) return fail(unfit);
        isUp = true;
        denials = 0;
        dial = undefined;
        pace.up();
        tell({ type: "up", server: status.server, version: info.version });
        wake();
        break;
      }
      case "error":
        if (isDenial(status.error)) {
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

/** A refused login, told as a status while a dial is under way. */
const isDenial = (error: Error): boolean =>
  error instanceof AuthorizationError || error instanceof UserAuthenticationExpiredError;

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
