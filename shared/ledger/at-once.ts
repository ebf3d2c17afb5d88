/**
 * Many writes of one operation, pipelined: so many are under way at once, and no more.
 *
 * It rejects with the first failure, once nothing of it is under way any more.
 */
const AT_ONCE = 256;

export async function atOnce<T>(items: readonly T[], run: (item: T) => Promise<unknown>): Promise<void> {
  const left = items[Symbol.iterator]();
  let isFailed = false;
  const work = async (): Promise<void> => {
    // One iterator for all: each takes what nobody has taken.
    for (const item of { [Symbol.iterator]: () => left }) {
      if (isFailed) return;
      await run(item).catch((error: unknown) => {
        isFailed = true;
        throw error;
      });
    }
  };
  const ended = await Promise.allSettled(Array.from({ length: Math.min(AT_ONCE, items.length) }, work));
  const failed = ended.find((one) => one.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}
