/** Runs many short writes with a bound on how many are under way; the first failure ends it. */
import { toCotalError } from "../protocol/base/errors.ts";

const AT_ONCE = 32;

export async function inParallel(all: AsyncIterable<() => Promise<unknown>>, atOnce: number = AT_ONCE): Promise<void> {
  const running = new Set<Promise<unknown>>();
  let fault: Error | undefined;
  for await (const run of all) {
    if (running.size >= atOnce) await Promise.race(running);
    if (fault !== undefined) break;
    const one = run()
      .catch((thrown: unknown) => {
        fault ??= toCotalError(thrown);
      })
      .finally(() => running.delete(one));
    running.add(one);
  }
  await Promise.all(running);
  if (fault !== undefined) throw fault;
}
