/**
 * The lease of one duty of this daemon (decision H53): taken when it is free, renewed, given back at the end.
 *
 * It fences nothing: whatever has to happen once is pinned where it is written. It says who serves.
 *
 * Invariant: not being able to ask is not having lost. Only a row that names another ends the duty.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import { type Hold, LEASE_RENEW_MS, type LeaseHolder, type LeasePlace, takeLease } from "../../shared/broker/lease.ts";
import { within } from "../../shared/client/shutdown.ts";

export type DutyOptions = {
  readonly nc: NatsConnection;
  readonly place: LeasePlace;
  readonly who: LeaseHolder;
  readonly onHeld: () => void;
  readonly onLost: () => void;
  readonly onFailed: (cause: unknown) => void;
};

export type Duty = { readonly stop: () => Promise<void> };

const RETRY_MS = 1000;
const STOP_MS = 500;

export function keepDuty(options: DutyOptions): Duty {
  const { nc, place, who, onHeld, onLost, onFailed } = options;
  const stopping = new AbortController();
  const { signal } = stopping;
  const pause = (ms: number): Promise<void> => sleep(ms, undefined, { signal }).catch(() => undefined);

  const hold = async (held: Hold): Promise<void> => {
    let isTold = false;
    while (!signal.aborted) {
      try {
        if (!(await held.renew(true))) break;
        if (!isTold) onHeld();
        isTold = true;
        await pause(LEASE_RENEW_MS);
      } catch (cause) {
        onFailed(cause);
        await pause(RETRY_MS);
      }
    }
    if (isTold) onLost();
    if (signal.aborted) await held.release().catch(onFailed);
  };
  const run = async (): Promise<void> => {
    while (!signal.aborted) {
      try {
        const taken = await takeLease(nc, place, who);
        if (taken.kind === "held") await hold(taken.hold);
      } catch (cause) {
        onFailed(cause);
      }
      if (!signal.aborted) await pause(RETRY_MS);
    }
  };
  const ended = run();
  return {
    // Its end is a courtesy to the next one, who would else wait for the row's end: a broker that is away gets none.
    stop: async () => {
      stopping.abort();
      await within(ended, STOP_MS);
    },
  };
}
