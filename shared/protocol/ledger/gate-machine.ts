/**
 * The issuance gate as a machine (§13.1): what one operation makes of a gate, or why it may not. Whoever writes
 * a gate, of a lifecycle or of a serving instance, asks here for the row that it writes.
 *
 * Invariants
 * 1. An edge that `GATE_EDGES` does not give to the kind of the operation is refused before any write.
 * 2. A frozen gate is moved by the operation that froze it and by no other, with one exception: an end takes a
 *    gate that has never opened from the activation that left it, because nothing was released (decision 6).
 * 3. The generation counts the openings: it moves with them and with nothing else.
 * 4. A retired gate keeps the operation that retired it, and that one alone finds its work done.
 */
import type { GateOperation, GateRow, OperationKind } from "./rows.ts";

type GateState = GateRow["state"];

/** Which operation may take which edge of an issuance gate; `absent` is before the create. */
const GATE_EDGES: readonly {
  readonly from: GateState | "absent";
  readonly to: GateState;
  readonly kinds: readonly OperationKind[];
}[] = [
  { from: "absent", to: "frozen", kinds: ["activation"] },
  { from: "open", to: "frozen", kinds: ["takeover", "registration", "retirement"] },
  // Of an activation that died before it opened (decision 6).
  { from: "frozen", to: "frozen", kinds: ["retirement"] },
  { from: "frozen", to: "open", kinds: ["activation", "takeover", "registration"] },
  { from: "frozen", to: "retired", kinds: ["activation", "retirement"] },
];

/** May an operation of this kind move the gate along this edge? */
export function gateMayMove(from: GateState | "absent", to: GateState, kind: OperationKind): boolean {
  return GATE_EDGES.some((edge) => edge.from === from && edge.to === to && edge.kinds.includes(kind));
}

/** What an operation wants of a gate. */
export type GateStep = { readonly to: GateState; readonly op: GateOperation };

export type GateMove =
  /** To be written, pinned to the row that was read. */
  | { readonly kind: "move"; readonly row: GateRow }
  /** This operation has done it already. */
  | { readonly kind: "done" }
  /** It is not this operation's to do. */
  | { readonly kind: "refused" };

/** `gate` is the row as it was read, without what an endpoint's gate carries beside. */
export function stepGate(gate: GateRow | undefined, { to, op }: GateStep): GateMove {
  const holder = gate === undefined || gate.state === "open" ? undefined : gate.op;
  const isMine = holder?.opId === op.opId && holder.kind === op.kind;
  const from = gate?.state ?? "absent";
  const generation = gate?.generation ?? 0;
  // An open gate names nobody: who opened it is told by what the operation wrote elsewhere.
  if (from === to && (from === "open" ? generation > 0 : isMine)) return { kind: "done" };
  const isLeft = holder?.kind === "activation" && generation === 0;
  const isAllowed = from === "frozen" ? isMine !== (to === "frozen") && (isMine || isLeft) : true;
  if (!isAllowed || !gateMayMove(from, to, op.kind)) return { kind: "refused" };
  if (to === "open") return { kind: "move", row: { state: to, generation: generation + 1 } };
  return { kind: "move", row: { state: to, generation, op } };
}
