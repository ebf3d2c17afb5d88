/**
 * Until when each of many requests waits, on one timer: a timer each is made and thrown away for nothing, since
 * nearly every request is answered in time.
 *
 * Invariants
 * 1. Nobody is told before its deadline, and everybody at most a millisecond or two after it.
 * 2. The timer keeps no process alive: what waits, waits on a connection, which does.
 */
type Wait = { readonly at: number; readonly late: () => void };

export type Deadlines = {
  /** Calls back once so many milliseconds have passed, unless what it returns is called before. */
  readonly add: (ms: number, late: () => void) => () => void;
};

export function createDeadlines(): Deadlines {
  const waits = new Set<Wait>();
  let alarm: { readonly at: number; readonly timer: NodeJS.Timeout } | undefined;
  const set = (at: number, now: number): void => {
    if (alarm !== undefined && alarm.at <= at) return;
    clearTimeout(alarm?.timer);
    alarm = { at, timer: setTimeout(ring, Math.ceil(at - now)).unref() };
  };
  const ring = (): void => {
    alarm = undefined;
    const now = performance.now();
    let next = Number.POSITIVE_INFINITY;
    for (const wait of waits) {
      if (wait.at > now) next = Math.min(next, wait.at);
      else if (waits.delete(wait)) wait.late();
    }
    if (next < Number.POSITIVE_INFINITY) set(next, now);
  };
  return {
    add: (ms, late) => {
      const now = performance.now();
      const wait = { at: now + ms, late };
      waits.add(wait);
      set(wait.at, now);
      return () => void waits.delete(wait);
    },
  };
}
