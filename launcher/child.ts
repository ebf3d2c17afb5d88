/**
 * One run of one child process: started, ready or failed, ended.
 *
 * Invariants
 * 1. Every child leads its own process group: Ctrl-C in a terminal reaches the launcher, which ends
 *    its children in order.
 * 2. `ready` settles exactly once; an end before it is a rejection that says why.
 * 3. `end` returns only when the process is gone.
 */
import type { ChildProcess } from "node:child_process";
import { CotalError, ErrorCode } from "../shared/protocol/base/errors.ts";
import { type ProcessIdentity, identify } from "./process-identity.ts";

export type ChildEnd = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

export type Child = {
  readonly identity: ProcessIdentity;
  readonly ready: Promise<void>;
  readonly ended: Promise<ChildEnd>;
  readonly hasEnded: () => boolean;
  /** SIGTERM, then SIGKILL after the grace time. */
  readonly end: (graceMs: number) => Promise<void>;
  /** SIGKILL now. */
  readonly kill: () => void;
};

/** What is waited for, and what to do about it. */
export type Late = { readonly why: string; readonly next: string };

export type ChildOptions = {
  readonly name: string;
  readonly log: string;
  readonly process: ChildProcess;
  /** Settles when it serves; `ended` aborts when the process is gone. */
  readonly untilReady: (ended: AbortSignal) => Promise<void>;
  readonly readyTimeoutMs: number;
  /** What a start that is late waits for, if that is known. */
  readonly whyLate?: () => Late | undefined;
  /** The reason, in words, of an end before it was ready. */
  readonly whyEnded: (end: ChildEnd) => CotalError;
};

/** Takes charge of a process that was just spawned; throws if it could not be. */
export async function adopt(options: ChildOptions): Promise<Child> {
  const { name, process: child } = options;
  const gone = new AbortController();
  const ended = new Promise<ChildEnd>((resolve) => {
    child.once("exit", (code, signal) => {
      gone.abort();
      resolve({ code, signal });
    });
  });
  await new Promise<void>((resolve, reject) => {
    child.once("spawn", resolve);
    child.once("error", (cause) =>
      reject(new CotalError(ErrorCode.Internal, `${name} could not be started`, { cause, next: "see its log" })),
    );
  });
  // A process that ended within these microseconds has no entry any more; its exit event follows.
  const identity = identify(child.pid ?? 0) ?? { pid: child.pid ?? 1, start: "gone", boot: "" };
  const ready = untilReady(options, ended, gone.signal);
  // Whoever adopts may only be interested in the end.
  ready.catch(() => undefined);
  return {
    identity,
    ready,
    ended,
    hasEnded: () => gone.signal.aborted,
    kill: () => void child.kill("SIGKILL"),
    end: async (graceMs) => {
      if (gone.signal.aborted) return;
      child.kill("SIGTERM");
      const timer = setTimeout(() => child.kill("SIGKILL"), graceMs);
      await ended;
      clearTimeout(timer);
    },
  };
}

async function untilReady(options: ChildOptions, ended: Promise<ChildEnd>, gone: AbortSignal): Promise<void> {
  const { readyTimeoutMs, whyEnded } = options;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(tooLate(options)), readyTimeoutMs);
  });
  try {
    await Promise.race([
      options.untilReady(gone),
      late,
      ended.then((end) => {
        throw whyEnded(end);
      }),
    ]);
  } finally {
    clearTimeout(timer);
  }
}

function tooLate({ name, log, readyTimeoutMs, whyLate }: ChildOptions): CotalError {
  const late = whyLate?.();
  const message = `${name} was not ready within ${readyTimeoutMs / 1000} s`;
  return late === undefined
    ? new CotalError(ErrorCode.DeadlineExceeded, message, {
        next: `read ${log}; on a slow machine, run cotal up again`,
      })
    : new CotalError(ErrorCode.DeadlineExceeded, `${message} (${late.why})`, {
        next: `${late.next}; its log is ${log}`,
      });
}

/** `code 1` or `SIGKILL`. */
export function endText({ code, signal }: ChildEnd): string {
  return signal === null ? `exit code ${code}` : signal;
}
