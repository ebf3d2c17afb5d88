/**
 * What a session tells about itself, and what it counts.
 *
 * Invariants
 * 1. Nothing is lost, refused or delayed in silence: each such moment is an event and a count.
 * 2. No event carries a payload or a secret. A refused delivery is never charged to the sender that
 *    its subject names: worthless bytes can be forged on a live subject (`stored-copy`).
 * 3. A flood makes counts, not events: drops are told as a sum, refused deliveries at most so many a
 *    second.
 * 4. A listener that throws does not reach the wire code; a slow reader of events loses the oldest.
 */
import type { TakeCause } from "./take-causes.ts";
import type { CotalError } from "../protocol/base/errors.ts";
import type { RejectReason } from "../protocol/chat/message.ts";

/** The paths on which deliveries reach a session. */
export const Rail = {
  Chat: "chat",
  Dm: "dm",
  Role: "role",
  Durable: "durable",
  History: "history",
  Presence: "presence",
} as const;
export type Rail = (typeof Rail)[keyof typeof Rail];

export type SessionEvent =
  | { readonly type: "up"; readonly server: string }
  /** `expired`: the credential came to its end, as it must; the session comes back with the next one. */
  | { readonly type: "down"; readonly server: string; readonly expired?: true }
  | { readonly type: "retrying"; readonly failures: number; readonly waitMs: number; readonly error?: CotalError }
  /** The session stands, and the bearer that is to follow its own can't be had yet; it is asked for again. */
  | { readonly type: "unrenewed"; readonly error: CotalError; readonly waitMs: number }
  /** The broker refused something: a late subscription, a publish, a login. */
  | { readonly type: "refused"; readonly error: CotalError; readonly channel?: string }
  /** A delivery that is never shown: terminated where that is possible, and counted. */
  | {
      readonly type: "rejected";
      readonly rail: Rail;
      readonly reason: RejectReason | "presence";
      readonly detail: string;
    }
  /** Live copies that a slow reader lost; the oldest go first (§4: live is the lossy class). */
  | { readonly type: "dropped"; readonly rail: "chat"; readonly count: number }
  /** The inbox cannot be read: its durable does not answer. Not the same as "no mail" (§8). */
  | { readonly type: "durable-missing"; readonly rail: Rail; readonly durable: string }
  | { readonly type: "durable-back"; readonly rail: Rail; readonly durable: string }
  /** A copy's ack wait ran out while it waited or was being handled: it may be delivered again. */
  | { readonly type: "lapsed"; readonly rail: Rail; readonly id: string }
  /** Something weaker than asked for, said in words (§7, §8.1). */
  | { readonly type: "shortfall"; readonly subject: string; readonly message: string }
  /** Requests to the own role stay unshown: why, and what whoever runs this can do. Told when it changes. */
  | {
      readonly type: "takes-nothing";
      readonly role: string;
      readonly cause: TakeCause;
      readonly message: string;
      readonly next: string;
    }
  | { readonly type: "takes-again"; readonly role: string }
  /** A channel that was joined live has its durable backstop now (§7). */
  | { readonly type: "joined-durable"; readonly channel: string }
  | { readonly type: "replay-failed"; readonly channel: string; readonly error: CotalError }
  | { readonly type: "handler-failed"; readonly id: string; readonly error: CotalError }
  | { readonly type: "presence-unwritten"; readonly error: CotalError }
  | { readonly type: "closed"; readonly error?: CotalError };

export type SessionStats = {
  readonly published: number;
  readonly publishFailed: number;
  readonly received: Readonly<Record<"chat" | "dm" | "role", number>>;
  readonly duplicates: number;
  /** Live copies dropped because the reader was slow. */
  readonly dropped: number;
  /** Refused deliveries by reason (§5, decision H19). */
  readonly rejected: Readonly<Record<string, number>>;
  /** Items received and not yet handled. */
  readonly held: number;
  readonly acked: number;
  readonly redelivered: number;
  readonly pullsLost: number;
};

type Counter = "published" | "publishFailed" | "duplicates" | "acked" | "redelivered" | "pullsLost";

export type Events = {
  readonly tell: (event: SessionEvent) => void;
  readonly count: (what: Counter, by?: number) => void;
  readonly received: (rail: "chat" | "dm" | "role") => void;
  readonly rejected: (rail: Rail, reason: RejectReason | "presence", detail: string) => void;
  /** A live copy that a slow reader lost. */
  readonly dropped: () => void;
  readonly stats: (held: number) => SessionStats;
  readonly iterate: () => AsyncIterableIterator<SessionEvent>;
  readonly close: () => void;
};

const KEPT_EVENTS = 1000;
const REJECTIONS_TOLD_PER_SECOND = 50;
const DROPS_TOLD_EVERY_MS = 500;

export function createEvents(onEvent: ((event: SessionEvent) => void) | undefined): Events {
  const counters: Record<Counter | "dropped", number> = {
    published: 0,
    publishFailed: 0,
    duplicates: 0,
    dropped: 0,
    acked: 0,
    redelivered: 0,
    pullsLost: 0,
  };
  const received = { chat: 0, dm: 0, role: 0 };
  const rejected = new Map<string, number>();
  const readers = new Set<(event: SessionEvent | undefined) => void>();
  const tell = (event: SessionEvent): void => {
    try {
      onEvent?.(event);
    } catch {
      // A listener's fault is the listener's; the session goes on.
    }
    for (const reader of readers) reader(event);
  };
  let toldInSecond = 0;
  let second = 0;
  let dropped = 0;
  let dropTimer: NodeJS.Timeout | undefined;
  const tellDrops = (): void => {
    clearTimeout(dropTimer);
    dropTimer = undefined;
    if (dropped > 0) tell({ type: "dropped", rail: Rail.Chat, count: dropped });
    dropped = 0;
  };
  return {
    tell,
    dropped: () => {
      counters.dropped += 1;
      dropped += 1;
      dropTimer ??= setTimeout(tellDrops, DROPS_TOLD_EVERY_MS);
    },
    count: (what, by = 1) => {
      counters[what] += by;
    },
    received: (rail) => {
      received[rail] += 1;
    },
    rejected: (rail, reason, detail) => {
      rejected.set(reason, (rejected.get(reason) ?? 0) + 1);
      const now = Math.floor(performance.now() / 1000);
      if (now !== second) toldInSecond = 0;
      second = now;
      toldInSecond += 1;
      if (toldInSecond <= REJECTIONS_TOLD_PER_SECOND) tell({ type: "rejected", rail, reason, detail });
    },
    stats: (held) => ({
      ...counters,
      received: { ...received },
      rejected: Object.fromEntries(rejected),
      held,
    }),
    iterate: () => iterate(readers),
    close: () => {
      tellDrops();
      for (const reader of readers) reader(undefined);
    },
  };
}

function iterate(readers: Set<(event: SessionEvent | undefined) => void>): AsyncIterableIterator<SessionEvent> {
  const waiting: SessionEvent[] = [];
  let ended = false;
  let wake: (() => void) | undefined;
  const reader = (event: SessionEvent | undefined): void => {
    if (event === undefined) ended = true;
    else waiting.push(event);
    if (waiting.length > KEPT_EVENTS) waiting.shift();
    wake?.();
  };
  readers.add(reader);
  const next = async (): Promise<IteratorResult<SessionEvent>> => {
    for (;;) {
      const event = waiting.shift();
      if (event !== undefined) return { done: false, value: event };
      if (ended) return { done: true, value: undefined };
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  };
  return {
    next,
    return: () => {
      ended = true;
      readers.delete(reader);
      return Promise.resolve({ done: true, value: undefined });
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}
