/**
 * The process as its lifecycle sees it: environment, signals, parent, exit.
 *
 * A value and not the global, so that the lifecycle is testable and nothing else of a daemon touches
 * `process`. Every `on…` returns the function that stops listening.
 */
import type { DestinationStream } from "pino";

export type StopSignal = "SIGTERM" | "SIGINT";

/** What a daemon tells the parent that started it with an IPC channel. `health` is the HTTP port. */
export type DaemonEvent =
  /** The health server listens; readiness can be asked for, and says what is missing. */
  | { readonly kind: "listening"; readonly health: number }
  /** Started, and every check ok for the first time. Sent once. */
  | { readonly kind: "ready"; readonly health: number };

export type Host = {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Monotonic clock, milliseconds. */
  readonly now: () => number;
  /** A number in [0, 1). */
  readonly random: () => number;
  /** Where the log goes; standard output if not given. */
  readonly log?: DestinationStream;
  readonly onSignal: (listener: (signal: StopSignal) => void) => () => void;
  /** An exception or a rejection that nobody caught. */
  readonly onUncaught: (listener: (cause: unknown, origin: string) => void) => () => void;
  /** The IPC channel to the parent closed, or had closed before. */
  readonly onParentGone: (listener: () => void) => () => void;
  /** Does nothing without a parent. */
  readonly tellParent: (event: DaemonEvent) => void;
  readonly exit: (code: number) => void;
};

const STOP_SIGNALS: readonly StopSignal[] = ["SIGTERM", "SIGINT"];

/** The real process. */
export function processHost(): Host {
  return {
    env: process.env,
    now: () => performance.now(),
    random: Math.random,
    onSignal: (listener) => {
      const pairs = STOP_SIGNALS.map((signal) => ({ signal, heard: () => listener(signal) }));
      for (const { signal, heard } of pairs) process.on(signal, heard);
      return () => {
        for (const { signal, heard } of pairs) process.off(signal, heard);
      };
    },
    // Node raises an unhandled rejection as an uncaught exception of that origin.
    onUncaught: (listener) => {
      process.on("uncaughtException", listener);
      return () => process.off("uncaughtException", listener);
    },
    onParentGone: (listener) => {
      // `connected` is undefined without a channel; false when it closed before we could listen.
      if (process.send !== undefined && !process.connected) queueMicrotask(listener);
      process.on("disconnect", listener);
      return () => process.off("disconnect", listener);
    },
    tellParent: (event) => {
      // A parent that can't be told is gone, and `disconnect` says so.
      process.send?.(event, undefined, {}, () => undefined);
    },
    exit: (code) => {
      process.exit(code);
    },
  };
}
