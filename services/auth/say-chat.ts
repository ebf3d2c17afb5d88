/** What is counted and logged of chat sessions. No event of theirs carries a secret. */
import type { Context } from "../../shared/daemon/lifecycle.ts";
import type { ChatEvent } from "./edge/chat-routes.ts";
import type { SweepEvent } from "./plane/chat/sweep.ts";
import type { Sparing } from "../../shared/daemon/sparing.ts";

export type ChatSayings = {
  readonly onChat: (event: ChatEvent) => void;
  readonly onSweep: (event: SweepEvent) => void;
};

export function chatSayings(
  { metrics, log }: Pick<Context<unknown>, "metrics" | "log">,
  sparing: Sparing,
): (space: string) => ChatSayings {
  const requests = metrics.counter({
    name: `${metrics.prefix}chat_requests_total`,
    help: "Requests about chat sessions, by route and result.",
    labels: ["space", "command", "result"],
  });
  const swept = metrics.counter({
    name: `${metrics.prefix}chat_sweeps_total`,
    help: "What the sweep of chat sessions did, by result.",
    labels: ["space", "result"],
  });
  return (space) => ({
    onChat: ({ route, result, principal, cause }) => {
      requests.inc({ space, command: route, result });
      const fields = { space, route, result, principal };
      if (cause === undefined) log.debug("asked about a chat session", fields);
      else sparing((more) => log.warn("a request about a chat session failed", { ...fields, err: cause, ...more }));
    },
    onSweep: (event) => {
      swept.inc({ space, result: event.kind });
      const { kind, ...rest } = event;
      const fields = { space, kind, ...("cause" in rest ? { err: rest.cause } : rest) };
      if (kind === "failed" || kind === "pass-failed" || kind === "unreadable") {
        sparing((more) => log.warn("the sweep of chat sessions met a fault", { ...fields, ...more }));
      } else log.debug("swept a chat session", fields);
    },
  });
}
