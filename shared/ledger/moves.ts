/**
 * One step of a gate or of a head: read at the leader, asked of its machine, written pinned to what was read.
 *
 * Invariant: no row of either family is written but by these, so none is that its machine did not make. A lost
 * compare-and-set is read and asked again: the machine says whether the step is still this operation's.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Principal, dotForm, samePrincipal } from "../protocol/base/principals.ts";
import { type GateStep, stepGate } from "../protocol/ledger/gate-machine.ts";
import { type HeadStep, stepHead } from "../protocol/ledger/head-machine.ts";
import { GateRow, HeadRow, ledgerKey } from "../protocol/ledger/rows.ts";
import { type LedgerStore, type Row, readRow } from "./store.ts";

/** The head of an alias. Throws `failed-precondition` for one that names another (§13.1: it never authorises). */
export async function readHead(store: Pick<LedgerStore, "read">, p: Principal): Promise<Row<HeadRow> | undefined> {
  const key = ledgerKey.head(p);
  const found = await readRow(store, "records", key, HeadRow);
  if (found === undefined || samePrincipal(found.value, p)) return found;
  throw new CotalError(ErrorCode.FailedPrecondition, `the ledger row ${key} names another alias`, {
    outcome: Outcome.NotExecuted,
    next: "nothing is decided on it; compare it with a backup, or restore the space",
  });
}

export const readGate = (store: Pick<LedgerStore, "read">, uid: string): Promise<Row<GateRow> | undefined> =>
  readRow(store, "auth", ledgerKey.gate(uid), GateRow);

export type Stepped<T> =
  | { readonly kind: "moved" | "done"; readonly now: Row<T> }
  | { readonly kind: "refused"; readonly now: Row<T> | undefined };

/** One step of a lifecycle's gate. `refused` says what stands there; nothing was written then. */
export function moveGate(store: LedgerStore, uid: string, step: GateStep): Promise<Stepped<GateRow>> {
  const key = ledgerKey.gate(uid);
  return move(
    () => readGate(store, uid),
    (gate) => stepGate(gate, step),
    (row, revision) =>
      revision === undefined ? store.create("auth", key, row) : store.cas("auth", key, row, revision),
  );
}

/** One step of the head of an alias. `refused` says what stands there; nothing was written then. */
export function moveHead(store: LedgerStore, p: Principal, step: HeadStep): Promise<Stepped<HeadRow>> {
  const key = ledgerKey.head(p);
  return move(
    () => readHead(store, p),
    (head) => stepHead(head, step),
    (row, revision) =>
      revision === undefined ? store.create("records", key, row) : store.cas("records", key, row, revision),
  );
}

const ROUNDS = 8;

type Move<T> = { readonly kind: "move"; readonly row: T } | { readonly kind: "done" | "refused" };

/** Reads, asks, writes; what is lost to somebody faster is asked about anew. */
export async function move<T>(
  read: () => Promise<Row<T> | undefined>,
  ask: (found: T | undefined) => Move<T>,
  write: (row: T, pinned: number | undefined) => Promise<number>,
): Promise<Stepped<T>> {
  for (let round = 1; ; round += 1) {
    const found = await read();
    const asked = ask(found?.value);
    if (asked.kind !== "move") {
      return asked.kind === "done" && found !== undefined
        ? { kind: "done", now: found }
        : { kind: "refused", now: found };
    }
    try {
      return { kind: "moved", now: { value: asked.row, revision: await write(asked.row, found?.revision) } };
    } catch (error) {
      // Somebody was faster: what stands there now is asked about anew.
      if (!isConflict(error) || round === ROUNDS) throw error;
    }
  }
}

/** Who holds a gate, for a refusal that names it. */
export function holderOf(gate: GateRow | undefined): string {
  if (gate === undefined) return "missing";
  return gate.state === "open" ? "open" : `${gate.state}, held by ${gate.op.kind} ${gate.op.opId}`;
}

export const isConflict = (error: unknown): boolean => error instanceof CotalError && error.code === ErrorCode.Conflict;

/** Throws unless the step was taken, now or before. */
export function demandHead(stepped: Stepped<HeadRow>, p: Principal): Row<HeadRow> {
  if (stepped.kind !== "refused") return stepped.now;
  const { now } = stepped;
  const stands = now === undefined ? "has no lifecycle" : `is ${now.value.state} under ${now.value.lifecycleUid}`;
  throw new CotalError(ErrorCode.FailedPrecondition, `${dotForm(p)} ${stands}: another operation has moved it`, {
    outcome: Outcome.NotExecuted,
    next: "ask again with the lifecycle that it has now, if that is the one that is meant",
  });
}
