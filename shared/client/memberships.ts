/**
 * Durable membership as a session asks for it (§7): the daemon writes the row, the session only asks.
 *
 * Both commands may be repeated: a join of what is joined, and a leave of what was left, change nothing.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { z } from "zod";
import { DeliveryCommand } from "../grants/commands.ts";
import { isConcrete, isFamily } from "../protocol/base/channels.ts";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../protocol/base/errors.ts";
import type { DeliveryClass } from "../protocol/chat/channel-config.ts";
import { DurableLeaveAnswer, Membership, WRITER_DETAIL } from "../protocol/endpoint/delivery-shapes.ts";
import { EndpointName } from "../protocol/endpoint/grammar.ts";
import type { Call } from "./caller.ts";

export type Memberships = {
  readonly join: (channel: string, cursor: number) => Promise<Membership>;
  readonly leave: (channel: string) => Promise<DurableLeaveAnswer>;
};

/** Asks that met an instance which does not write the copies of this member. */
const MOST_ASKS = 40;
const PAUSE_MS = 50;

export function createMemberships(call: Call, deadlineMs: number): Memberships {
  const ask = async <Answer extends z.ZodType>(
    command: DeliveryCommand,
    args: object,
    answer: Answer,
  ): Promise<z.output<Answer>> => {
    for (let asked = 1; ; asked += 1) {
      try {
        const { data } = await call(EndpointName.Delivery, command, args, { deadlineMs });
        return answer.parse(data);
      } catch (thrown) {
        const error = toCotalError(thrown);
        const isNamed = error.details?.some(({ kind }) => kind === WRITER_DETAIL) === true;
        // Or it met a run that was succeeded, and nothing was done there.
        const isElsewhere = isNamed || (error.code === ErrorCode.Expired && error.outcome === Outcome.NotExecuted);
        if (!isElsewhere || asked >= MOST_ASKS) throw error;
        // The next ask reaches any instance, with luck the one that writes.
        await sleep(PAUSE_MS);
      }
    }
  };
  return {
    join: (channel, cursor) => ask(DeliveryCommand.DurableJoin, { channel, cursor }, Membership),
    leave: (channel) => ask(DeliveryCommand.DurableLeave, { channel }, DurableLeaveAnswer),
  };
}

/** Does a join of this channel ask for a membership (§7)? A family does, for each channel has its own class. */
export function asksForMembership(channel: string, effective: DeliveryClass | "unknown"): boolean {
  return isConcrete(channel) ? effective === "durable" : isFamily(channel);
}

/** Why there is no backstop, in words for the member. */
export function shortfallOf(error: CotalError): string {
  switch (error.code) {
    case ErrorCode.PermissionDenied:
      return "durable backstop unavailable: this credential takes no durable membership here; history has what was missed";
    case ErrorCode.FailedPrecondition:
    case ErrorCode.ResourceExhausted:
      return `durable backstop unavailable: ${error.message}; history has what was missed`;
    default:
      return "durable backstop unavailable: nobody keeps copies for who is away just now; history has what was missed, and it is asked for again";
  }
}

/** The live side has ended; the membership stands, and copies go on coming. */
export function stillMember(channel: string, cause: CotalError): CotalError {
  return new CotalError(
    cause.code === ErrorCode.PermissionDenied ? cause.code : ErrorCode.Unavailable,
    `#${channel.slice(0, 200)} was left live, and its durable membership could not be ended`,
    { outcome: Outcome.Unknown, next: "leave it again when the delivery service answers", cause },
  );
}
