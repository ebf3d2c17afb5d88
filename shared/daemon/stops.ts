/**
 * Why a daemon stops: the first of the things that can end it.
 *
 * Everything that asks for the end meets here, so that there is one reason, one drain and one exit.
 */
import { ExitCode } from "./exit-codes.ts";
import type { Host, StopSignal } from "./host.ts";
import { type Log, limitRepeats } from "./log.ts";

export type StopReason =
  | { readonly kind: "signal"; readonly signal: StopSignal }
  | { readonly kind: "parent-gone" }
  | { readonly kind: "start-failed"; readonly cause: unknown }
  /** A part of the daemon said that it can't go on. */
  | { readonly kind: "fault"; readonly cause: unknown }
  | { readonly kind: "uncaught"; readonly cause: unknown };

export type Stops = {
  /** The reason that came first. */
  readonly first: Promise<StopReason>;
  readonly ask: (reason: StopReason) => void;
  /** Whether an exception went uncaught, before the drain or during it. */
  readonly uncaught: () => boolean;
  readonly off: () => void;
};

export function watchStops(host: Host, log: Log, parentIpc: boolean): Stops {
  const { promise, resolve } = Promise.withResolvers<StopReason>();
  const limited = limitRepeats(log, { now: host.now });
  const heard = new Set<StopSignal>();
  let uncaught = false;
  const offs = [
    host.onSignal((signal) => {
      // The same signal twice, not any two: Ctrl-C reaches a whole process group, and then the
      // launcher, which heard it too, sends its children the usual SIGTERM.
      if (heard.has(signal)) {
        log.error("the signal came again: ending at once", { signal });
        host.exit(ExitCode.DrainCutShort);
      }
      heard.add(signal);
      resolve({ kind: "signal", signal });
    }),
    host.onUncaught((cause, origin) => {
      uncaught = true;
      limited(origin, "fatal", "an exception was not caught", { origin, err: cause });
      resolve({ kind: "uncaught", cause });
    }),
    ...(parentIpc ? [host.onParentGone(() => resolve({ kind: "parent-gone" }))] : []),
  ];
  return {
    first: promise,
    ask: resolve,
    uncaught: () => uncaught,
    off: () => {
      for (const off of offs) off();
    },
  };
}
