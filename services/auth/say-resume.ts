/** What is counted and logged of ends that another process had left. */
import type { Context } from "../../shared/daemon/lifecycle.ts";
import type { Sparing } from "../../shared/daemon/sparing.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import type { ResumeEvent } from "./plane/operations.ts";

export function resumeSayings(
  { metrics, log }: Pick<Context<unknown>, "metrics" | "log">,
  sparing: Sparing,
): (space: string) => (event: ResumeEvent) => void {
  const counted = metrics.counter({
    name: `${metrics.prefix}ends_resumed_total`,
    help: "Ends of lifecycles that a process had left and this one took up, by result.",
    labels: ["space", "result"],
  });
  return (space) => (event) => {
    counted.inc({ space, result: event.kind });
    switch (event.kind) {
      case "resumed":
        log.info("an end that was left unfinished is through", { space, ...named(event.gate) });
        break;
      case "waiting":
        sparing((more) => log.warn("an end waits", { space, ...named(event.gate), why: event.why, ...more }));
        break;
      case "unreadable":
        sparing((more) => log.warn("a gate does not parse, or is nobody's", { space, key: event.key, ...more }));
        break;
      case "failed":
        sparing((more) => log.warn("the gates could not be walked", { space, err: event.cause, ...more }));
    }
  };
}

const named = (gate: Extract<ResumeEvent, { kind: "resumed" }>["gate"]) => ({
  principal: dotForm(gate),
  lifecycleUid: gate.lifecycleUid,
  opId: gate.opId,
});
