/**
 * Calls the commands of this project's own endpoints on the class rail (§13.2, §13.3).
 *
 * Both sides have the contract in their source, so its digests are pinned without `describe`. What somebody
 * else serves is called through `endpoint-client.ts`. No call is repeated by this file.
 */
import { DEFAULT_DEADLINE_MS, replyError } from "../protocol/endpoint/envelope.ts";
import { Route } from "../protocol/endpoint/grammar.ts";
import { ownDigests } from "./own-digests.ts";
import { type Heard, type Rail, type RailOptions, createRail } from "./rail.ts";
import type { Digests } from "./request.ts";

export type CallerOptions = RailOptions & {
  /** Digests that are pinned; those of this project's own commands, unless told otherwise. */
  readonly digests?: (endpoint: string, command: string) => Digests | undefined;
};

export type CallResult = { readonly data: unknown; readonly instanceId: string; readonly epoch: number };

export type Call = (
  endpoint: string,
  command: string,
  args: unknown,
  options?: { readonly deadlineMs?: number; readonly traceparent?: string },
) => Promise<CallResult>;

/** A caller bound to one connection and one identity. */
export function createCaller(options: CallerOptions): Call {
  return callOn(createRail(options), options.digests);
}

/** The same on a rail that is there. */
export function callOn(rail: Rail, digestsOf: CallerOptions["digests"] = ownDigests): Call {
  return async (endpoint, command, args, { deadlineMs = DEFAULT_DEADLINE_MS, traceparent } = {}) => {
    const digests = digestsOf(endpoint, command);
    const heard = await rail.ask(
      {
        address: { route: Route.One, endpoint, command },
        args,
        ...(digests === undefined ? {} : { digests }),
        ...(traceparent === undefined ? {} : { traceparent }),
      },
      deadlineMs,
    );
    return resultOf(heard);
  };
}

/** The data of an answer, or its refusal. */
export function resultOf({ by, reply }: Heard): CallResult {
  if (!reply.ok) throw replyError(reply);
  return { data: reply.data, instanceId: by.instanceId, epoch: by.epoch };
}
