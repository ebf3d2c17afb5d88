/**
 * The keeper of a background loop (a watch, a renewal, a second connection): it never dies silently.
 *
 * The loop reports how it ended as a value; only the keeper decides what follows. A loop that was not
 * told to stop and ended all the same is a fault, whether it threw or returned.
 *
 * Invariants
 * 1. A loop that is neither running nor waiting for its next start is stopped, done, or fatal, and
 *    each of these is logged and shown by its health check `loop:<name>`.
 * 2. The log claims a retry only when the wait for it begins.
 * 3. Nothing here judges by elapsed time that a peer is gone: a starved process looks the same.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { toCotalError } from "../protocol/base/errors.ts";
import type { Backoff } from "./backoff.ts";
import type { Check, Health } from "./health.ts";
import type { Log } from "./log.ts";

/** How a run of a loop ended. A thrown value is a `retry` with that cause. */
export type LoopEnd =
  /** There is nothing left to do, for good. */
  | { readonly kind: "done" }
  | { readonly kind: "retry"; readonly cause: unknown }
  /** Trying again can't help: the process ends with this cause. */
  | { readonly kind: "fatal"; readonly cause: unknown };

/** What a run is given. */
export type Loop = {
  /** Aborted when the daemon drains: return soon. */
  readonly stopping: AbortSignal;
  /** It works now: the check is ok, and the uptime that resets the back-off begins. */
  readonly ok: (detail?: string) => void;
  /** It runs on, but something is wrong; `ok` takes it back. */
  readonly failing: (detail: string, next: string) => void;
};

export type KeepOptions = {
  readonly health: Health;
  readonly log: Log;
  readonly backoff: Backoff;
  /** Takes a fatal end. */
  readonly onFatal: (cause: unknown) => void;
  /** Hears of each restart, for a counter. */
  readonly onRestart?: () => void;
};

export type Kept = {
  readonly name: string;
  /** Settles when the loop has ended and will not run again. Never rejects. */
  readonly ended: Promise<void>;
  /** Tells the loop to stop and waits for it. */
  readonly stop: () => Promise<void>;
};

export function keep(name: string, run: (loop: Loop) => Promise<LoopEnd>, options: KeepOptions): Kept {
  const stopping = new AbortController();
  const check = options.health.check(`loop:${name}`);
  const ended = cycle(run, options.log.child({ loop: name }), check, stopping.signal, options);
  return {
    name,
    ended,
    stop: () => {
      stopping.abort();
      return ended;
    },
  };
}

async function cycle(
  run: (loop: Loop) => Promise<LoopEnd>,
  log: Log,
  check: Check,
  stopping: AbortSignal,
  { backoff, onFatal, onRestart }: KeepOptions,
): Promise<void> {
  const loop: Loop = {
    stopping,
    ok: (detail) => {
      backoff.up();
      check.ok(detail);
    },
    failing: (detail, next) => check.fail(detail, next),
  };
  while (!stopping.aborted) {
    const end = await runOnce(run, loop);
    if (stopping.aborted) {
      // Being told to stop explains most ends, not a fatal one.
      if (end.kind === "fatal") log.error("a loop failed while it was stopping", { err: end.cause });
      break;
    }
    if (end.kind === "done") {
      log.info("a loop is done");
      break;
    }
    const { message, next = "read the log of this process" } = toCotalError(end.cause);
    if (end.kind === "fatal") {
      check.fail(message, next);
      log.fatal("a loop failed for good; the process ends", { err: end.cause });
      onFatal(end.cause);
      return;
    }
    const waitMs = backoff.next();
    check.fail(message, next);
    log.warn("a loop failed and starts again after a wait", { err: end.cause, waitMs, failures: backoff.failures() });
    await pause(waitMs, stopping);
    if (!stopping.aborted) onRestart?.();
  }
  check.remove();
}

async function runOnce(run: (loop: Loop) => Promise<LoopEnd>, loop: Loop): Promise<LoopEnd> {
  try {
    return await run(loop);
  } catch (cause) {
    return { kind: "retry", cause };
  }
}

async function pause(ms: number, stopping: AbortSignal): Promise<void> {
  try {
    await sleep(ms, undefined, { signal: stopping });
  } catch (error) {
    // The wait ends early for one reason only.
    if (!stopping.aborted) throw error;
  }
}
