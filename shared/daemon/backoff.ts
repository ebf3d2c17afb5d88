/**
 * Waiting between attempts: exponential, with full jitter and a cap.
 *
 * Full jitter (anything from 0 to the ceiling) spreads a crowd that lost the same peer at the same
 * moment. The count starts over only after a minimum uptime: a peer that accepts and drops at once
 * would otherwise be hammered at the first pace for ever.
 */

export type BackoffOptions = {
  /** Ceiling of the first wait. */
  readonly baseMs?: number;
  /** Ceiling of every wait. */
  readonly capMs?: number;
  /** How long a run must have been up for its failure to count as the first one. */
  readonly minUptimeMs?: number;
  /** A number in [0, 1). */
  readonly random?: () => number;
  /** Monotonic clock, milliseconds: a step of the wall clock is no uptime. */
  readonly now?: () => number;
};

export type Backoff = {
  /** The attempt succeeded: its uptime begins. Further calls until `next` change nothing. */
  readonly up: () => void;
  /** The attempt, or the run that it began, failed: milliseconds to wait before another. */
  readonly next: () => number;
  /** Failures in a row. */
  readonly failures: () => number;
};

/** 2^32 times any base is above every cap; the exponent stays a small number. */
const MAX_EXPONENT = 32;

export function createBackoff(options: BackoffOptions = {}): Backoff {
  const { baseMs = 250, capMs = 30_000, minUptimeMs = 10_000 } = options;
  const { random = Math.random, now = () => performance.now() } = options;
  let failures = 0;
  let upSince: number | undefined;
  return {
    up: () => {
      upSince ??= now();
    },
    next: () => {
      if (upSince !== undefined && now() - upSince >= minUptimeMs) failures = 0;
      upSince = undefined;
      const ceiling = Math.min(capMs, baseMs * 2 ** Math.min(failures, MAX_EXPONENT));
      failures += 1;
      return Math.floor(random() * ceiling);
    },
    failures: () => failures,
  };
}
