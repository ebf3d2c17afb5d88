/** A sender's side of requests to a role (§8.1): what became of one, and taking it back. */
import { DeliveryCommand } from "../grants/commands.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { AnycastStatus } from "../protocol/chat/anycast.ts";
import { EndpointName } from "../protocol/endpoint/grammar.ts";
import type { Call } from "./caller.ts";
import type { Identity } from "./identity.ts";
import type { Asked, AskedRequest } from "./session-types.ts";

export function createAsked(call: Call, mode: Identity["mode"], deadlineMs: number): Asked {
  const ask = async (command: DeliveryCommand, { seq, id }: AskedRequest): Promise<AnycastStatus> => {
    if (mode === "open") throw noRecord();
    const args = { seq, ...(id === undefined ? {} : { id }) };
    const { data } = await call(EndpointName.Delivery, command, args, { deadlineMs });
    const status = AnycastStatus.safeParse(data);
    if (status.success) return status.data;
    throw new CotalError(ErrorCode.Internal, `the answer to ${command} does not have the shape of one`, {
      outcome: Outcome.Unknown,
      next: "check that the daemons and this client are of one version",
    });
  };
  return {
    status: (request) => ask(DeliveryCommand.AnycastStatus, request),
    cancel: (request) => ask(DeliveryCommand.AnycastCancel, request),
  };
}

function noRecord(): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, "an open space keeps no record of requests to a role (§8.1)", {
    outcome: Outcome.NotExecuted,
    next: "ask the holder; a space with credentials keeps one",
  });
}
