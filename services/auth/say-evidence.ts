/** What is counted, logged and shown of native-key evidence. A key names a connection and is no secret. */
import type { Context } from "../../shared/daemon/lifecycle.ts";
import type { Check } from "../../shared/daemon/health.ts";
import type { CotalError } from "../../shared/protocol/base/errors.ts";
import type { PruneEvent } from "./plane/prune-natkeys.ts";

export type EvidenceSayings = {
  readonly onPrune: (event: PruneEvent) => void;
  /** The plane of this space has ended for good: a row stands in its way. */
  readonly onFence: (cause: CotalError) => void;
};

/** Called at each opening of a space: a fence of before is over then. */
export function evidenceSayings({
  metrics,
  log,
  health,
}: Pick<Context<unknown>, "metrics" | "log" | "health">): (space: string) => EvidenceSayings {
  const seen = metrics.counter({
    name: `${metrics.prefix}evidence_seen_total`,
    help: "Evidence rows that the pruning walk has met.",
    labels: ["space"],
  });
  const pruned = metrics.counter({
    name: `${metrics.prefix}evidence_pruned_total`,
    help: "Evidence rows of connections that are over, removed.",
    labels: ["space"],
  });
  const service = metrics.gauge({
    name: `${metrics.prefix}evidence_service_rows`,
    help: "Evidence rows of services at the last walk; they are not pruned.",
    labels: ["space"],
  });
  const oldest = metrics.gauge({
    name: `${metrics.prefix}evidence_oldest_expired_seconds`,
    help: "For how long the oldest row that the last walk removed had been over.",
    labels: ["space"],
  });
  const fences = new Map<string, Check>();
  return (space) => {
    fences.get(space)?.remove();
    fences.delete(space);
    return {
      onPrune: (event) => {
        switch (event.kind) {
          case "batch":
            seen.inc({ space }, event.seen);
            pruned.inc({ space }, event.pruned);
            break;
          case "walked":
            service.set({ space }, event.service);
            oldest.set({ space }, event.oldestExpiredSeconds);
            break;
          case "failed":
            log.warn("the pruning of evidence met a fault; it begins anew later", { space, err: event.cause });
            break;
          case "stopped":
            service.remove({ space });
            oldest.remove({ space });
        }
      },
      onFence: (cause) => {
        log.error("THE AUTHORITY PLANE OF THE SPACE IS FENCED: its evidence is corrupt", { space, err: cause });
        const check = health.check(`plane:${space}`);
        fences.set(space, check);
        check.fail(`the authority plane is fenced: ${cause.message}`, cause.next ?? "");
      },
    };
  };
}
