/**
 * What an instance that does not hold the plane asks of the one that does, and how that one answers (decision
 * 31): a lifecycle that has not begun (H45), and a new chat session.
 *
 * Invariants
 * 1. Only the auth service of this space asks. It has proved who somebody is; whether such a one may begin is
 *    judged anew, from the rows, by whoever writes them.
 * 2. Nothing but an activation travels: no proof, no secret, no bearer.
 * 3. While the plane changes hands nobody answers, for seconds: what was not begun is asked again. So many wait for
 *    that and no more: whoever is enrolled needs no plane, and must find room.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Call } from "../../../shared/client/caller.ts";
import { isNobodyThere } from "../../../shared/client/rail-errors.ts";
import { AuthCommand } from "../../../shared/grants/commands.ts";
import { createTurns } from "../../../shared/ledger/turns.ts";
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { type Principal, dotForm, principal } from "../../../shared/protocol/base/principals.ts";
import { ChatOpenAnswer, type ChatOpenArgs, type EnrolArgs } from "../../../shared/protocol/endpoint/auth-shapes.ts";
import { type Caller, EndpointName } from "../../../shared/protocol/endpoint/grammar.ts";
import type { ChatSession } from "../../../shared/protocol/ledger/chat-rows.ts";
import { type OpenChat, openChat } from "./chat/open.ts";
import type { ChatParts } from "./chat/parts.ts";
import { type Newcomer, beginFor } from "./enrol.ts";
import { demandPlane, isNoPlane, refusal } from "./parts.ts";

/** Whoever holds the plane, as another instance reaches it. Throws what it refused with. */
export type PlaneElsewhere = {
  readonly begin: (p: Principal, who: Newcomer) => Promise<void>;
  readonly openChat: (asked: OpenChat) => Promise<ChatSession>;
};

const DEADLINE_MS = 5_000;
/** A plane that was killed is another's after two to four seconds; who asks waits ten for the answer. */
const PATIENCE_MS = 6_000;
const LOOK_MS = 100;
const MOST_WAITING = 32;

/** The call, patient. There is one for each space of a process: those who wait are counted. */
function patient(call: Call): Call {
  let waiting = 0;
  const again = async (asked: Parameters<Call>): ReturnType<Call> => {
    for (const until = performance.now() + PATIENCE_MS; ;) {
      await sleep(LOOK_MS);
      try {
        return await call(...asked);
      } catch (thrown) {
        if (!isUnheld(thrown) || performance.now() > until) throw thrown;
      }
    }
  };
  return async (...asked) => {
    try {
      return await call(...asked);
    } catch (thrown) {
      if (!isUnheld(thrown) || waiting >= MOST_WAITING) throw thrown;
      waiting += 1;
      return await again(asked).finally(() => (waiting -= 1));
    }
  };
}

/** Nobody holds the plane now. What a holder refuses is his answer, and is told at once. */
const isUnheld = (thrown: unknown): boolean => isNobodyThere(thrown) || isNoPlane(thrown);

export function planeOver(impatient: Call): PlaneElsewhere {
  const call = patient(impatient);
  return {
    begin: async ({ owner, actor }, who) => {
      const args: EnrolArgs =
        who.by === "agent" ? { by: "agent", owner, actor } : { by: "person", owner, actor, name: who.name };
      await call(EndpointName.Auth, AuthCommand.Enrol, args, { deadlineMs: DEADLINE_MS });
    },
    openChat: async ({ allowSubscribe, allowPublish, ...asked }) => {
      const args: ChatOpenArgs = {
        ...asked,
        ...(allowSubscribe === undefined ? {} : { allowSubscribe: [...allowSubscribe] }),
        ...(allowPublish === undefined ? {} : { allowPublish: [...allowPublish] }),
      };
      const { data } = await call(EndpointName.Auth, AuthCommand.ChatOpen, args, { deadlineMs: DEADLINE_MS });
      return ChatOpenAnswer.parse(data).session;
    },
  };
}

/** The other side of it. */
export type EdgeAnswers = {
  readonly enrol: (caller: Caller, args: EnrolArgs) => Promise<void>;
  readonly chatOpen: (caller: Caller, args: ChatOpenArgs) => Promise<ChatSession>;
};

export function answerEdges(parts: ChatParts): EdgeAnswers {
  const inTurn = createTurns();
  const demandEdge = async ({ principal: who }: Caller): Promise<void> => {
    await demandPlane(parts);
    if (parts.isReservedOwner(who.owner) && who.actor === EndpointName.Auth) return;
    throw refusal(ErrorCode.PermissionDenied, `${dotForm(who)} is not the auth service`, "sign in at the exchange");
  };
  return {
    enrol: async (caller, { owner, actor, ...who }) => {
      await demandEdge(caller);
      const p = principal(owner, actor);
      await inTurn(dotForm(p), () => beginFor(parts, inTurn, p, who));
    },
    chatOpen: async (caller, asked) => {
      await demandEdge(caller);
      return inTurn(asked.owner, () => openChat(parts, asked));
    },
  };
}
