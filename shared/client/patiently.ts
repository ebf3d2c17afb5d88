/**
 * Waiting for a daemon that starts beside this one: what it does not answer yet is asked again, for a minute.
 *
 * Invariant: only silence is waited out. A refusal is told at once.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { CotalError, ErrorCode, toCotalError } from "../protocol/base/errors.ts";

const WAIT_MS = 60_000;
/** A wait is news only when it lasts. */
const NEWS_AFTER_MS = 3_000;
const LOOK_MS = 100;

export type Patience = {
  readonly signal: AbortSignal;
  /** Told once, of a wait that lasts. */
  readonly waiting: (what: string, next: string) => void;
  /** What to say of the silence, and what to do about it. */
  readonly silent: string;
  readonly next: string;
};

/** What `run` gives. Throws its refusal, or its silence under the words of `silent` once that lasted too long. */
export async function patiently<T>({ signal, waiting, silent, next }: Patience, run: () => Promise<T>): Promise<T> {
  const began = Date.now();
  let isTold = false;
  for (;;) {
    try {
      return await run();
    } catch (thrown) {
      const error = toCotalError(thrown);
      if (error.code !== ErrorCode.Unavailable && error.code !== ErrorCode.DeadlineExceeded) throw error;
      const waited = Date.now() - began;
      if (signal.aborted || waited > WAIT_MS) throw new CotalError(error.code, silent, { next, cause: error });
      if (waited > NEWS_AFTER_MS && !isTold) {
        isTold = true;
        waiting(silent, next);
      }
      await sleep(LOOK_MS, undefined, { signal }).catch(() => undefined);
    }
  }
}
