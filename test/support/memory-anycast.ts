/**
 * The store of anycast in memory: a queue, the rows, and the notices, with one revision counter and pinned
 * compare-and-sets like the broker's. Every step gives way first, so that what runs at once interleaves.
 *
 * A view of it can die before or after its n-th write, or lose the answer to it.
 */
import type { AnycastStore, FoundRow, Notice, WalkedRow } from "../../services/delivery/anycast/store.ts";
import type { AnycastRow, StoredRequest } from "../../services/delivery/anycast/row.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { Died } from "./memory-ledger.ts";

export type Fault = { readonly at: number; readonly when: "before" | "after" | "answer lost" };

/** What a test does at a step, before it takes place. */
export type Step = (step: string) => void | Promise<void>;

export type MemoryAnycast = {
  readonly store: (options?: {
    readonly fault?: Fault;
    readonly step?: Step;
    readonly pause?: () => Promise<void>;
  }) => AnycastStore;
  /** Puts a request on the queue. */
  readonly ask: (request: StoredRequest) => number;
  /** A holder acknowledges it. */
  readonly ack: (seq: number) => void;
  readonly queued: (seq: number) => boolean;
  /** Deletes the queue and makes it anew: it counts from one again. */
  readonly recreate: () => void;
  readonly created: () => string;
  readonly row: (key: string) => AnycastRow | undefined;
  readonly keys: () => string[];
  readonly notices: readonly Notice[];
  readonly writes: () => number;
};

export function memoryAnycast(): MemoryAnycast {
  let streams = 1;
  let queue = new Map<number, StoredRequest>();
  let lastSeq = 0;
  let revision = 0;
  let writes = 0;
  const rows = new Map<string, { readonly revision: number; readonly row: AnycastRow }>();
  const notices: Notice[] = [];
  const created = (): string => `2026-01-0${streams}T00:00:00.00000000${streams}Z`;

  const put = (key: string, row: AnycastRow, expected: number): number => {
    if ((rows.get(key)?.revision ?? 0) !== expected) throw new CotalError(ErrorCode.Conflict, `${key} moved`);
    revision += 1;
    rows.set(key, { revision, row: structuredClone(row) });
    return revision;
  };
  const firstSeq = (): number => Math.min(lastSeq + 1, ...queue.keys());

  const store: MemoryAnycast["store"] = ({ fault, step = () => undefined, pause = () => Promise.resolve() } = {}) => {
    let count = 0;
    let dead = false;
    const reads = async <T>(name: string, run: () => T): Promise<T> => {
      await pause();
      if (dead) throw new Died("dead already");
      await step(name);
      return run();
    };
    const effect = <T>(name: string, run: () => T): Promise<T> =>
      reads(name, () => {
        count += 1;
        const mine = fault?.at === count ? fault.when : undefined;
        const die = (): never => {
          dead = true;
          throw new Died(`${mine} write ${count}`);
        };
        if (mine === "before") die();
        writes += 1;
        const result = run();
        if (mine === "after") die();
        if (mine === "answer lost") {
          throw new CotalError(ErrorCode.Unavailable, "no answer", { outcome: Outcome.Unknown });
        }
        return result;
      });
    const found = (key: string): FoundRow | undefined => {
      const there = rows.get(key);
      return there === undefined ? undefined : { key, revision: there.revision, row: structuredClone(there.row) };
    };
    return {
      created: () => reads("created", created),
      queue: () => reads("queue", () => ({ created: created(), firstSeq: firstSeq() })),
      request: (seq) => reads("request", () => queue.get(seq)),
      deleteRequest: (seq) => effect("delete", () => queue.delete(seq)),
      row: (key) => reads("row", () => found(key)),
      rowsAt: (seq) =>
        reads("rowsAt", () =>
          [...rows.keys()]
            .filter((key) => key.endsWith(`.${seq}`))
            .flatMap((key) => found(key) ?? [])
            .toSorted((a, b) => a.revision - b.revision),
        ),
      create: (key, row) => effect("create", () => put(key, row, 0)),
      cas: (key, row, pinned) => effect("cas", () => put(key, row, pinned)),
      remove: (pinned) =>
        effect("remove", () => {
          for (const [key, row] of rows) if (row.revision === pinned) rows.delete(key);
        }),
      rows: async function* walk(): AsyncGenerator<WalkedRow> {
        const all = await reads("rows", () => [...rows.keys()]);
        for (const key of all) {
          const one = found(key);
          if (one?.row !== undefined) yield { key, revision: one.revision, row: one.row };
        }
      },
      out: () => reads("out", () => new Map()),
      lastNotice: () => reads("last notice", () => 0),
      publish: (notice) =>
        effect("publish", () => {
          if (!notices.some(({ id }) => id === notice.id)) notices.push(notice);
        }),
    };
  };

  return {
    store,
    ask: (request) => {
      lastSeq += 1;
      queue.set(lastSeq, request);
      return lastSeq;
    },
    ack: (seq) => void queue.delete(seq),
    queued: (seq) => queue.has(seq),
    recreate: () => {
      streams += 1;
      queue = new Map();
      lastSeq = 0;
    },
    created,
    row: (key) => rows.get(key)?.row,
    keys: () => [...rows.keys()],
    notices,
    writes: () => writes,
  };
}
