/**
 * What the log and the metrics say of the record writer. Who reports can cause lines: they are spared, and
 * nothing of what a report holds is in them.
 */
import type { Context } from "../../shared/daemon/lifecycle.ts";
import { createSparing } from "../../shared/daemon/sparing.ts";
import { type RecordEvent, type RecordWriterHooks, Recorded } from "./record-writer.ts";

/** Lines of one minute, of all spaces. */
const PER_MINUTE = 20;

const { Impossible, Unknown, Malformed, Later, Failed } = Recorded;
/** An older process that still speaks, and a repetition, are everyday. */
const TOLD: ReadonlySet<RecordEvent["result"]> = new Set([Impossible, Unknown, Malformed, Later, Failed]);

export function recordSayings({
  log,
  metrics,
}: Pick<Context<unknown>, "log" | "metrics">): (space: string) => RecordWriterHooks {
  const reports = metrics.counter({
    name: `${metrics.prefix}status_reports_total`,
    help: "Reports of serving instances on how they are, by what became of them.",
    labels: ["space", "result"],
  });
  const faults = metrics.counter({
    name: `${metrics.prefix}status_faults_total`,
    help: "Failures to read the reports of serving instances; each is tried again.",
    labels: ["space", "code"],
  });
  const sparing = createSparing(PER_MINUTE, () => performance.now());
  return (space) => ({
    onRecord: ({ result, seq, source, why }) => {
      reports.inc({ space, result });
      if (!TOLD.has(result)) return;
      const fields = { space, result, seq, ...source, ...(why === undefined ? {} : { why }) };
      sparing((more) => log.warn("a report of an instance was not written", { ...fields, ...more }));
    },
    onRecordFault: (error) => {
      faults.inc({ space, code: error.code });
      sparing((more) =>
        log.warn("the reports of instances can't be read; it is tried again", { space, err: error, ...more }),
      );
    },
  });
}
