/**
 * Work of one name, one after another, in the order in which it came.
 *
 * A name takes memory only while something of it runs or waits. How many may wait is the limits'
 * business: the edge refuses a flood before it gets here.
 */
export type Turns = <T>(name: string, run: () => Promise<T>) => Promise<T>;

export function createTurns(): Turns {
  const last = new Map<string, Promise<unknown>>();
  return (name, run) => {
    const before = last.get(name) ?? Promise.resolve();
    const mine = before.then(run, run);
    // What failed for one is nothing to the next.
    const ended = mine
      .catch(() => undefined)
      .finally(() => {
        if (last.get(name) === ended) last.delete(name);
      });
    last.set(name, ended);
    return mine;
  };
}
