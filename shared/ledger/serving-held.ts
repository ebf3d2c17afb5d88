/**
 * Gates of serving instances that an operation holds frozen (§13.1), a page at a time, for an operator to see.
 *
 * Invariant: it reads and decides nothing. Since when a gate is shut is told; whether anybody still holds it is for the
 * barrier of the next registration to prove (decision 43).
 */
import { parseDotForm } from "../protocol/base/principals.ts";
import { EndpointGateRow, endpointOfGate } from "../protocol/ledger/endpoint-rows.ts";
import type { GateOperation } from "../protocol/ledger/rows.ts";

export type HeldEndpointGate = GateOperation & {
  readonly endpoint: string;
  readonly instanceId: string;
  readonly owner: string;
  /** Epoch milliseconds by the broker's clock: when the row was written that holds it. */
  readonly sinceMs: number;
};

export type HeldEndpointGates = {
  readonly gates: readonly HeldEndpointGate[];
  /** Keys of rows that are no gate of an instance: told by name, never left out in silence. */
  readonly unreadable: readonly string[];
  /** Absent on the last page. */
  readonly cursor?: number;
};

/** Rows of the family of these gates, in the order of their last change, from a cursor on. */
export type GatePage = {
  readonly rows: readonly { readonly key: string; readonly timeMs: number; readonly value: unknown }[];
  readonly cursor?: number;
};

/** Those of one page that are frozen. */
export function heldOf({ rows, cursor }: GatePage): HeldEndpointGates {
  const gates: HeldEndpointGate[] = [];
  const unreadable: string[] = [];
  for (const { key, timeMs, value } of rows) {
    const place = endpointOfGate(key);
    const gate = EndpointGateRow.safeParse(value).data;
    const who = gate === undefined ? undefined : parseDotForm(gate.principal);
    if (place === undefined || gate === undefined || who === undefined) unreadable.push(key);
    else if (gate.state === "frozen") gates.push({ ...place, owner: who.owner, ...gate.op, sinceMs: timeMs });
  }
  return { gates, unreadable, ...(cursor === undefined ? {} : { cursor }) };
}
