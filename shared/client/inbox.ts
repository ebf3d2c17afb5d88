/**
 * The reading side of a session: one iterator of items, or one handler.
 *
 * Invariants
 * 1. An item is acknowledged only after it was handled: when the iterator is asked for the next one,
 *    when a handler's promise resolves, or by the reader itself. Leaving a loop acknowledges nothing.
 * 2. A handler that fails gives its item back, later each time; a chat item has no second delivery.
 * 3. One reader at a time: two would share the items by chance.
 */
import { CotalError, ErrorCode, Outcome, toCotalError } from "../protocol/base/errors.ts";
import type { Events } from "./events.ts";
import type { InboxItem } from "./item.ts";
import type { Mailbox } from "./mailbox.ts";

/** Items as they come. `for await` acknowledges an item when it asks for the next. */
export type Inbox = AsyncIterableIterator<InboxItem, undefined>;

export type Handler = (item: InboxItem) => Promise<void> | void;

export type Handling = {
  /** Takes no more items, and resolves when those in hand are handled. */
  readonly stop: () => Promise<void>;
  /** Resolves when reading ended: with the failure that ended the session, if one did. */
  readonly ended: Promise<CotalError | undefined>;
};

export type Readers = {
  readonly iterate: () => Inbox;
  readonly handle: (handler: Handler, concurrency: number) => Handling;
  /** Resolves when no handler runs, or the time is up. */
  readonly idle: (timeoutMs: number) => Promise<void>;
};

const FIRST_DELAY_MS = 1000;
const MAX_DELAY_MS = 60_000;

export function createReaders(mailbox: Mailbox<InboxItem>, events: Events): Readers {
  const running = new Set<Promise<void>>();
  let reading = false;
  const begin = (): void => {
    if (reading) {
      throw new CotalError(ErrorCode.FailedPrecondition, "this session's inbox is being read already", {
        outcome: Outcome.NotExecuted,
        next: "end the other loop or handler first",
      });
    }
    reading = true;
  };

  const iterate = (): Inbox => {
    begin();
    let inHand: InboxItem | undefined;
    let ended = false;
    const finish = (): { done: true; value: undefined } => {
      if (!ended) reading = false;
      ended = true;
      return { done: true, value: undefined };
    };
    const wait = async (): Promise<IteratorResult<InboxItem, undefined>> => {
      try {
        inHand = await mailbox.next();
      } catch (thrown) {
        finish();
        throw thrown;
      }
      return inHand === undefined ? finish() : { done: false, value: inHand };
    };
    return {
      next: () => {
        inHand?.ack();
        inHand = undefined;
        if (ended) return Promise.resolve(finish());
        inHand = mailbox.poll();
        return inHand === undefined ? wait() : Promise.resolve({ done: false, value: inHand });
      },
      return: () => {
        // Handled or not, nobody knows: it comes again unless the reader said `ack`.
        inHand?.nak(0);
        inHand = undefined;
        mailbox.release();
        return Promise.resolve(finish());
      },
      [Symbol.asyncIterator]() {
        return this;
      },
    };
  };

  const run = async (handler: Handler, item: InboxItem): Promise<void> => {
    try {
      await handler(item);
      item.ack();
    } catch (thrown) {
      item.nak(Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** Math.min(item.deliveries - 1, 10)));
      events.tell({ type: "handler-failed", id: item.id, error: toCotalError(thrown) });
    }
  };

  const handle = (handler: Handler, concurrency: number): Handling => {
    begin();
    const mine = new Set<Promise<void>>();
    let stopping = false;
    const loop = async (): Promise<CotalError | undefined> => {
      let failure: CotalError | undefined;
      try {
        for (;;) {
          if (mine.size >= concurrency) await Promise.race(mine);
          if (stopping) return undefined;
          let item: InboxItem | undefined;
          try {
            item = await mailbox.next();
          } catch (thrown) {
            // Named by an event as well. The inbox may come back, and the handler is there then.
            failure = toCotalError(thrown);
            continue;
          }
          if (item === undefined) return stopping ? undefined : failure;
          failure = undefined;
          const work = run(handler, item);
          mine.add(work);
          running.add(work);
          void work.then(() => {
            mine.delete(work);
            running.delete(work);
          });
        }
      } finally {
        await Promise.all(mine);
        reading = false;
      }
    };
    const ended = loop();
    return {
      ended,
      stop: async () => {
        stopping = true;
        mailbox.release();
        await ended;
      },
    };
  };

  return {
    iterate,
    handle,
    idle: async (timeoutMs) => {
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, timeoutMs);
      });
      await Promise.race([Promise.all(running), late]);
      clearTimeout(timer);
    },
  };
}
