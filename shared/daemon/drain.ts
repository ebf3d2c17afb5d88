/**
 * Ending in order, against one overall deadline.
 *
 * Intake stops first, then what is in flight finishes, then background loops, then connections: each
 * phase still needs what the next one takes away. A small reserve at the end belongs to the last two,
 * so that a piece of work that hangs doesn't cost the connections their orderly close.
 */
import type { Log } from "./log.ts";
import { within } from "./releasers.ts";

export type Phase = {
  readonly name: string;
  /** `work` leaves the reserve alone; `end` may use all that is left. */
  readonly until: "work" | "end";
  readonly run: (giveUp: AbortSignal) => unknown;
};

export type PhaseFailure = { readonly phase: string; readonly cause: unknown };

/** The reserve: a fifth of the whole, at most this. */
const MAX_RESERVE_MS = 1500;

/** Runs every phase, whatever became of the one before. A phase out of time fails `deadline-exceeded`. */
export async function drainPhases(
  phases: readonly Phase[],
  { drainMs, now, log }: { readonly drainMs: number; readonly now: () => number; readonly log: Log },
): Promise<readonly PhaseFailure[]> {
  const began = now();
  const limit = { work: drainMs - Math.min(MAX_RESERVE_MS, drainMs / 5), end: drainMs };
  const failures: PhaseFailure[] = [];
  for (const { name, until, run } of phases) {
    try {
      await within(limit[until] - (now() - began), `the drain phase "${name}"`, run);
    } catch (cause) {
      failures.push({ phase: name, cause });
      log.error("a phase of the drain failed", { phase: name, err: cause });
    }
  }
  return failures;
}
