/**
 * How long to wait before the next dial: grows from `baseMs` to `capMs`, with jitter.
 *
 * nats.js asks for the wait several times before one dial, so it is drawn once per failure and
 * stays what it is until the next. The growth starts over only after the connection stayed up for
 * `stableMs`: a broker that accepts and drops at once is no success.
 */
export type PaceOptions = {
  readonly baseMs?: number;
  readonly capMs?: number;
  readonly stableMs?: number;
  /** A number in [0, 1). */
  readonly random?: () => number;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
};

export type Pace = {
  /** The wait before the next dial, in milliseconds. */
  readonly waitMs: () => number;
  readonly failures: () => number;
  /** A dial began or failed: the next one waits longer. */
  readonly failed: () => void;
  readonly up: () => void;
  readonly down: () => void;
};

const MAX_DOUBLINGS = 16;

export function createPace(options: PaceOptions): Pace {
  const { baseMs = 100, capMs = 10_000, stableMs = 10_000 } = options;
  const { random = Math.random, now = () => performance.now() } = options;
  let failures = 0;
  let upSince: number | undefined;
  let wait = draw(0);

  /** Between a half and the whole of the ceiling: spread, yet never at once. */
  function draw(after: number): number {
    const ceiling = Math.min(capMs, baseMs * 2 ** Math.min(after, MAX_DOUBLINGS));
    return Math.max(1, Math.round(ceiling * (0.5 + random() / 2)));
  }

  return {
    waitMs: () => wait,
    failures: () => failures,
    failed: () => {
      failures += 1;
      wait = draw(failures);
    },
    up: () => {
      upSince = now();
    },
    down: () => {
      if (upSince !== undefined && now() - upSince >= stableMs) {
        failures = 0;
        wait = draw(0);
      }
      upSince = undefined;
    },
  };
}
