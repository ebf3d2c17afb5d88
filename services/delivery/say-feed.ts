/** What the membership feed tells of itself, as logs and metrics. No principal and no channel is among it. */
import type { Context } from "../../shared/daemon/lifecycle.ts";
import type { FeedEvent } from "./feed/feed.ts";

/** Says what happened; a gap is news when it begins, when it changes and when it is over. */
export function feedSayings({
  log,
  metrics,
}: Pick<Context<unknown>, "log" | "metrics">): (space: string) => (event: FeedEvent) => void {
  const looks = metrics.counter({
    name: `${metrics.prefix}membership_looks_total`,
    help: "Looks for the membership feed, by whether they covered everybody.",
    labels: ["space", "result"],
  });
  const writes = metrics.counter({
    name: `${metrics.prefix}membership_writes_total`,
    help: "Rows of the membership feed that were written or removed.",
    labels: ["space"],
  });
  const rows = metrics.gauge({
    name: `${metrics.prefix}membership_rows`,
    help: "Principals in the membership feed, where this process writes it.",
    labels: ["space"],
  });
  return (space) => {
    let known: string | undefined;
    return (event) => {
      if (event.kind === "failed") {
        looks.inc({ space, result: "failed" });
        return log.warn("the membership feed could not be written; it is tried again", { space, err: event.error });
      }
      const { pass, gap, ms } = event;
      looks.inc({ space, result: gap === undefined ? "complete" : "partial" });
      writes.inc({ space }, pass.written + pass.removed);
      rows.set({ space }, pass.rows);
      // What may change from look to look is a number.
      const words = gap?.replaceAll(/\d+/g, "");
      if (words !== known && gap !== undefined)
        log.warn("the membership feed does not cover everybody", { space, why: gap });
      if (words !== known && gap === undefined) log.info("the membership feed covers everybody again", { space });
      known = words;
      log.debug("the membership feed was written", { space, ...pass, ms });
    };
  };
}
