/**
 * Where received items wait for the reader.
 *
 * Invariants
 * 1. Three lanes: durable copies and history are never dropped (their sources wait for room), live
 *    copies are bounded and the oldest go first, counted. The lane is chosen by the delivering
 *    subject, never by a field of the payload (field case 2).
 * 2. The reader gets items in the order they arrived here, whatever their lane.
 * 3. A named failure reaches the reader in place of silence, once, and reading may go on after it.
 * 4. An entry behind a door is shown only once its door says so, and its door is asked only for a reader who
 *    waits and whose turn it has come to (§8.1: a take ends the sender's chance to cancel). What has to wait
 *    keeps its place; the reader meanwhile gets what came after it.
 */
import type { CotalError } from "../protocol/base/errors.ts";

export const Lane = { Durable: 0, History: 1, Live: 2 } as const;
export type Lane = (typeof Lane)[keyof typeof Lane];

/** `show` it now; it is `gone` and nobody's here; `later`: `retry` says when to ask again. */
export type DoorAnswer = "show" | "gone" | "later";

export type Door = {
  /** Asked when its entry is about to be shown. Never rejects. */
  readonly open: () => Promise<DoorAnswer>;
  /** There is nothing to show behind it any more. */
  readonly isGone: () => boolean;
};

export type Mailbox<Entry> = {
  readonly push: (lane: Lane, entry: Entry) => void;
  /** Adds an entry behind a door. */
  readonly pushBehind: (door: Door, entry: Entry) => void;
  /** Doors that said `later` may be asked again. */
  readonly retry: () => void;
  /** What waits, in the order in which it would be read. Nothing is asked or taken by it. */
  readonly peek: () => Entry[];
  /** The next entry; `undefined` once closed. Rejects with a failure that was told. */
  readonly next: () => Promise<Entry | undefined>;
  /** The next entry if it is there and behind no door; it asks nothing and waits for nothing. */
  readonly poll: () => Entry | undefined;
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
type Gated<Entry> = Slot<Entry> & { readonly door: Door; rests: boolean };

export function createMailbox<Entry>(options: MailboxOptions<Entry>): Mailbox<Entry> {
  const lanes = [createFifo<Slot<Entry>>(), createFifo<Slot<Entry>>(), createFifo<Slot<Entry>>()] as const;
  /** In the order of arrival. Few: what is behind a door is bounded by what its durable may hold. */
  let gated: Gated<Entry>[] = [];
  let asking: Gated<Entry> | undefined;
  const waitingForRoom = new Set<() => void>();
  let order = 0;
  let failure: CotalError | undefined;
  let closed = false;
  let reader:
    | { readonly resolve: (entry: Entry | undefined) => void; readonly reject: (error: CotalError) => void }
    | undefined;

  const firstLane = () => {
    let first: (typeof lanes)[number] | undefined;
    for (const lane of lanes) {
      const head = lane.peek();
      if (head === undefined) continue;
      if (first === undefined || head.order < (first.peek()?.order ?? 0)) first = lane;
    }
    return first;
  };
  const take = (lane: (typeof lanes)[number] | undefined): Slot<Entry> | undefined => {
    const slot = lane?.shift();
    if (slot !== undefined) for (const check of waitingForRoom) check();
    return slot;
  };
  const withdraw = (slot: Gated<Entry>): void => {
    gated = gated.filter((one) => one !== slot);
  };
  const behindDoors = (): Gated<Entry>[] => (gated = gated.filter(({ door }) => !door.isGone()));
  const ask = async (slot: Gated<Entry>): Promise<void> => {
    asking = slot;
    const said = await slot.door.open();
    asking = undefined;
    if (said === "later") slot.rests = true;
    // Nobody waits for it any more: it keeps its place, and is asked for again when somebody does.
    if (said === "show" && (reader === undefined || !gated.includes(slot))) return answer();
    if (said !== "later") withdraw(slot);
    if (said !== "show") return answer();
    const waiting = reader;
    reader = undefined;
    waiting?.resolve(slot.entry);
  };
  /** What is behind a door and came before everything in this lane. */
  const doorBefore = (lane: (typeof lanes)[number] | undefined): Gated<Entry> | undefined => {
    const behind = closed ? undefined : gated.find(({ rests }) => !rests);
    return behind !== undefined && behind.order < (lane?.peek()?.order ?? Number.POSITIVE_INFINITY)
      ? behind
      : undefined;
  };
  const answer = (): void => {
    if (reader === undefined || asking !== undefined) return;
    const waiting = reader;
    const lane = firstLane();
    const behind = doorBefore(lane);
    if (behind !== undefined) return void ask(behind);
    const slot = take(lane);
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
    pushBehind: (door, entry) => {
      if (closed) return;
      behindDoors().push({ order: (order += 1), entry, door, rests: false });
      answer();
    },
    retry: () => {
      for (const slot of gated) slot.rests = false;
      answer();
    },
    peek: () =>
      [...lanes.flatMap((lane) => lane.all()), ...behindDoors()]
        .toSorted((a, b) => a.order - b.order)
        .map(({ entry }) => entry),
    next: () =>
      new Promise((resolve, reject) => {
        reader?.resolve(undefined);
        reader = { resolve, reject };
        answer();
      }),
    poll: () => {
      if (reader !== undefined || asking !== undefined) return undefined;
      const lane = firstLane();
      return doorBefore(lane) === undefined ? take(lane)?.entry : undefined;
    },
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
      for (let slot = take(firstLane()); slot !== undefined; slot = take(firstLane())) left.push(slot.entry);
      left.push(...behindDoors().map(({ entry }) => entry));
      gated = [];
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
  readonly all: () => T[];
};

/** An array with a moving head: `Array.shift` moves everything once it is long. */
function createFifo<T>(): Fifo<T> {
  let items: T[] = [];
  let head = 0;
  return {
    push: (value) => void items.push(value),
    peek: () => items[head],
    size: () => items.length - head,
    all: () => items.slice(head),
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
