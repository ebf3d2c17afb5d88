/**
 * Says that there may be something to do, so that nothing is asked while there is not.
 *
 * Invariants
 * 1. A ring is a hint and no more: what is to be done is read from the store, and looked for now and then without any.
 * 2. Whatever is heard wakes everybody who waits, each at a bell of his own.
 * 3. A post is heard a moment before it can be read. So for a while after a ring the store is asked whether it has
 *    more, once for everybody, and they are woken only if it has: what many groups cost does not grow with the looks.
 */
import type { NatsConnection, Subscription } from "@nats-io/transport-node";
import { streamState } from "../../../shared/broker/ensure.ts";
import { kvAll } from "../../../shared/protocol/base/broker-subjects.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../../shared/protocol/base/subjects.ts";
import { follow } from "./follow.ts";

export type Bell = {
  /** Wakes who waits here, and nobody else. */
  readonly ring: () => void;
  /** Resolves at a ring, or when so many milliseconds are over. For one who waits. */
  readonly wait: (atMostMs?: number) => Promise<void>;
  /** For another one who waits: he is woken by the same posts and lists. It ends with its own `stop`. */
  readonly another: () => Bell;
  /** Wakes who waits here. The first one ends the others with it. */
  readonly stop: () => void;
};

/** Where nothing was heard: no more than a net below the looks. */
const IDLE_MS = 5000;
/** When the store is asked after the last ring; the last one again and again. */
const LOOKS_MS = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 1000];

/** Rings at every post, and at every change of a read list. */
export function createBell(nc: NatsConnection, space: string): Bell {
  const { chat, bucket } = spaceNames(space);
  const ears = new Set<Ear>();
  const watcher = createEar();
  const stopping = new AbortController();
  const wakeAll = (): void => {
    for (const ear of ears) ear.hear();
  };
  const onHeard = (): void => {
    wakeAll();
    watcher.hear();
  };
  const subjects = [spaceSubjects(space).chatAll, kvAll(bucket.acl)];
  const subscriptions: Subscription[] = subjects.map((subject) => nc.subscribe(subject, { callback: onHeard }));
  const lists = follow(nc, bucket.acl, () => undefined);
  const ends = async (): Promise<string> => {
    const [{ lastSeq }] = await Promise.all([streamState(nc, chat), lists.refresh()]);
    return `${lastSeq} ${lists.seq()}`;
  };
  void watch(watcher, ends, wakeAll, stopping.signal);

  const bellOf = (onStop: () => void): Bell => {
    const ear = createEar();
    ears.add(ear);
    return {
      ring: ear.hear,
      wait: async (atMostMs = IDLE_MS) => void (await ear.wait(atMostMs)),
      another: () => bellOf(() => undefined),
      stop: () => {
        onStop();
        ears.delete(ear);
        ear.hear();
      },
    };
  };
  return bellOf(() => {
    for (const subscription of subscriptions) subscription.unsubscribe();
    stopping.abort();
    onHeard();
  });
}

/** Asks how far the stores are, and wakes everybody once they are further than before. */
async function watch(
  watcher: Ear,
  ends: () => Promise<string>,
  wakeAll: () => void,
  stopping: AbortSignal,
): Promise<void> {
  let [look, known] = [0, ""];
  while (!stopping.aborted) {
    // Whoever was rung looks for himself just now.
    if (await watcher.wait(LOOKS_MS[look] ?? IDLE_MS)) {
      look = 0;
      continue;
    }
    look = Math.min(look + 1, LOOKS_MS.length - 1);
    // A broker that is away has nothing to tell; those who wait look for themselves after a while.
    const now = await ends().catch(() => known);
    if (now === known) continue;
    known = now;
    wakeAll();
  }
}

type Ear = {
  readonly hear: () => void;
  /** True at a ring, or where there was one since the last time; false when the time is over. */
  readonly wait: (atMostMs: number) => Promise<boolean>;
};

function createEar(): Ear {
  let wake: (() => void) | undefined;
  let hasRung = false;
  return {
    hear: () => {
      hasRung = true;
      wake?.();
    },
    wait: async (atMostMs) => {
      if (!hasRung) {
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, atMostMs);
          wake = () => {
            clearTimeout(timer);
            resolve();
          };
        });
        wake = undefined;
      }
      const wasRung = hasRung;
      hasRung = false;
      return wasRung;
    },
  };
}
