/**
 * Who carries a takeover out (§13.1): staged before its gate is frozen, so that whoever finds it frozen can ask whether
 * that one is still there.
 *
 * Invariants
 * 1. It names whoever froze the gate, or went on with it last: written before either, and never with another operation's id.
 * 2. It proves nothing by itself. Only an answer of the servers about those connections does.
 */
import type { ConnectionTuple } from "../protocol/ledger/actor-rows.ts";
import { TakeoverStage, ledgerKey } from "../protocol/ledger/rows.ts";
import { readReservation } from "./reservation.ts";
import { type LedgerStore, createOrRead } from "./store.ts";
import type { Takeover } from "./takeover.ts";

/** The plane that carries it out, by the two connections that hold its claim. */
export type Executor = { readonly ledger: ConnectionTuple; readonly records: ConnectionTuple };

export async function stageTakeover(
  store: LedgerStore,
  { principal: { owner, actor }, uid, opId, fromEpoch }: Takeover,
  executor: Executor,
): Promise<void> {
  // One that is reserved for service custody is refused before the first write.
  await readReservation(store, uid);
  const key = ledgerKey.takeoverStage(opId);
  const mine: TakeoverStage = { v: 1, opId, owner, actor, lifecycleUid: uid, fromEpoch, executor };
  const { value, revision } = await createOrRead(store, "auth", key, TakeoverStage, mine);
  if (isSame(value.executor, executor)) return;
  await store.cas("auth", key, { ...value, executor }, revision);
}

function isSame(one: Executor, other: Executor): boolean {
  return (["ledger", "records"] as const).every(
    (which) => one[which].serverId === other[which].serverId && one[which].cid === other[which].cid,
  );
}
