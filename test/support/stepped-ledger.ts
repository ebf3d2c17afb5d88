/** A process's view of the ledger in which every step waits until the scheduler picks it, and is written down. */
import type fc from "fast-check";
import type { LedgerBucket, LedgerStore } from "../../shared/ledger/store.ts";

export function stepped(store: LedgerStore, scheduler: fc.Scheduler): LedgerStore {
  const step = async <T>(label: string, run: () => Promise<T>): Promise<T> => {
    await scheduler.schedule(Promise.resolve(), label);
    return run();
  };
  return {
    read: (bucket, key) => step(`read ${key}`, () => store.read(bucket, key)),
    create: (bucket, key, value) => step(`create ${key}`, () => store.create(bucket, key, value)),
    cas: (bucket, key, value, revision) => step(`cas ${key}`, () => store.cas(bucket, key, value, revision)),
    scan: (asked, pick) => step(`scan ${asked.family}`, () => store.scan(asked, pick)),
    keys: (bucket, filter) => step(`keys ${filter}`, () => store.keys(bucket, filter)),
  };
}

/** A write that took place. */
export type Written = { readonly bucket: LedgerBucket; readonly key: string; readonly value: object };

/** Tells each write the moment it took place: nothing comes between. */
export function watched(store: LedgerStore, onWrite: (written: Written) => void): LedgerStore {
  return {
    ...store,
    create: async (bucket, key, value) => {
      const revision = await store.create(bucket, key, value);
      onWrite({ bucket, key, value });
      return revision;
    },
    cas: async (bucket, key, value, pinned) => {
      const revision = await store.cas(bucket, key, value, pinned);
      onWrite({ bucket, key, value });
      return revision;
    },
  };
}
