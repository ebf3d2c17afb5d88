/**
 * Many questions or writes of one operation, pipelined: so many are under way at once, and nobody else waits long.
 *
 * What came of each, in their order. It rejects with the first failure, once nothing of it is under way any more.
 */
export async function atOnce<T, R>(items: readonly T[], limit: number, run: (item: T) => Promise<R>): Promise<R[]> {
  const done: R[] = [];
  let next = 0;
  let isFailed = false;
  const work = async (): Promise<void> => {
    for (let at = next++; at < items.length && !isFailed; at = next++) {
      done[at] = await run(items[at] as T).catch((error: unknown) => {
        isFailed = true;
        throw error;
      });
    }
  };
  const ended = await Promise.allSettled(Array.from({ length: Math.min(limit, items.length) }, work));
  const failed = ended.find((one) => one.status === "rejected");
  if (failed !== undefined) throw failed.reason;
  return done;
}
