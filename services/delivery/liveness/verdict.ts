/**
 * How the delivery plane grades itself (§6.1, decision H51): by its own lease rows, as the leader has them.
 *
 * Of several rows one that is ready and its own makes it `bound`; else one that can't be read makes it `unknown`; else
 * one that is ready and another's makes it `stale`; else it is `unbound`.
 */
import type { LeaseRow } from "../../../shared/broker/lease.ts";
import type { ResponderState } from "../../../shared/protocol/chat/liveness.ts";

export type SeenLease = Pick<LeaseRow, "holder" | "ready"> | "none" | "unreadable";

export function gradeLeases(leases: readonly SeenLease[], holder: string): ResponderState {
  const ready = leases.flatMap((one) => (typeof one === "object" && one.ready ? [one.holder] : []));
  if (ready.includes(holder)) return "bound";
  if (leases.includes("unreadable")) return "unknown";
  return ready.length > 0 ? "stale" : "unbound";
}
