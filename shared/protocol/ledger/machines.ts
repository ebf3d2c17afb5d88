/**
 * The state machines of identity, as tables (§13.1). A service asks the table before any write;
 * property tests walk it.
 */
import type { GateRow, HeadRow, OperationKind } from "./rows.ts";

type GateState = GateRow["state"];
type HeadState = HeadRow["state"];

/** Which operation may take which edge of an issuance gate; `absent` is before the create. */
export const GATE_EDGES: readonly {
  readonly from: GateState | "absent";
  readonly to: GateState;
  readonly kinds: readonly OperationKind[];
}[] = [
  { from: "absent", to: "frozen", kinds: ["activation"] },
  { from: "open", to: "frozen", kinds: ["takeover", "registration", "retirement"] },
  // A retirement may end an activation that died before it opened: nothing was released (decision 6).
  { from: "frozen", to: "frozen", kinds: ["retirement"] },
  { from: "frozen", to: "open", kinds: ["activation", "takeover", "registration"] },
  { from: "frozen", to: "retired", kinds: ["activation", "retirement"] },
];

/** May an operation of this kind move the gate along this edge? */
export function gateMayMove(from: GateState | "absent", to: GateState, kind: OperationKind): boolean {
  return GATE_EDGES.some((edge) => edge.from === from && edge.to === to && edge.kinds.includes(kind));
}

/** Edges of a lifecycle head; `retired` to `active` is only for another UID of the same alias. */
export const HEAD_EDGES: readonly {
  readonly from: HeadState | "absent";
  readonly to: HeadState;
  readonly sameUid: boolean;
}[] = [
  { from: "absent", to: "active", sameUid: false },
  { from: "active", to: "retiring", sameUid: true },
  { from: "retiring", to: "retired", sameUid: true },
  { from: "retired", to: "active", sameUid: false },
];

export function headMayMove(from: HeadState | "absent", to: HeadState, sameUid: boolean): boolean {
  return HEAD_EDGES.some((edge) => edge.from === from && edge.to === to && edge.sameUid === sameUid);
}
