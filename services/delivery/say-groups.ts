/** What the member groups tell of themselves, as logs and metrics. */
import type { Context } from "../../shared/daemon/lifecycle.ts";
import { MAX_GROUPS } from "../../shared/protocol/ledger/member-rows.ts";
import type { GroupEvent } from "./fanout/groups.ts";

export function groupSayings({
  log,
  metrics,
}: Pick<Context<unknown>, "log" | "metrics">): (space: string, event: GroupEvent) => void {
  const copies = metrics.counter({
    name: `${metrics.prefix}copies_total`,
    help: "Copies written to members.",
    labels: ["space", "group"],
  });
  const position = metrics.gauge({
    name: `${metrics.prefix}fanout_position`,
    help: "The last post of which every member has its copy.",
    labels: ["space", "group"],
  });
  const waiting = metrics.gauge({
    name: `${metrics.prefix}fanout_waiting_since_seconds`,
    help: "When the oldest post was stored whose copies are not written yet, Unix seconds; 0 where none waits.",
    labels: ["space", "group"],
  });
  const held = metrics.gauge({
    name: `${metrics.prefix}group_held`,
    help: "1 where this process writes the copies of the member group, else 0. The sum over all processes is 1.",
    labels: ["space", "group"],
  });
  const fanout = metrics.counter({
    name: `${metrics.prefix}fanout_events_total`,
    help: "What else the fan-out met: groups claimed, failures, posts lost before they were read, copies taken back.",
    labels: ["space", "group", "state"],
  });
  return (space, event) => {
    if (event.type === "numbered") {
      // A group that is gone is none that nobody writes.
      for (let gone = event.groups; gone < MAX_GROUPS; gone += 1) {
        for (const gauge of [position, waiting, held]) gauge.remove({ space, group: String(gone) });
      }
      return log.info("member groups in force", { space, groups: event.groups });
    }
    const group = String(event.group);
    if (event.type === "copies") return copies.inc({ space, group }, event.count);
    if (event.type === "position") return position.set({ space, group }, event.position);
    if (event.type === "waiting") return waiting.set({ space, group }, (event.since ?? 0) / 1000);
    // Whoever takes it over tells it anew.
    if (event.type === "lost") waiting.set({ space, group }, 0);
    if (event.type === "held" || event.type === "lost") held.set({ space, group }, event.type === "held" ? 1 : 0);
    fanout.inc({ space, group, state: event.type }, event.type === "gap" || event.type === "swept" ? event.count : 1);
    if (event.type === "failed") {
      const { code, message } = event.error;
      log.warn("a member group is begun anew", { space, group, code, why: message });
    } else if (event.type === "gap") {
      log.warn("posts had left the stream before their copies were written", { space, ...event });
    } else log.debug("fan-out", { space, ...event });
  };
}
