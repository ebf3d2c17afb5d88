/**
 * The guarded reconciler (§13.1): opens again, where it stood, the gate that a dead takeover has left frozen, so that an
 * end may take it. A takeover itself needs none: it goes on when it is asked for again.
 *
 * Invariants
 * 1. Only after the servers have said that both connections of whoever froze it are gone. Alive and unknown refuse; a
 *    server that does not answer is unknown, and no time that has passed makes it death.
 * 2. It is the dead operation's own step: same id, same epoch, one generation more. What that operation has revoked stays
 *    revoked, and whatever comes next proves who is connected for itself.
 * 3. What is frozen by an activation or an end is never opened here.
 */
import { holderOf, moveGate, readGate } from "../../../shared/ledger/moves.ts";
import { readRow } from "../../../shared/ledger/store.ts";
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { type Principal, dotForm } from "../../../shared/protocol/base/principals.ts";
import { TakeoverStage, ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import { ofBoth } from "./liveness.ts";
import { type PlaneParts, refusal } from "./parts.ts";

type Parts = Pick<PlaneParts, "ledger" | "livenessOf">;

/** Nothing to do unless a takeover holds the gate. Throws `conflict` until it is proved that nobody carries that out. */
export async function openIfDead(parts: Parts, p: Principal, uid: string): Promise<void> {
  const gate = await readGate(parts.ledger, uid);
  if (gate?.value.state !== "frozen" || gate.value.op.kind !== "takeover") return;
  const { op } = gate.value;
  const staged = await readRow(parts.ledger, "auth", ledgerKey.takeoverStage(op.opId), TakeoverStage);
  const by = `the gate of ${dotForm(p)} is ${holderOf(gate.value)}`;
  const next = `let that operation finish: cotal actor rotate ${dotForm(p)}`;
  if (staged?.value.lifecycleUid !== uid) {
    throw refusal(ErrorCode.Conflict, `${by}, and who carries it out was never written down`, next);
  }
  const { ledger, records } = staged.value.executor;
  const found = ofBoth(...(await Promise.all([parts.livenessOf(ledger), parts.livenessOf(records)])));
  if (found.kind === "live") throw refusal(ErrorCode.Conflict, `${by}, and who carries it out is alive`, next);
  if (found.kind === "unknown") {
    const untold = `whether who carries it out is alive can't be told: ${found.why}`;
    throw refusal(ErrorCode.Conflict, `${by}, and ${untold}`, next);
  }
  // Whoever went on with it since the question is somebody else, of whom nothing is proved.
  const still = await readRow(parts.ledger, "auth", ledgerKey.takeoverStage(op.opId), TakeoverStage);
  if (still?.revision !== staged.revision) throw refusal(ErrorCode.Conflict, `${by}, which has gone on`, next);
  const opened = await moveGate(parts.ledger, uid, { to: "open", op });
  if (opened.kind === "refused") {
    throw refusal(ErrorCode.Conflict, `the gate of ${dotForm(p)} is ${holderOf(opened.now?.value)}`, next);
  }
}
