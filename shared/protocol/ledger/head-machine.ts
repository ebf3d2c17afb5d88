/**
 * The lifecycle head as a machine (§13.1): what one operation makes of the head of an alias, or why it may not.
 * Whoever writes a head asks here for the row that it writes; there is no other way from one row to the next.
 *
 * Invariants
 * 1. A UID is current in one stretch: what has left `active` never comes back under it.
 * 2. The epoch moves by one, with the takeover that it belongs to in the same row; a takeover that was asked for
 *    at another epoch is refused, and the root is not stamped any more.
 * 3. `retiring` names its operation, and that one alone frees the alias.
 */
import type { GateOperation, HeadRow, OperationKind } from "./rows.ts";

type HeadState = HeadRow["state"];

/**
 * Edges of a lifecycle head, and the operation that may take each. `retired` to `active` is only for another
 * UID of the same alias. The stamp of a root, and the start of a daemon, change a row that stays active.
 */
const HEAD_EDGES: readonly {
  readonly from: HeadState | "absent";
  readonly to: HeadState;
  readonly sameUid: boolean;
  readonly kind: OperationKind;
}[] = [
  { from: "absent", to: "active", sameUid: false, kind: "activation" },
  { from: "retired", to: "active", sameUid: false, kind: "activation" },
  { from: "active", to: "active", sameUid: true, kind: "takeover" },
  { from: "active", to: "retiring", sameUid: true, kind: "retirement" },
  { from: "retiring", to: "retired", sameUid: true, kind: "retirement" },
];

export function headMayMove(from: HeadState | "absent", to: HeadState, sameUid: boolean, kind: OperationKind): boolean {
  return HEAD_EDGES.some(
    (edge) => edge.from === from && edge.to === to && edge.sameUid === sameUid && edge.kind === kind,
  );
}

export type HeadStep =
  | {
      readonly kind: "activate";
      readonly owner: string;
      readonly actor: string;
      readonly lifecycleUid: string;
      readonly managerInstance: string;
    }
  /** The root that its bearers are of, once it has its row under an open gate. */
  | { readonly kind: "stamp"; readonly lifecycleUid: string; readonly credentialId: string }
  /** A daemon's process starts: it is nobody's to end but its own, so no barrier comes before. */
  | { readonly kind: "begin"; readonly lifecycleUid: string }
  /** `fromEpoch`: the epoch that is to end. */
  | { readonly kind: "takeover"; readonly lifecycleUid: string; readonly opId: string; readonly fromEpoch: number }
  /** Containment: from here on nothing of it is current. */
  | { readonly kind: "retire"; readonly lifecycleUid: string; readonly op: GateOperation }
  /** The end: it says that the barrier is through and everything is cleaned up. */
  | { readonly kind: "free"; readonly lifecycleUid: string; readonly op: GateOperation };

export type HeadMove =
  /** To be written, pinned to the row that was read. */
  | { readonly kind: "move"; readonly row: HeadRow }
  /** It stands already, by this operation. */
  | { readonly kind: "done" }
  | { readonly kind: "refused" };

const DONE: HeadMove = { kind: "done" };
const REFUSED: HeadMove = { kind: "refused" };

export function stepHead(head: HeadRow | undefined, step: HeadStep): HeadMove {
  const sameUid = head?.lifecycleUid === step.lifecycleUid;
  if (step.kind === "activate") return activated(head, step, sameUid);
  if (head === undefined || !sameUid) return REFUSED;
  switch (step.kind) {
    case "stamp":
      if (head.state !== "active") return REFUSED;
      if (head.currentCredentialId === step.credentialId) return DONE;
      return { kind: "move", row: { ...head, currentCredentialId: step.credentialId } };
    case "begin":
      if (head.state !== "active") return REFUSED;
      return { kind: "move", row: { ...head, processEpoch: head.processEpoch + 1 } };
    case "takeover":
      return takenOver(head, step);
    case "retire":
      if (head.state === "retiring") return head.op.opId === step.op.opId ? DONE : REFUSED;
      if (head.state !== "active" || !headMayMove("active", "retiring", true, step.op.kind)) return REFUSED;
      return { kind: "move", row: { ...head, state: "retiring", op: step.op } };
    case "free": {
      if (head.state === "retired") return DONE;
      if (head.state !== "retiring" || head.op.opId !== step.op.opId) return REFUSED;
      if (!headMayMove("retiring", "retired", true, step.op.kind)) return REFUSED;
      const { op: _, ...rest } = head;
      return { kind: "move", row: { ...rest, state: "retired" } };
    }
  }
}

function activated(
  head: HeadRow | undefined,
  { owner, actor, lifecycleUid, managerInstance }: Extract<HeadStep, { kind: "activate" }>,
  sameUid: boolean,
): HeadMove {
  if (sameUid && head?.state === "active") return DONE;
  if (!headMayMove(head?.state ?? "absent", "active", sameUid, "activation")) return REFUSED;
  return { kind: "move", row: { owner, actor, lifecycleUid, managerInstance, processEpoch: 1, state: "active" } };
}

function takenOver(head: HeadRow, { opId, fromEpoch }: Extract<HeadStep, { kind: "takeover" }>): HeadMove {
  if (head.lastTakeoverOpId === opId && head.processEpoch === fromEpoch + 1) return DONE;
  if (head.state !== "active" || head.processEpoch !== fromEpoch) return REFUSED;
  if (!headMayMove("active", "active", true, "takeover")) return REFUSED;
  const { currentCredentialId: _, ...rest } = head;
  return { kind: "move", row: { ...rest, processEpoch: fromEpoch + 1, lastTakeoverOpId: opId } };
}
