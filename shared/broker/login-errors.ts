/**
 * Why a dial failed, and why a connection that stands must not be used.
 *
 * Three answers are terminal however patient the policy is: a broker below the floor, a CONNECT line
 * the broker drops for its length (field case 26), and a credential refused too often in a row.
 */
import {
  AuthorizationError,
  type NatsConnection,
  TimeoutError,
  UserAuthenticationExpiredError,
} from "@nats-io/transport-node";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import type { DialedAuth } from "./authenticator.ts";
import type { ConnectOptions, ReconnectPolicy } from "./connection.ts";
import { isLineTooLong } from "./diagnose.ts";
import { fromNats } from "./errors.ts";
import { assertFloor } from "./floor.ts";

/**
 * Longer than the broker's own two seconds for a login. So long it asks in vain who comes with a JWT that a former key
 * has signed: what it says then has to be heard as a refusal, which fetches the next one, and not be taken for silence.
 */
export const DIAL_TIMEOUT_MS = 4000;
/** No server has a smaller line limit than this; a shorter CONNECT was dropped for another reason. */
const SHORTEST_SUSPECT_BYTES = 512;

/** Refused credentials in a row that end a connection. */
export const denialsAllowed = ({ denials, kind }: ReconnectPolicy): number => denials ?? (kind === "endless" ? 3 : 1);

/** A fetched credential is fetched once more: what was refused may have been overtaken meanwhile. */
export const MIN_SUPPLY_DENIALS = 2;

/** The broker refuses what its maker has just called good. */
export function calloutRefusal(cause: unknown): CotalError {
  return new CotalError(ErrorCode.Unauthenticated, "the broker refuses a bearer that the exchange has just made", {
    outcome: Outcome.NotExecuted,
    next: "run cotal doctor where the space runs: the reason is in the log of its auth service",
    cause,
  });
}

/** Why a connection that stands must not be used. */
export function unfitness(nc: NatsConnection, options: ConnectOptions, auth: DialedAuth): CotalError | undefined {
  if (auth.failure() !== undefined) return credentialError(auth.failure());
  try {
    assertFloor(nc.info?.version ?? "", options.floor);
    return undefined;
  } catch (thrown) {
    return fromNats(thrown);
  }
}

export const isTerminal = (error: CotalError): boolean => error.code === ErrorCode.FailedPrecondition;

/** A dial that failed, named. */
export async function explain(
  thrown: unknown,
  options: ConnectOptions,
  auth: DialedAuth,
  reachedConnect: boolean,
): Promise<CotalError> {
  if (auth.failure() !== undefined) return credentialError(auth.failure());
  const error = dialError(thrown, options.timeoutMs ?? DIAL_TIMEOUT_MS);
  if (error.code === ErrorCode.Unauthenticated || !reachedConnect) return error;
  return (await tooLong(options, auth)) ?? error;
}

/** A broker asks the auth service of an account about whoever comes under a key that it does not know. */
const NO_LOGIN =
  "either the broker is frozen, or it waits for the auth service of the space and gets no answer: look at both logs";

function dialError(thrown: unknown, timeoutMs: number): CotalError {
  const unavailable = (text: string, next = "check that the broker runs at this address, and its log"): CotalError =>
    new CotalError(ErrorCode.Unavailable, `connect: ${text}`, {
      outcome: Outcome.NotExecuted,
      next,
      cause: thrown,
    });
  // A socket that closes during login may reject with `undefined`, or leave nats.js waiting.
  if (thrown === undefined) return unavailable("the broker closed the connection");
  if (thrown instanceof TimeoutError) return unavailable(`no login within ${timeoutMs} ms`, NO_LOGIN);
  const error = fromNats(thrown, "connect");
  // What is said elsewhere about JetStream helps nobody who has no connection yet.
  if (error.code === ErrorCode.Unavailable) return unavailable(error.message.replace(/^connect: /, ""));
  // nats.js has no class for a server that does not begin with INFO: it throws a bare error.
  const isBare = error.code === ErrorCode.Internal && thrown instanceof Error && !("code" in thrown);
  return isBare ? unavailable("what answers there is not a nats-server") : error;
}

/** The named diagnosis of field case 26, if it is the cause. */
export async function tooLong(options: ConnectOptions, auth: DialedAuth): Promise<CotalError | undefined> {
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

export function credentialError(cause: unknown): CotalError {
  if (cause instanceof CotalError) return cause;
  return new CotalError(ErrorCode.Unauthenticated, "the credential of this connection can't be read", {
    outcome: Outcome.NotExecuted,
    next: "check the credential file that this process was given",
    cause,
  });
}

/** A refused login, told as a status while a dial is under way. */
export const isDenial = (error: Error): boolean =>
  error instanceof AuthorizationError || error instanceof UserAuthenticationExpiredError;
