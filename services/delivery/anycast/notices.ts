/**
 * Notices to senders (§8.1): who has taken a request. Each stands in its row until it is published.
 *
 * Invariants
 * 1. A notice leaves its row only after the stream has it; a crash between leaves it owed, and whoever publishes it
 *    again finds it behind the fence that the row has kept (`store.ts`), however late that is.
 * 2. One row is worked on once at a time here. Two daemons may both publish: the same id, the same bytes.
 * 3. What fails is tried again, later each time; what does not fit the queue is left to the sweep.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { isCode } from "../../../shared/broker/errors.ts";
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { type Principal, dotForm, parseDotForm } from "../../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../../shared/protocol/base/subjects.ts";
import { parseAnycastKey } from "../../../shared/protocol/chat/anycast.ts";
import type { CotalMessage } from "../../../shared/protocol/chat/message.ts";
import type { AnycastRow, OwedNotice } from "./row.ts";
import type { AnycastStore, Notice } from "./store.ts";

export type NoticesParts = {
  readonly store: Pick<AnycastStore, "row" | "cas" | "publish">;
  readonly space: string;
  readonly me: Principal;
  readonly onPublished: () => void;
  /** It stays owed and is tried again. */
  readonly onFailed: (cause: unknown) => void;
};

export type Notices = {
  /** The row at this key may owe some. */
  readonly owe: (key: string) => void;
  /** Publishes what this row owes, now. */
  readonly settle: (key: string) => Promise<void>;
  /** Starts nothing more; resolves when nothing runs. */
  readonly stop: () => Promise<void>;
};

const AT_ONCE = 32;
const MAX_WAITING = 10_000;
const TRIES = 5;
const FIRST_WAIT_MS = 250;

export function createNotices(parts: NoticesParts): Notices {
  const { store, onFailed, onPublished } = parts;
  const waiting = new Set<string>();
  const running = new Map<string, Promise<void>>();
  const stopping = new AbortController();

  const settle = async (key: string): Promise<void> => {
    for (;;) {
      const found = await store.row(key);
      const row = found?.row;
      const [first] = row?.owed ?? [];
      if (found === undefined || row === undefined || first === undefined) return;
      for (const owed of row.owed) {
        await store.publish(noticeOf(parts, key, row, owed));
        onPublished();
      }
      try {
        await store.cas(key, { ...row, owed: [] }, found.revision);
        return;
      } catch (error) {
        // It moved meanwhile: what it owes now is read again, and ids keep what went out from going twice.
        if (!isCode(error, ErrorCode.Conflict)) throw error;
      }
    }
  };

  const persist = async (key: string): Promise<void> => {
    for (let tries = 0; tries < TRIES && !stopping.signal.aborted; tries += 1) {
      try {
        return await settle(key);
      } catch (cause) {
        onFailed(cause);
        await sleep(FIRST_WAIT_MS * 2 ** tries, undefined, { signal: stopping.signal }).catch(() => undefined);
      }
    }
  };

  const start = (): void => {
    for (const key of waiting) {
      if (running.size >= AT_ONCE) return;
      if (running.has(key)) continue;
      waiting.delete(key);
      const one = persist(key).finally(() => {
        running.delete(key);
        start();
      });
      running.set(key, one);
    }
  };

  return {
    settle,
    owe: (key) => {
      if (stopping.signal.aborted || waiting.size >= MAX_WAITING) return;
      waiting.add(key);
      start();
    },
    stop: async () => {
      waiting.clear();
      stopping.abort();
      await Promise.all(running.values());
    },
  };
}

/** Where notices to a sender lie: nobody but the delivery service publishes there. */
export function noticeSubject({ space, me }: Pick<NoticesParts, "space" | "me">, sender: string): string {
  const to = parseDotForm(sender);
  if (to === undefined) throw new TypeError("not a principal");
  return spaceSubjects(space).inst(to, me);
}

/** The same bytes whoever makes it, and whenever: that is how a duplicate is told from a squatter's. */
function noticeOf(
  { space, me }: Pick<NoticesParts, "space" | "me">,
  key: string,
  row: AnycastRow,
  { rev, at, event, taker, previous, after }: OwedNotice,
): Notice {
  const place = parseAnycastKey(key);
  if (place === undefined) throw new TypeError(`no notice can be made of the row ${key}`);
  const { seq } = place;
  const id = `anycast.${place.epoch}.${seq}.${rev}`;
  const { role } = row;
  const cotalAnycastNotice = { seq, role, event, taker, ...(previous === undefined ? {} : { previous }) };
  const message: CotalMessage = {
    id,
    ts: at,
    space,
    from: { id: dotForm(me), name: me.actor },
    to: row.sender,
    parts: [
      { kind: "text", text: SAYS[event](role, taker.name, previous?.name ?? "another holder") },
      { kind: "data", data: { cotalAnycastNotice } },
    ],
  };
  const data = new TextEncoder().encode(JSON.stringify(message));
  return { subject: noticeSubject({ space, me }, row.sender), id, data, after };
}

const SAYS: Readonly<Record<OwedNotice["event"], (role: string, taker: string, previous: string) => string>> = {
  taken: (role, taker) => `${taker} has taken your request to ${role}`,
  redelivered: (role, taker, previous) =>
    `your request to ${role} was handed out again: ${taker} has taken it, after ${previous}`,
};
