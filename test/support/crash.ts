/**
 * Crash tests: an operation is run again and again, and dies at its first write, then at its second,
 * before it and after it, until a run ends without dying. What is left must then be right.
 *
 * `run` must make its own `Writer` with the death it is given, as a restarted process would.
 */
import { type Death, Died } from "../../shared/broker/write.ts";

export type Ended<T> = {
  readonly result: T;
  /** How many runs died: at least two for every durable write. */
  readonly deaths: number;
};

const MOST_WRITES = 200;

export async function untilItEnds<T>(run: (death: Death) => Promise<T>): Promise<Ended<T>> {
  let deaths = 0;
  for (let at = 1; at <= MOST_WRITES; at += 1) {
    for (const when of ["before", "after"] as const) {
      const ended = await attempt(run, { at, when });
      if (ended !== undefined) return { result: ended.result, deaths };
      deaths += 1;
    }
  }
  throw new Error(`the operation still dies after ${deaths} runs: it does not converge`);
}

/** `undefined` if the run died as told; any other error is the operation's own failure. */
async function attempt<T>(run: (death: Death) => Promise<T>, death: Death): Promise<{ result: T } | undefined> {
  try {
    return { result: await run(death) };
  } catch (error) {
    if (error instanceof Died) return undefined;
    throw error;
  }
}
