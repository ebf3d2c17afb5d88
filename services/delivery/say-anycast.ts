/** What anycast tells of itself, as logs and metrics. No body and no id of a request is ever among it. */
import type { Context } from "../../shared/daemon/lifecycle.ts";
import type { AnycastEvent } from "./anycast/anycast.ts";

export function anycastSayings({
  log,
  metrics,
}: Pick<Context<unknown>, "log" | "metrics">): (space: string, event: AnycastEvent) => void {
  const takes = metrics.counter({
    name: `${metrics.prefix}takes_total`,
    help: "Takes of requests to a role, by answer; `dropped` got none.",
    labels: ["space", "result"],
  });
  const notices = metrics.counter({
    name: `${metrics.prefix}notices_total`,
    help: "Notices to senders of requests to a role, by whether they were published.",
    labels: ["space", "result"],
  });
  const rows = metrics.gauge({
    name: `${metrics.prefix}anycast_rows`,
    help: "Records of requests to a role, as the last sweep found them.",
    labels: ["space"],
  });
  const untaken = metrics.gauge({
    name: `${metrics.prefix}untaken_deliveries`,
    help: "Deliveries of requests to a role that were held for two sweeps and not taken.",
    labels: ["space"],
  });
  return (space, event) => {
    switch (event.kind) {
      case "answered":
        takes.inc({ space, result: event.result });
        return log.debug("a take was answered", { space, result: event.result, milliseconds: event.milliseconds });
      case "dropped":
        takes.inc({ space, result: "dropped" });
        return log.debug("a take was dropped", { space, why: event.why });
      case "failed":
        return log.warn("a take could not be decided", { space, error: event.cause });
      case "noticed":
        return notices.inc({ space, result: "published" });
      case "notice-failed":
        notices.inc({ space, result: "failed" });
        return log.warn("a notice could not be published; it stays owed", { space, error: event.cause });
      case "swept": {
        const { rows: found, removed, unreadable, failed, cause } = event.swept;
        rows.set({ space }, found);
        untaken.set(
          { space },
          event.untaken.reduce((sum, { count }) => sum + count, 0),
        );
        for (const { role, count } of event.untaken) log.warn(UNTAKEN, { space, role, count, next: LOOK_AT });
        if (unreadable > 0) log.error("records of requests can't be read", { space, unreadable });
        if (failed > 0) log.warn("records of requests could not all be swept", { space, failed, error: cause });
        return log.debug("records of requests were swept", { space, rows: found, removed });
      }
      case "sweep-failed":
        return log.warn("records of requests could not be swept", { space, error: event.cause });
    }
  };
}

const UNTAKEN = "requests to a role are held by somebody who does not take them";
const LOOK_AT = "look at who holds this role: one that hoards, one of a version without takes, or one that never reads";
