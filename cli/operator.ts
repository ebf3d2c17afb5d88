/**
 * A connection that calls the provisioner's commands, and nothing else: for what an operator does,
 * and for reads by whoever holds a credential.
 *
 * Invariant: a broker that can't be reached, or does not answer the dial, is `unavailable`.
 */
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import type { z } from "zod";
import { openConnection } from "../shared/broker/connect.ts";
import { type Call, createCaller } from "../shared/client/caller.ts";
import { type Reads, createReads } from "../shared/client/reads.ts";
import { watchDenials } from "../shared/client/denials.ts";
import { type Credentials, resolveIdentity } from "../shared/client/identity.ts";
import type { ProvisionerCommand } from "../shared/grants/commands.ts";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../shared/protocol/base/errors.ts";
import type { Principal } from "../shared/protocol/base/principals.ts";
import { EndpointName } from "../shared/protocol/endpoint/grammar.ts";
import { trustPaths } from "../shared/trust/folder.ts";
import type { Target } from "./target.ts";

export type Rail = {
  readonly me: Principal;
  readonly reads: Reads;
  /** Calls a command of the provisioner; the answer is checked against its shape. */
  readonly ask: <S extends z.ZodType>(
    command: ProvisionerCommand,
    args: object,
    answer: S,
    deadlineMs?: number,
  ) => Promise<z.infer<S>>;
  readonly close: () => Promise<void>;
};

const DEADLINE_MS = 15_000;

/** The operator's own credential of this state; refused where it is not at hand. */
export function operatorCredentials(target: Target): Credentials {
  if (target.auth === "open") return { kind: "open", actor: "operator" };
  const file = trustPaths(target.state).operatorCreds(target.space);
  if (existsSync(file)) return { kind: "static", file };
  throw new CotalError(
    ErrorCode.FailedPrecondition,
    `this needs the operator's credential of space ${target.space}, and ${target.state} has none`,
    {
      outcome: Outcome.NotExecuted,
      next: "run it where the space was made (--state DIR), or bring it up first with cotal up or cotal space add",
    },
  );
}

export async function openRail(target: Target, credentials: Credentials): Promise<Rail> {
  const identity = resolveIdentity({ credentials, space: target.space }, randomBytes);
  const connection = await reached(() =>
    openConnection({
      servers: [target.server],
      inboxPrefix: identity.inboxPrefix,
      name: `cotal ${identity.id}`,
      reconnect: { kind: "bounded", attempts: 3 },
      ...(identity.authenticator === undefined ? {} : { authenticator: identity.authenticator }),
      ...(target.server.startsWith("tls:") ? { tls: {} } : {}),
    }),
  );
  const call: Call = createCaller({
    nc: connection.nc,
    space: identity.space,
    caller: { principal: identity.principal, uid: identity.uid },
    name: identity.name,
    inboxPrefix: identity.inboxPrefix,
    denials: watchDenials(connection.nc),
    random: randomBytes,
  });
  return {
    me: identity.principal,
    reads: createReads(call, DEADLINE_MS),
    ask: async (command, args, answer, deadlineMs = DEADLINE_MS) => {
      const { data } = await call(EndpointName.Provisioner, command, args, { deadlineMs });
      const parsed = answer.safeParse(data);
      if (parsed.success) return parsed.data;
      throw new CotalError(ErrorCode.Internal, `the answer to ${command} does not have its shape`, {
        outcome: Outcome.Unknown,
        next: "the provisioner and this CLI may be of different versions",
      });
    },
    close: () => connection.drain(2000),
  };
}

/** A dial that is not answered in time is a broker that can't be reached. */
export async function reached<T>(dial: () => Promise<T>): Promise<T> {
  try {
    return await dial();
  } catch (thrown) {
    const error = toCotalError(thrown);
    const isAway = error.code === ErrorCode.DeadlineExceeded || error.code === ErrorCode.Unavailable;
    if (!isAway) throw thrown;
    throw new CotalError(ErrorCode.Unavailable, error.message, {
      outcome: Outcome.NotExecuted,
      next: "check the address; on this machine start the space with cotal up",
      cause: thrown,
    });
  }
}

/** Runs with a rail and closes it, whatever happens. */
export async function withRail<T>(
  target: Target,
  credentials: Credentials,
  run: (rail: Rail) => Promise<T>,
): Promise<T> {
  const rail = await openRail(target, credentials);
  try {
    return await run(rail);
  } finally {
    await rail.close();
  }
}
