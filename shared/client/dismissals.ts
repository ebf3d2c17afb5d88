/**
 * Subscriptions whose request is over, ended together.
 *
 * To end one at once costs a packet of its own, which wakes the broker for nothing. They go out with the next
 * request instead, behind it, so that it does not wait for them; or a moment later.
 *
 * Invariants
 * 1. Whoever hands one in takes nothing from it any more.
 * 2. All are ended right after the next request: at the broker never more stand than requests may wait, and one.
 * 3. The timer keeps no process alive.
 */
import type { Subscription } from "@nats-io/transport-node";

const WAIT_MS = 20;

export type Dismissals = {
  /** Ends it soon. */
  readonly add: (subscription: Subscription) => void;
  /** Ends all of them now. */
  readonly flush: () => void;
};

export function createDismissals(): Dismissals {
  let dismissed: Subscription[] = [];
  let timer: NodeJS.Timeout | undefined;
  const flush = (): void => {
    if (dismissed.length === 0) return;
    const ending = dismissed;
    dismissed = [];
    for (const subscription of ending) if (!subscription.isClosed()) subscription.unsubscribe();
  };
  const late = (): void => {
    timer = undefined;
    flush();
  };
  return {
    flush,
    add: (subscription) => {
      dismissed.push(subscription);
      timer ??= setTimeout(late, WAIT_MS).unref();
    },
  };
}
