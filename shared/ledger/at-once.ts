/**
 * Many reads or writes of one operation, pipelined: so many are under way at once, and no more.
 *
 * What came of each, in their order. It rejects with the first failure, once nothing of it is under way any more.
 */
const AT_ONCE = 256;

export async function atOnce<T, R>(items: readonly T[], run: (item: T) => Promise<R>): Promise<R[]> {
  const done: R[] = [];
  const left = items.entries();
  let isFailed = false;
  const work = async (): Promise<void> => {
    // One iterator for all: each takes what nobody has taken.
    for (const [at, item] of { [Symbol.iterator]: () => left }) {
      if (isFailed) return;
      done[at] = await run(item).catch((error: unknown) => {
        isFailed = true;
        throw error;
      });
    }
  };
  const ended = await Promise.allSettled(Array.from({ length: Math.min(AT_ONCE, items.length) }, work));
  const failed = ended.find((one) => one.status === "rejected");
  if (failed !== undefined) throw failed.reason;
  return done;
}
