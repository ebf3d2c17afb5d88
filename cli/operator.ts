/**
 * A connection that calls the daemons' commands, and nothing else: for what an operator does, and for
 * reads by whoever holds a credential.
 */
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import type { z } from "zod";
import { openConnection } from "../shared/broker/connect.ts";
import { type Call, callOn } from "../shared/client/caller.ts";
import { type EndpointClient, createEndpointClient } from "../shared/client/endpoint-client.ts";
import { createRail } from "../shared/client/rail.ts";
import {
  type ChannelMembers,
  type ChannelReached,
  readChannelMembers,
  readChannelReached,
} from "../shared/client/members.ts";
import { type Reads, createReads } from "../shared/client/reads.ts";
import { watchDenials } from "../shared/client/denials.ts";
import { type Credentials, dialedAs } from "../shared/client/identity.ts";
import { openIdentity } from "../shared/client/user-identity.ts";
import type { AuthCommand, DeliveryCommand, ProvisionerCommand } from "../shared/grants/commands.ts";
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";
import { type Principal, dotForm } from "../shared/protocol/base/principals.ts";
import { EndpointName } from "../shared/protocol/endpoint/grammar.ts";
import { trustPaths } from "../shared/trust/folder.ts";
import { livePlane } from "../launcher/plane-record.ts";
import { knownSpaces } from "../launcher/state-folder.ts";
import { nothingRuns, reached } from "./reach.ts";
import { wholeRoster } from "./roster.ts";
import type { Target } from "./target.ts";

export type Rail = {
  readonly me: Principal;
  readonly reads: Reads;
  /** Who hears a channel; for an observer, an admin or a deployer. */
  readonly members: (channel: string) => Promise<ChannelMembers>;
  /** Whom a mention reaches there; for the same. */
  readonly reached: (channel: string) => Promise<ChannelReached>;
  /** Calls a command of the provisioner; the answer is checked against its shape. */
  readonly ask: <S extends z.ZodType>(
    command: ProvisionerCommand,
    args: object,
    answer: S,
    deadlineMs?: number,
  ) => Promise<z.infer<S>>;
  /** Calls a command of the auth service. */
  readonly askAuth: <S extends z.ZodType>(
    command: AuthCommand,
    args: object,
    answer: S,
    deadlineMs?: number,
  ) => Promise<z.infer<S>>;
  /** Calls a command of the delivery service. */
  readonly askDelivery: <S extends z.ZodType>(command: DeliveryCommand, args: object, answer: S) => Promise<z.infer<S>>;
  /** Calls anybody's endpoint, by the contract that it describes. */
  readonly endpoints: EndpointClient;
  readonly close: () => Promise<void>;
};

const DEADLINE_MS = 15_000;

/** The operator's own credential of this state; refused where it is not at hand. */
export function operatorCredentials(target: Target): Credentials {
  if (target.auth === "open") return { kind: "open", actor: "operator" };
  const file = trustPaths(target.state).operatorCreds(target.space);
  if (existsSync(file)) return { kind: "static", file };
  if (!target.isNamed && livePlane(target.state) === undefined) throw nothingRuns(target.state);
  assertKnown(target);
  throw new CotalError(
    ErrorCode.FailedPrecondition,
    `this needs the operator's credential of space ${target.space}, and ${target.state} has none`,
    {
      outcome: Outcome.NotExecuted,
      next: "run it where the space was made (--state DIR), or bring it up first with cotal up or cotal space add",
    },
  );
}

/** Refuses a name that no space of this machine's broker has, where it is that broker that is meant. */
export function assertKnown({ state, space, isNamed, auth }: Target): void {
  const known = knownSpaces(state);
  if (isNamed || auth === "open" || known.length === 0 || known.includes(space)) return;
  throw new CotalError(ErrorCode.NotFound, `there is no space ${space} on ${state}`, {
    outcome: Outcome.NotExecuted,
    next: `it has ${known.join(", ")}; cotal space add ${space} makes it`,
  });
}

async function openRail(target: Target, credentials: Credentials): Promise<Rail> {
  const reconnect = { kind: "bounded", attempts: 3 } as const;
  const identity = await openIdentity({ credentials, space: target.space }, randomBytes, { reconnect });
  const connection = await reached(
    target,
    () =>
      openConnection({
        servers: [target.server],
        reconnect,
        ...dialedAs(identity),
        ...(target.server.startsWith("tls:") ? { tls: {} } : {}),
      }),
    credentials,
  );
  const rail = createRail({
    nc: connection.nc,
    space: identity.space,
    caller: { principal: identity.principal, uid: identity.uid },
    name: identity.name,
    inboxPrefix: identity.inboxPrefix,
    denials: watchDenials(connection.nc),
    random: randomBytes,
  });
  const call: Call = advised(callOn(rail));
  const reads = createReads(call, DEADLINE_MS);
  const ask = async <S extends z.ZodType>(
    endpoint: string,
    command: string,
    args: object,
    answer: S,
    deadlineMs = DEADLINE_MS,
  ): Promise<z.infer<S>> => {
    const { data } = await call(endpoint, command, args, { deadlineMs });
    const parsed = answer.safeParse(data);
    if (parsed.success) return parsed.data;
    throw new CotalError(ErrorCode.Internal, `the answer to ${command} does not have its shape`, {
      outcome: Outcome.Unknown,
      next: "the space's daemons and this CLI may be of different versions",
    });
  };
  return {
    me: identity.principal,
    reads,
    members: (channel) => readChannelMembers(call, channel, DEADLINE_MS),
    reached: (channel) => readChannelReached(call, channel, DEADLINE_MS),
    endpoints: createEndpointClient({
      rail,
      reads: call,
      peer: async (who) => (await wholeRoster(reads)).entries.find(({ id }) => id === dotForm(who)),
    }),
    ask: (command, args, answer, deadlineMs) => ask(EndpointName.Provisioner, command, args, answer, deadlineMs),
    askAuth: (command, args, answer, deadlineMs) => ask(EndpointName.Auth, command, args, answer, deadlineMs),
    askDelivery: (command, args, answer) => ask(EndpointName.Delivery, command, args, answer),
    close: () => connection.drain(2000),
  };
}

/** Silence of a daemon: its status tells more than the call can. */
function advised(call: Call): Call {
  return async (...asked) => {
    try {
      return await call(...asked);
    } catch (thrown) {
      if (!(thrown instanceof CotalError) || thrown.code !== ErrorCode.DeadlineExceeded) throw thrown;
      throw new CotalError(thrown.code, thrown.message, {
        outcome: Outcome.Unknown,
        next: "cotal status shows a daemon that does not answer; what was asked may have been done",
        cause: thrown,
      });
    }
  };
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
