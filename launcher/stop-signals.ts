/**
 * Ctrl-C, SIGTERM and a closed terminal, for a program that wants to leave cleanly.
 *
 * Invariant: one Ctrl-C is one. npm and a wrapper hand on what the terminal has sent to the whole
 * process group already, so the same wish may arrive two or three times within milliseconds; only a
 * later one means "at once". For the same reason the listeners stay to the end of the process: a
 * late copy of the first must not kill what is leaving in order.
 */

const SAME_WISH_MS = 500;
const SIGNALS: readonly NodeJS.Signals[] = ["SIGINT", "SIGTERM", "SIGHUP"];

export type StopSignals = {
  /** Aborted by the first. */
  readonly stop: AbortSignal;
  /** Aborted by one that came later. */
  readonly atOnce: AbortSignal;
};

export function stopSignals(): StopSignals {
  const stop = new AbortController();
  const atOnce = new AbortController();
  let first: number | undefined;
  const heard = (): void => {
    const now = performance.now();
    if (first === undefined) {
      first = now;
      stop.abort();
    } else if (now - first >= SAME_WISH_MS) {
      atOnce.abort();
    }
  };
  for (const signal of SIGNALS) process.on(signal, heard);
  return { stop: stop.signal, atOnce: atOnce.signal };
}
