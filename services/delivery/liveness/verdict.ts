/**
 * How the delivery plane grades itself (§6.1, decision H51): by its own lease rows, as the leader has them.
 *
 * Of several rows one that is ready and its own makes it `bound`; else one that is ready and another's makes
 * it `stale`; else it is `unbound`.
 */
import type { FoundLease } from "../../../shared/broker/lease.ts";
import type { ResponderState } from "../../../shared/protocol/chat/liveness.ts";

export function gradeLeases(rows: readonly (Pick<FoundLease, "row"> | undefined)[], holder: string): ResponderState {
  const ready = rows.flatMap((found) => (found?.row.ready === true ? [found.row.holder] : []));
  if (ready.includes(holder)) return "bound";
  return ready.length > 0 ? "stale" : "unbound";
}
