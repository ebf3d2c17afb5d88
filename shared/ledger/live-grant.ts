/** Does an actor's row stand as it did when something was made of it (§13.15)? Read at the leader. */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { dotForm, principal } from "../protocol/base/principals.ts";
import { ActorRow, actorKey } from "../protocol/ledger/actor-rows.ts";
import type { GrantSource } from "../protocol/ledger/source-rows.ts";
import { type LedgerStore, readRow } from "./store.ts";

/** Throws `expired` for a grant that was changed, revoked, or given to another lifecycle since. */
export async function demandGrant(store: Pick<LedgerStore, "read">, source: GrantSource): Promise<void> {
  const p = principal(source.owner, source.actor);
  const row = await readRow(store, "auth", actorKey.actor(p), ActorRow);
  const stands = row?.revision === source.revision && row.value.lifecycleUid === source.uid;
  if (stands && row.value.state === "active") return;
  throw new CotalError(ErrorCode.Expired, `the grant of ${dotForm(p)} that this was made from has changed`, {
    outcome: Outcome.NotExecuted,
    next: "have it issued anew, from what is granted now",
  });
}
