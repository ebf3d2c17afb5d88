/**
 * Keeps one child running: a child that ends by itself is started again, after a wait that grows.
 *
 * ```
 * starting ─▶ up ─▶ waiting ─▶ starting …      any ─▶ stopped
 * ```
 *
 * Invariants
 * 1. The first start is not repeated: whoever asked for it hears why it failed.
 * 2. One line per end and one per return; the wait starts over after a minimum uptime only.
 * 3. After `stop` nothing is started, whatever was under way.
 */
import { toCotalError } from "../shared/protocol/base/errors.ts";
import { createBackoff } from "../shared/daemon/backoff.ts";
import { type Child, endText } from "./child.ts";
import type { Report } from "./events.ts";

export type Supervised = {
  readonly name: string;
  /** Settles when its first run is ready; rejects when that failed, and nothing is tried again. */
  readonly begun: Promise<void>;
  /** The run of now; `undefined` between two. */
  readonly child: () => Child | undefined;
  readonly restarts: () => number;
  readonly stop: (graceMs: number) => Promise<void>;
  readonly kill: () => void;
};

export type SupervisorOptions = {
  readonly name: string;
  readonly launch: () => Promise<Child>;
  readonly report: Report;
  /** Something that the plane's record holds has changed. */
  readonly changed: () => void;
};

const BASE_WAIT_MS = 200;
const CAP_WAIT_MS = 15_000;

/** Starts it, and keeps it once it was ready. */
export function supervise(options: SupervisorOptions): Supervised {
  const { name, launch, report, changed } = options;
  const backoff = createBackoff({ baseMs: BASE_WAIT_MS, capMs: CAP_WAIT_MS });
  let current: Child | undefined;
  let restarts = 0;
  let stopped = false;
  let wake = (): void => undefined;

  let launching: Promise<Child> | undefined;

  const begin = async (): Promise<Child> => {
    launching = launch();
    const child = await launching;
    launching = undefined;
    current = child;
    if (stopped) child.kill();
    changed();
    try {
      await child.ready;
    } catch (thrown) {
      child.kill();
      await child.ended;
      current = undefined;
      throw thrown;
    }
    backoff.up();
    changed();
    return child;
  };

  const pause = async (why: string): Promise<void> => {
    const waitMs = backoff.next();
    report({ kind: "died", child: name, why, waitMs });
    changed();
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, waitMs);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  };

  const watch = async (first: Child): Promise<void> => {
    let why = `it ended with ${endText(await first.ended)}`;
    current = undefined;
    while (!stopped) {
      await pause(why);
      if (stopped) return;
      const began = performance.now();
      try {
        const child = await begin();
        restarts += 1;
        changed();
        report({ kind: "restarted", child: name, ms: Math.round(performance.now() - began) });
        why = `it ended with ${endText(await child.ended)}`;
        current = undefined;
      } catch (thrown) {
        why = toCotalError(thrown).message;
      }
    }
  };

  const begun = begin().then((first) => void watch(first));
  // Whoever stops it before it is ready does not wait for it.
  begun.catch(() => undefined);
  return {
    name,
    begun,
    child: () => current,
    restarts: () => restarts,
    stop: async (graceMs) => {
      stopped = true;
      wake();
      // A spawn takes microseconds; one that fails leaves nothing to end.
      await launching?.catch(() => undefined);
      await current?.end(graceMs);
    },
    kill: () => {
      stopped = true;
      wake();
      current?.kill();
    },
  };
}
