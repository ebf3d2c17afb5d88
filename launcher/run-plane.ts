/**
 * One whole run of a plane in this process: up, until a signal ends it, down.
 *
 * A foreground `cotal up` and the background process of `--detach` both run this.
 */
import { CotalError, ErrorCode } from "../shared/protocol/base/errors.ts";
import type { PlaneFacts } from "./events.ts";
import { type PlaneOptions, startPlane } from "./plane.ts";
import { stopSignals } from "./stop-signals.ts";

export type RunOptions = Omit<PlaneOptions, "signal" | "killSignal"> & {
  readonly ready: (facts: PlaneFacts) => void;
  /** A further reason to end, beside the signals. */
  readonly until?: AbortSignal;
};

/** Settles when everything is stopped in order, also from a start; throws what kept it from coming up. */
export async function runPlane(options: RunOptions): Promise<void> {
  const signals = stopSignals();
  const stop = AbortSignal.any([signals.stop, ...(options.until === undefined ? [] : [options.until])]);
  try {
    const plane = await startPlane({ ...options, signal: stop, killSignal: signals.atOnce });
    options.ready(plane.facts);
    await aborted(stop);
    await plane.stop();
    if (signals.atOnce.aborted) throw cutShort();
  } catch (thrown) {
    const asked = stop.aborted && thrown instanceof CotalError && thrown.code === ErrorCode.Cancelled;
    if (!asked) throw thrown;
    if (signals.atOnce.aborted) throw cutShort();
  }
}

function cutShort(): CotalError {
  return new CotalError(ErrorCode.Cancelled, "ended at once, without a drain", {
    next: "what was stored is kept; cotal up starts it again",
  });
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
