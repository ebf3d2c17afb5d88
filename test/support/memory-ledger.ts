/**
 * A ledger store in memory that behaves like the broker's: one revision counter, creates and pinned
 * CAS, leader reads. Its writes are numbered, and the n-th can die before or after it took place.
 */
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import type { FoundRow, LedgerStore, RawRow, ReadBucket } from "../../shared/ledger/store.ts";

/** What a dying process throws: no error of ours, so nobody handles it. */
export class Died extends Error {
  override readonly name = "Died";
}

export type Death = { readonly at: number; readonly when: "before" | "after" };

export type MemoryLedger = {
  /** A process's view: it dies at the given write, counted from 1, and does nothing more after that. */
  readonly store: (death?: Death) => LedgerStore;
  /** The row as it is, or `undefined`. */
  readonly row: (bucket: ReadBucket, key: string) => unknown;
  readonly keys: (bucket: ReadBucket) => string[];
  /** Replaces a row from outside: corruption, or another program. */
  readonly put: (bucket: ReadBucket, key: string, value: unknown) => void;
  /** A delete marker. */
  readonly mark: (bucket: ReadBucket, key: string) => void;
  /** Every write that took place, in order. */
  readonly writes: readonly string[];
};

type Kept = { revision: number; value: unknown } | { revision: number; marker: true };

function rawOf(kept: Kept): FoundRow {
  if ("marker" in kept) return { kind: "marker", revision: kept.revision };
  return { kind: "value", revision: kept.revision, value: structuredClone(kept.value) };
}

export function memoryLedger(): MemoryLedger {
  const rows = new Map<string, Kept>();
  const writes: string[] = [];
  let revision = 0;
  const place = (bucket: ReadBucket, key: string) => `${bucket}/${key}`;

  function write(at: string, expected: number, value: object): number {
    if ((rows.get(at)?.revision ?? 0) !== expected) throw new CotalError(ErrorCode.Conflict, `${at} moved`);
    revision += 1;
    // A copy, as the wire makes one.
    rows.set(at, { revision, value: structuredClone(value) });
    writes.push(at);
    return revision;
  }

  function store(death?: Death): LedgerStore {
    let count = 0;
    let dead = false;
    // Each step gives way first, so that concurrent operations interleave.
    const alive = async (): Promise<void> => {
      await Promise.resolve();
      if (dead) throw new Died("dead already");
    };
    const counted = async (act: () => number): Promise<number> => {
      await alive();
      count += 1;
      const dies = death?.at === count;
      if (dies && death.when === "before") {
        dead = true;
        throw new Died(`before write ${count}`);
      }
      const made = act();
      if (dies) {
        dead = true;
        throw new Died(`after write ${count}`);
      }
      return made;
    };
    return {
      read: async (bucket, key): Promise<RawRow> => {
        await alive();
        const found = rows.get(place(bucket, key));
        if (found === undefined) return { kind: "absent" };
        return rawOf(found);
      },
      create: (bucket, key, value) => counted(() => write(place(bucket, key), 0, value)),
      cas: (bucket, key, value, pinned) => counted(() => write(place(bucket, key), pinned, value)),
      scan: async ({ bucket, family }, pick) => {
        await alive();
        const lead = place(bucket, family.slice(0, -1));
        const found = [...rows].filter(([at]) => at.startsWith(lead));
        return found.flatMap(([at, row]) => pick(at.slice(bucket.length + 1), rawOf(row)) ?? []);
      },
      keys: async (bucket, filter) => {
        await alive();
        const lead = place(bucket, filter.slice(0, -1));
        const found = [...rows].filter(([at, row]) => at.startsWith(lead) && !("marker" in row));
        return found.map(([at]) => at.slice(bucket.length + 1));
      },
    };
  }

  return {
    store,
    row: (bucket, key) => {
      const found = rows.get(place(bucket, key));
      return found === undefined || "marker" in found ? undefined : found.value;
    },
    keys: (bucket) =>
      Array.from(rows.keys())
        .filter((at) => at.startsWith(`${bucket}/`))
        .map((at) => at.slice(bucket.length + 1)),
    put: (bucket, key, value) => void rows.set(place(bucket, key), { revision: (revision += 1), value }),
    mark: (bucket, key) => void rows.set(place(bucket, key), { revision: (revision += 1), marker: true }),
    writes,
  };
}

/**
 * Runs an operation again and again, each time dying one write later, until one run ends without
 * dying. Hands back that run's result and how often it died.
 */
export async function crashLoop<T>(
  ledger: MemoryLedger,
  when: Death["when"],
  run: (store: LedgerStore) => Promise<T>,
): Promise<{ readonly value: T; readonly deaths: number }> {
  for (let at = 1; at < 50; at += 1) {
    try {
      return { value: await run(ledger.store({ at, when })), deaths: at - 1 };
    } catch (thrown) {
      if (!(thrown instanceof Died)) throw thrown;
    }
  }
  throw new Error("the operation never ends without dying");
}
