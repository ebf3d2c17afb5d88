/**
 * A dial of a command, and what is said when it fails: which address, which credential, what to do.
 *
 * Invariants
 * 1. A broker that can't be reached, or does not answer the dial, is `unavailable`.
 * 2. The advice fits the place: a space of this state folder is started, somebody else's is not.
 */
import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { isOfExchange } from "../shared/client/exchange.ts";
import type { Credentials } from "../shared/client/identity.ts";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../shared/protocol/base/errors.ts";
import { readCredsFile } from "../shared/trust/creds.ts";
import { trustPaths } from "../shared/trust/folder.ts";
import { livePlane } from "../launcher/plane-record.ts";
import type { Target } from "./target.ts";

/** Runs a dial; a failure names the address, or the credential that was presented. */
export async function reached<T>(target: Target, dial: () => Promise<T>, credentials?: Credentials): Promise<T> {
  try {
    return await dial();
  } catch (thrown) {
    const error = toCotalError(thrown);
    if (isOfExchange(error)) throw error;
    switch (error.code) {
      case ErrorCode.DeadlineExceeded:
      case ErrorCode.Unavailable:
        throw away(target, error);
      case ErrorCode.Unauthenticated:
        throw credentials === undefined ? error : refusedLogin(target, credentials, error);
      default:
        throw thrown;
    }
  }
}

/** Nothing of this state runs, and no other place was named. */
export function nothingRuns(state: string, cause?: unknown): CotalError {
  return new CotalError(ErrorCode.Unavailable, `nothing runs on ${state}`, {
    outcome: Outcome.NotExecuted,
    next: "start it with cotal up, or name the folder of a space that runs with --state DIR",
    ...(cause === undefined ? {} : { cause }),
  });
}

function away(target: Target, cause: CotalError): CotalError {
  const { state, server, isNamed } = target;
  const runs = livePlane(state) !== undefined;
  if (!isNamed && !runs) return nothingRuns(state, cause);
  return new CotalError(ErrorCode.Unavailable, `${server} is not reached: ${cause.message}`, {
    outcome: Outcome.NotExecuted,
    next: isNamed
      ? "check the address, and that the space runs there"
      : "cotal status shows which part is down; the launcher starts it again",
    cause,
  });
}

/** The broker does not want this login: says whose it is, and how to get another. */
export function refusedLogin(target: Target, credentials: Credentials, cause: CotalError): CotalError {
  const say = (message: string, next: string): CotalError =>
    new CotalError(ErrorCode.Unauthenticated, message, { outcome: Outcome.NotExecuted, next, cause });
  const { server } = target;
  if (credentials.kind === "open") {
    return say(`${server} lets nobody in without a credential`, "name one with --creds FILE (cotal mint makes it)");
  }
  if (credentials.kind !== "static" || !("file" in credentials)) return cause;
  const { file } = credentials;
  const ended = endOf(file);
  const message =
    ended === undefined || ended > Date.now()
      ? `${server} refuses the credential ${file}: it was taken back, or is for another broker`
      : `the credential ${file} expired at ${new Date(ended).toISOString()}`;
  return say(message, another(target, file));
}

/** How the operator's credential is made anew: where the keys of the space are. A desk has none. */
export function renewOperator({ state, space }: Pick<Target, "state" | "space">): string {
  return existsSync(trustPaths(state).operatorKey)
    ? `renew it: cotal space add ${space}, or start with cotal up again`
    : "renew it where the keys of the space are; in containers: docker compose up -d --no-recreate && deploy/desk";
}

/** How to get another credential in place of this file. */
function another({ state, space }: Target, file: string): string {
  const paths = trustPaths(state);
  if (file === paths.operatorCreds(space)) return renewOperator({ state, space });
  if (dirname(file) === paths.agents(space)) return "remove the file, and --as mints a new one";
  return "ask the operator for a new one (cotal mint)";
}

/** Epoch milliseconds at which the credential of the file ends; `undefined` if it does not say. */
function endOf(file: string): number | undefined {
  try {
    const { expires } = readCredsFile(file).view;
    return expires === undefined ? undefined : expires * 1000;
  } catch {
    // Whoever dialled with it has said so already.
    return undefined;
  }
}
