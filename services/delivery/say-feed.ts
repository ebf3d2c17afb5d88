/** What the membership feed tells of itself, as logs and metrics. No principal and no channel is among it. */
import type { Log } from "../../shared/daemon/log.ts";
import type { CounterMetric, GaugeMetric } from "../../shared/daemon/metrics.ts";
import type { FeedEvent } from "./feed/feed.ts";

export type FeedSayings = {
  readonly space: string;
  readonly log: Log;
  readonly looks: CounterMetric<"space" | "result">;
  readonly writes: CounterMetric<"space">;
  readonly rows: GaugeMetric<"space">;
};

/** Says what happened; a gap is news when it begins, when it changes and when it is over. */
export function sayFeed({ space, log, looks, writes, rows }: FeedSayings): (event: FeedEvent) => void {
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
}
