/** Keeps a lease that was taken (`lease.ts`). */
import { setTimeout as sleep } from "node:timers/promises";
import { type Hold, LEASE_RENEW_MS } from "./lease.ts";

/** Returns once the lease is lost, or the signal came. A broker that is away takes no lease from anybody. */
export async function keepRenewed(hold: Hold, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      if (!(await hold.renew(true))) return;
    } catch {
      // The row decides, and it can't be asked now.
    }
    await sleep(LEASE_RENEW_MS, undefined, { signal }).catch(() => undefined);
  }
}
