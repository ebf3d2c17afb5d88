/** The ledger of serving instances, where the auth service writes it: each step is a request to it. */
import { AuthCommand } from "../../../shared/grants/commands.ts";
import type { ServingLedger } from "../../../shared/ledger/serving-type.ts";
import { CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { ServingAnswer, type ServingArgs } from "../../../shared/protocol/endpoint/auth-shapes.ts";
import { type AskAuthOptions, askAuth } from "../ask-auth.ts";

/** A takeover lets logins settle before it counts who is connected. */
const DEADLINE_MS = 20_000;

export function askedServing(options: AskAuthOptions): ServingLedger {
  const ask = async (args: ServingArgs) =>
    ServingAnswer.parse(await askAuth(options, AuthCommand.Serving, args, DEADLINE_MS));
  return {
    assign: async (request) => void (await ask({ step: "assign", ...request })),
    begin: async ({ instanceId, ...request }) => {
      const { begun } = await ask({ step: "begin", ...request, ...(instanceId === undefined ? {} : { instanceId }) });
      if (begun !== undefined) return begun;
      throw new CotalError(ErrorCode.Internal, "the auth service began nothing", { next: "look at its version" });
    },
    open: async (request) => void (await ask({ step: "open", ...request })),
    enter: async (request) => void (await ask({ step: "enter", ...request })),
  };
}
