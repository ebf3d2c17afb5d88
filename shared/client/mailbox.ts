/**
 * Where received items wait for the reader.
 *
 * Invariants
 * 1. Three lanes: durable copies and history are never dropped (their sources wait for room), live
 *    copies are bounded and the oldest go first, counted. The lane is chosen by the delivering
 *    subject, never by a field of the payload (field case 2).
 * 2. The reader gets items in the order they arrived here, whatever their lane.
 * 3. A named failure reaches the reader in place of silence, once, and reading may go on after it.
 */
import type { CotalError } from "../protocol/base/errors.ts";

export const Lane = { Durable: 0, History: 1, Live: 2 } as const;
export type Lane = (typeof Lane)[keyof typeof Lane];

export type Mailbox<Entry> = {
  readonly push: (lane: Lane, entry: Entry) => void;
  /** The next entry; `undefined` once closed. Rejects with a failure that was told. */
  readonly next: () => Promise<Entry | undefined>;
  /** Ends a reading that waits, with `undefined` and without taking anything. */
  readonly release: () => void;
  readonly waiting: (lane: Lane) => number;
  /** Resolves when the lane holds fewer than `below` entries, or the mailbox is closed. */
  readonly room: (lane: Lane, below: number) => Promise<void>;
  readonly fail: (error: CotalError) => void;
  /** Withdraws a failure that nobody has read. */
  readonly recover: () => void;
  /** Ends reading; returns what nobody took. */
  readonly close: () => Entry[];
};

export type MailboxOptions<Entry> = {
  readonly liveCapacity: number;
  /** A live entry that was pushed out. */
  readonly onDropped: (entry: Entry) => void;
};

type Slot<Entry> = { readonly order: number; readonly entry: Entry };

export function createMailbox<Entry>(options: MailboxOptions<Entry>): Mailbox<Entry> {
  const lanes = [createFifo<Slot<Entry>>(), createFifo<Slot<Entry>>(), createFifo<Slot<Entry>>()] as const;
  const waitingForRoom = new Set<() => void>();
  let order = 0;
  let failure: CotalError | undefined;
  let closed = false;
  let reader:
    | { readonly resolve: (entry: Entry | undefined) => void; readonly reject: (error: CotalError) => void }
    | undefined;

  const take = (): Slot<Entry> | undefined => {
    let first: (typeof lanes)[number] | undefined;
    for (const lane of lanes) {
      const head = lane.peek();
      if (head === undefined) continue;
      if (first === undefined || head.order < (first.peek()?.order ?? 0)) first = lane;
    }
    const slot = first?.shift();
    if (slot !== undefined) for (const check of waitingForRoom) check();
    return slot;
  };
  const answer = (): void => {
    if (reader === undefined) return;
    const waiting = reader;
    const slot = take();
    if (slot === undefined && failure === undefined && !closed) return;
    reader = undefined;
    if (slot !== undefined) return waiting.resolve(slot.entry);
    if (failure === undefined) return waiting.resolve(undefined);
    const error = failure;
    failure = undefined;
    waiting.reject(error);
  };

  return {
    push: (lane, entry) => {
      if (closed) return;
      lanes[lane].push({ order: (order += 1), entry });
      if (lane === Lane.Live && lanes[lane].size() > options.liveCapacity) {
        const oldest = lanes[lane].shift();
        if (oldest !== undefined) options.onDropped(oldest.entry);
      }
      answer();
    },
    next: () =>
      new Promise((resolve, reject) => {
        reader?.resolve(undefined);
        reader = { resolve, reject };
        answer();
      }),
    release: () => {
      reader?.resolve(undefined);
      reader = undefined;
    },
    waiting: (lane) => lanes[lane].size(),
    room: (lane, below) =>
      new Promise((resolve) => {
        const check = (): void => {
          if (!closed && lanes[lane].size() >= below) return;
          waitingForRoom.delete(check);
          resolve();
        };
        waitingForRoom.add(check);
        check();
      }),
    fail: (error) => {
      failure = error;
      answer();
    },
    recover: () => {
      failure = undefined;
    },
    close: () => {
      closed = true;
      const left: Entry[] = [];
      for (let slot = take(); slot !== undefined; slot = take()) left.push(slot.entry);
      for (const check of waitingForRoom) check();
      answer();
      return left;
    },
  };
}

type Fifo<T> = {
  readonly push: (value: T) => void;
  readonly shift: () => T | undefined;
  readonly peek: () => T | undefined;
  readonly size: () => number;
};

/** An array with a moving head: `Array.shift` moves everything once it is long. */
function createFifo<T>(): Fifo<T> {
  let items: T[] = [];
  let head = 0;
  return {
    push: (value) => void items.push(value),
    peek: () => items[head],
    size: () => items.length - head,
    shift: () => {
      if (head >= items.length) return undefined;
      const value = items[head];
      head += 1;
      if (head > 1024 && head * 2 > items.length) {
        items = items.slice(head);
        head = 0;
      }
      return value;
    },
  };
}
