/**
 * What was acquired is released: in reverse order, each release within its own bound.
 *
 * A part pushes its releaser at the moment it has the resource, so a start that fails half way
 * releases exactly what it took.
 *
 * Invariants
 * 1. Last in, first out; one after the other.
 * 2. A release that fails or hangs never keeps the next one from running.
 * 3. `releaseAll` runs once; every further call gets the same report.
 */
import { CotalError, ErrorCode } from "../protocol/base/errors.ts";

export type ReleaseFailure = { readonly name: string; readonly cause: unknown };

export type ReleaseReport = {
  /** In the order of release. */
  readonly released: readonly string[];
  /** In the order of release; the first is the one to report. */
  readonly failed: readonly ReleaseFailure[];
};

export type Releasers = {
  /** Registers a release, to finish within `ms`. Throws once everything has been released. */
  readonly push: (name: string, release: () => unknown, ms?: number) => void;
  readonly releaseAll: () => Promise<ReleaseReport>;
};

const DEFAULT_RELEASE_MS = 2000;

export function createReleasers(): Releasers {
  const stack: { readonly name: string; readonly release: () => unknown; readonly ms: number }[] = [];
  let report: Promise<ReleaseReport> | undefined;
  let done = false;

  async function unwind(): Promise<ReleaseReport> {
    const released: string[] = [];
    const failed: ReleaseFailure[] = [];
    // A releaser that is pushed while we unwind (a connect that was under way) is met by this loop.
    for (let top = stack.pop(); top !== undefined; top = stack.pop()) {
      try {
        await within(top.ms, `the release of ${top.name}`, top.release);
        released.push(top.name);
      } catch (cause) {
        failed.push({ name: top.name, cause });
      }
    }
    done = true;
    return { released, failed };
  }

  return {
    push: (name, release, ms = DEFAULT_RELEASE_MS) => {
      if (done) {
        throw new CotalError(ErrorCode.FailedPrecondition, `${name} was acquired after everything was released`, {
          next: "release it where it was acquired; the process is ending",
        });
      }
      stack.push({ name, release, ms });
    },
    releaseAll: () => (report ??= unwind()),
  };
}

/**
 * Runs something for at most `ms`. The signal tells it to give up; whether it does or not, the caller
 * goes on with `deadline-exceeded`. A later failure of what was left behind has no taker and is dropped.
 */
export async function within<T>(
  ms: number,
  what: string,
  run: (giveUp: AbortSignal) => T | PromiseLike<T>,
): Promise<Awaited<T>> {
  const giveUp = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => {
        const error = new CotalError(ErrorCode.DeadlineExceeded, `${what} did not finish within ${Math.ceil(ms)} ms`);
        reject(error);
        giveUp.abort(error);
      },
      Math.max(0, ms),
    );
  });
  try {
    return await Promise.race([Promise.resolve(giveUp.signal).then(run), late]);
  } finally {
    clearTimeout(timer);
  }
}
