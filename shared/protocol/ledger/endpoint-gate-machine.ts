/**
 * The issuance gate of a serving instance as a machine (§13.1): the edges of every gate, and the epoch.
 *
 * Invariants
 * 1. The epoch moves by one with the opening of a takeover, and with nothing else; the gate keeps which takeover
 *    that was.
 * 2. The registration that an open gate stands for only ever becomes a later one.
 */
import type { EndpointGateRow } from "./endpoint-rows.ts";
import { stepGate } from "./gate-machine.ts";
import type { GateOperation, GateRow } from "./rows.ts";

export type EndpointGateStep =
  | { readonly to: "frozen" | "retired"; readonly op: GateOperation }
  /** `processEpoch`: the epoch that it is to open. */
  | {
      readonly to: "open";
      readonly opId: string;
      readonly processEpoch: number;
      readonly registrationRevision: number;
    };

export type EndpointGateMove =
  | { readonly kind: "move"; readonly row: EndpointGateRow }
  | { readonly kind: "done" }
  | { readonly kind: "refused" };

const DONE: EndpointGateMove = { kind: "done" };
const REFUSED: EndpointGateMove = { kind: "refused" };

export function stepEndpointGate(gate: EndpointGateRow, step: EndpointGateStep): EndpointGateMove {
  if (step.to === "open") return opened(gate, step);
  const move = stepGate(coreOf(gate), step);
  return move.kind === "move" ? { kind: "move", row: { ...coordinatesOf(gate), ...move.row } } : move;
}

function opened(gate: EndpointGateRow, step: Extract<EndpointGateStep, { to: "open" }>): EndpointGateMove {
  const { opId, processEpoch, registrationRevision } = step;
  if (gate.state === "open") {
    if (gate.processEpoch !== processEpoch) return REFUSED;
    // Whoever finishes this operation for somebody else, or a late request, knows of an older one.
    if (gate.registrationRevision >= registrationRevision) return DONE;
    return { kind: "move", row: { ...gate, registrationRevision } };
  }
  if (gate.op.opId !== opId) return REFUSED;
  const isTakeover = gate.op.kind === "takeover";
  if (processEpoch !== gate.processEpoch + (isTakeover ? 1 : 0)) return REFUSED;
  const move = stepGate(coreOf(gate), { to: "open", op: gate.op });
  if (move.kind !== "move") return move;
  const row = { ...coordinatesOf(gate), ...move.row, processEpoch, registrationRevision };
  return { kind: "move", row: isTakeover ? { ...row, lastTakeoverOpId: opId } : row };
}

function coreOf({ state, generation, ...rest }: EndpointGateRow): GateRow {
  return state === "open" || !("op" in rest) ? { state: "open", generation } : { state, generation, op: rest.op };
}

function coordinatesOf(gate: EndpointGateRow) {
  const { processEpoch, registrationRevision, nameAuthorityRevision, principal, lastTakeoverOpId } = gate;
  return {
    processEpoch,
    registrationRevision,
    nameAuthorityRevision,
    principal,
    ...(lastTakeoverOpId === undefined ? {} : { lastTakeoverOpId }),
  };
}
