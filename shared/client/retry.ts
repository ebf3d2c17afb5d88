/**
 * When a call may be repeated, and after which wait (§13.8, supplement A and D).
 *
 * Invariants
 * 1. What has perhaps run is repeated only if its contract says `read`. A `write` is repeated on proof alone
 *    that nothing ran; a lost answer is no proof.
 * 2. Waits are drawn from 0 to a ceiling of 250 ms, doubled each time up to 15 s, and end with the deadline:
 *    none begins that would go past it.
 */
import { type CotalError, ErrorCode, Outcome, toCotalError } from "../protocol/base/errors.ts";
import type { Effect } from "../protocol/contract/documents.ts";

const BASE_MS = 250;
const FACTOR = 2;
const CAP_MS = 15_000;

/** What a second try may change. */
const PASSING: ReadonlySet<ErrorCode> = new Set([
  ErrorCode.Unavailable,
  ErrorCode.ResourceExhausted,
  ErrorCode.DeadlineExceeded,
]);

/** `effect`: as the contract says; `undefined` before it is known, which is before anything was sent. */
export function mayRepeat(error: CotalError, effect: Effect | undefined): boolean {
  if (!PASSING.has(error.code)) return false;
  if (error.outcome === Outcome.NotExecuted) return true;
  return effect === "read" && error.outcome === Outcome.Unknown;
}

/** The wait after so many failures, from 1; `jitter` in [0, 1). */
function retryWait(failures: number, jitter: number): number {
  return Math.floor(jitter * Math.min(CAP_MS, BASE_MS * FACTOR ** (failures - 1)));
}

export type RetryClock = {
  /** Monotonic milliseconds. */
  readonly now: () => number;
  readonly sleep: (ms: number) => Promise<void>;
  /** A number in [0, 1). */
  readonly jitter: () => number;
};

export type Attempts<T> = {
  readonly deadlineMs: number;
  readonly isRepeated: (error: CotalError) => boolean;
  /** One try, with what is left of the deadline. */
  readonly attempt: (leftMs: number) => Promise<T>;
};

/** Tries until it succeeds, may not be repeated, or no time is left; then the last error stands. */
export async function withRetries<T>(clock: RetryClock, { deadlineMs, isRepeated, attempt }: Attempts<T>): Promise<T> {
  const end = clock.now() + deadlineMs;
  for (let failures = 1; ; failures += 1) {
    try {
      return await attempt(Math.max(1, Math.floor(end - clock.now())));
    } catch (thrown) {
      const error = toCotalError(thrown);
      if (!isRepeated(error)) throw error;
      const wait = retryWait(failures, clock.jitter());
      if (clock.now() + wait >= end) throw error;
      await clock.sleep(wait);
    }
  }
}
