/**
 * Says that there may be something to do, so that nothing is asked while there is not.
 *
 * A ring is a hint and no more: what is to be done is read from the store, and looked for now and then without
 * any ring. A post is heard a moment before it can be read, so a ring is followed up for a while.
 */
import type { NatsConnection, Subscription } from "@nats-io/transport-node";
import { kvAll } from "../../../shared/protocol/base/broker-subjects.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../../shared/protocol/base/subjects.ts";

export type Bell = {
  readonly ring: () => void;
  /** Resolves at a ring, soon after a recent one, or when nothing was heard for long. */
  readonly wait: () => Promise<void>;
  readonly stop: () => void;
};

const IDLE_MS = 1000;
/** Looks after a ring that brought nothing. */
const AFTER_MS = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256];

/** Rings at every post, and at every change of a read list. */
export function createBell(nc: NatsConnection, space: string): Bell {
  let wake: (() => void) | undefined;
  let hasRung = false;
  let looks = AFTER_MS.length;
  const ring = (): void => {
    looks = 0;
    hasRung = true;
    wake?.();
  };
  const subjects = [spaceSubjects(space).chatAll, kvAll(spaceNames(space).bucket.acl)];
  const subscriptions: Subscription[] = subjects.map((subject) => nc.subscribe(subject, { callback: ring }));
  return {
    ring,
    wait: async () => {
      if (!hasRung) {
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, AFTER_MS[looks] ?? IDLE_MS);
          looks = Math.min(looks + 1, AFTER_MS.length);
          wake = () => {
            clearTimeout(timer);
            resolve();
          };
        });
        wake = undefined;
      }
      hasRung = false;
    },
    stop: () => {
      for (const subscription of subscriptions) subscription.unsubscribe();
      wake?.();
    },
  };
}
