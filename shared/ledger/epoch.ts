/**
 * The process epoch of a lifecycle (§13.1): one more at each start of its process, by CAS on the
 * head, so two processes of one instance never answer under one epoch.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type Principal, dotForm } from "../protocol/base/principals.ts";
import { HeadRow, ledgerKey } from "../protocol/ledger/rows.ts";
import { type LedgerStore, readRow } from "./store.ts";

const ATTEMPTS = 8;

/** Takes the next epoch. Throws `failed-precondition` if the lifecycle is not its alias's current one. */
export async function takeEpoch(store: LedgerStore, principal: Principal, uid: string): Promise<number> {
  const key = ledgerKey.head(principal);
  for (let attempt = 1; ; attempt += 1) {
    const head = await readRow(store, "records", key, HeadRow);
    if (head?.value.state !== "active" || head.value.lifecycleUid !== uid) {
      throw new CotalError(ErrorCode.FailedPrecondition, `${dotForm(principal)} is not active under this lifecycle`, {
        outcome: Outcome.NotExecuted,
        next: "its lifecycle was ended or replaced; this process has other files than the space",
      });
    }
    const processEpoch = head.value.processEpoch + 1;
    try {
      await store.cas("records", key, { ...head.value, processEpoch }, head.revision);
      return processEpoch;
    } catch (error) {
      const lost = error instanceof CotalError && error.code === ErrorCode.Conflict;
      if (!lost || attempt === ATTEMPTS) throw error;
    }
  }
}
