/**
 * Operations that hold a gate frozen (§13.1), as a plane finds them: listed for an operator, and the ends among
 * them taken up where a process that died has left them.
 *
 * Invariants
 * 1. The gate's own row says which operation holds it, and that operation goes on under its id. Nothing here opens a
 *    gate, and nothing decides by how long it has been shut.
 * 2. Whose the gate is says the reservation of its UID; a gate without one is told by its key, and left.
 * 3. An end that can't be finished yet stays as it is, is told, and is tried again while the plane is held.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { readReservation } from "../../../shared/ledger/reservation.ts";
import { managedRetirementOpId } from "../../../shared/ledger/retirement.ts";
import { CotalError, toCotalError } from "../../../shared/protocol/base/errors.ts";
import { type Principal, principal } from "../../../shared/protocol/base/principals.ts";
import { type GateOperation, GateRow, HeadRow, ledgerKey, uidOfGate } from "../../../shared/protocol/ledger/rows.ts";
import type { LedgerPage, PlaneParts } from "./parts.ts";
import { finishEnd } from "./retire.ts";

export type HeldGate = Principal & GateOperation & { readonly lifecycleUid: string };

export type HeldGates = {
  readonly held: readonly HeldGate[];
  /** Keys that are no gate of anybody: told by name, never left out in silence. */
  readonly unreadable: readonly string[];
  /** Absent on the last page. */
  readonly cursor?: number;
};

type Parts = Pick<PlaneParts, "ledger" | "ledgerPage">;

/** One page of gates, and those of them that are frozen. */
export async function heldGates({ ledger, ledgerPage }: Parts, from?: number): Promise<HeldGates> {
  return sorted(await ledgerPage("auth", ledgerKey.allGates, from), async (key, value) => {
    const uid = uidOfGate(key);
    const gate = GateRow.safeParse(value).data;
    if (uid === undefined || gate === undefined) return "unreadable";
    if (gate.state !== "frozen") return "free";
    const reserved = await readReservation(ledger, uid).catch(unlessOurs);
    if (reserved === undefined) return "unreadable";
    return { ...principal(reserved.value.owner, reserved.value.actor), lifecycleUid: uid, ...gate.op };
  });
}

/** One page of heads, and those that are retiring: the last step of an end comes after its gate is retired. */
async function retiringHeads({ ledgerPage }: Parts, from?: number): Promise<HeldGates> {
  return sorted(await ledgerPage("records", ledgerKey.allHeads, from), (key, value) => {
    const head = HeadRow.safeParse(value).data;
    if (head === undefined || ledgerKey.head(head) !== key) return "unreadable";
    if (head.state !== "retiring") return "free";
    return { ...principal(head.owner, head.actor), lifecycleUid: head.lifecycleUid, ...head.op };
  });
}

type Found = HeldGate | "free" | "unreadable";

async function sorted(
  { rows, cursor }: LedgerPage,
  look: (key: string, value: unknown) => Found | Promise<Found>,
): Promise<HeldGates> {
  const held: HeldGate[] = [];
  const unreadable: string[] = [];
  for (const { key, value } of rows) {
    const found = await look(key, value);
    if (found === "unreadable") unreadable.push(key);
    else if (found !== "free") held.push(found);
  }
  return { held, unreadable, ...(cursor === undefined ? {} : { cursor }) };
}

function unlessOurs(thrown: unknown): undefined {
  if (!(thrown instanceof CotalError)) throw thrown;
  return undefined;
}

export type ResumeEvent =
  | { readonly kind: "resumed"; readonly gate: HeldGate }
  | { readonly kind: "waiting"; readonly gate: HeldGate; readonly why: string }
  | { readonly kind: "unreadable"; readonly key: string }
  | { readonly kind: "failed"; readonly cause: unknown };

/** One walk over every gate, and one over every head. True if something is left to be tried again. */
export async function resumeEnds(
  parts: PlaneParts,
  onEvent: (event: ResumeEvent) => void,
  stopping: AbortSignal,
): Promise<boolean> {
  let isLeft = false;
  for (const pageFrom of [heldGates, retiringHeads]) {
    for (let cursor: number | undefined; ;) {
      const page = await pageFrom(parts, cursor);
      for (const key of page.unreadable) onEvent({ kind: "unreadable", key });
      for (const gate of page.held) {
        if (stopping.aborted) return true;
        if (gate.opId === managedRetirementOpId(gate.lifecycleUid))
          isLeft = !(await resumed(parts, gate, onEvent)) || isLeft;
      }
      if (page.cursor === undefined) break;
      ({ cursor } = page);
    }
  }
  return isLeft;
}

async function resumed(parts: PlaneParts, gate: HeldGate, onEvent: (event: ResumeEvent) => void): Promise<boolean> {
  try {
    await finishEnd(parts, gate, gate.lifecycleUid);
    onEvent({ kind: "resumed", gate });
    return true;
  } catch (thrown) {
    onEvent({ kind: "waiting", gate, why: toCotalError(thrown).message });
    return false;
  }
}

const AGAIN_MS = 60_000;

/** Takes up what is left, and tries again what can't be finished yet, until stopped. */
export function keepResuming(
  parts: PlaneParts,
  onEvent: (event: ResumeEvent) => void,
  againMs = AGAIN_MS,
): { readonly stop: () => Promise<void> } {
  const stopping = new AbortController();
  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      const isLeft = await resumeEnds(parts, onEvent, stopping.signal).catch((cause: unknown) => {
        onEvent({ kind: "failed", cause });
        return true;
      });
      if (!isLeft) return;
      await sleep(againMs, undefined, { signal: stopping.signal }).catch(() => undefined);
    }
  };
  const ended = run();
  return {
    stop: async () => {
      stopping.abort();
      await ended;
    },
  };
}
