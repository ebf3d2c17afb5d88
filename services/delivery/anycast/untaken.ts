/**
 * Deliveries of role requests that nobody has taken (§8.1): a holder that hoards, one that predates takes, or one
 * that pulls and never reads. The broker counts what each role's durable has out; the rows say what was taken of it.
 *
 * The two are read one after the other and move meanwhile, and a copy may lawfully wait unshown for an ack wait. So
 * it is told only when two sweeps in a row, ten minutes apart, have seen it.
 */
export type Untaken = { readonly role: string; readonly count: number };

export type UntakenWatch = {
  /** Deliveries that are out, and requests that are taken and still queued, by role. What has lasted. */
  readonly look: (out: ReadonlyMap<string, number>, taken: ReadonlyMap<string, number>) => Untaken[];
};

export function createUntakenWatch(): UntakenWatch {
  let before = new Map<string, number>();
  return {
    look: (out, taken) => {
      const now = new Map<string, number>();
      for (const [role, count] of out) {
        const untaken = count - (taken.get(role) ?? 0);
        if (untaken > 0) now.set(role, untaken);
      }
      const lasting = [...now].flatMap(([role, count]) => {
        const both = Math.min(count, before.get(role) ?? 0);
        return both > 0 ? [{ role, count: both }] : [];
      });
      before = now;
      return lasting;
    },
  };
}
