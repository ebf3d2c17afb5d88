/** The ledger of serving instances, where the auth service writes it: each step is a request to it. */
import { AuthCommand } from "../../../shared/grants/commands.ts";
import type { ServingLedger } from "../../../shared/ledger/serving-type.ts";
import { CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { ServingAnswer, type ServingArgs } from "../../../shared/protocol/endpoint/auth-shapes.ts";
import { type AskAuthOptions, askAuth } from "../ask-auth.ts";

/** A takeover lets logins settle before it counts who is connected. */
const DEADLINE_MS = 20_000;
/** Whoever looks at gates looks at much else, and has an answer due. */
const LOOK_MS = 3_000;

export function askedServing(options: AskAuthOptions): ServingLedger {
  const ask = async (args: ServingArgs) =>
    ServingAnswer.parse(await askAuth(options, AuthCommand.Serving, args, DEADLINE_MS));
  return {
    assign: async (request) => void (await ask({ step: "assign", ...request })),
    begin: async ({ instanceId, ...request }) => {
      const { begun } = await ask({ step: "begin", ...request, ...(instanceId === undefined ? {} : { instanceId }) });
      if (begun !== undefined) return begun;
      throw odd("the auth service began nothing");
    },
    open: async (request) => void (await ask({ step: "open", ...request })),
    enter: async (request) => void (await ask({ step: "enter", ...request })),
    held: async (cursor) => {
      const asked: ServingArgs = { step: "held", ...(cursor === undefined ? {} : { cursor }) };
      const { held } = ServingAnswer.parse(await askAuth(options, AuthCommand.Serving, asked, LOOK_MS));
      if (held === undefined) throw odd("the auth service told of no gates");
      const { cursor: next, gates, unreadable } = held;
      return { gates, unreadable, ...(next === undefined ? {} : { cursor: next }) };
    },
  };
}

const odd = (why: string) => new CotalError(ErrorCode.Internal, why, { next: "look at its version" });
