/**
 * Single pulls of one durable, several outstanding (decision H62).
 *
 * Invariants
 * 1. The loop holds its own subscription: a pulled message keeps its stored subject, so a muxed
 *    request never sees it. The subject token can't be guessed.
 * 2. No more pulls are out than there is room for: back-pressure, never drop-after-ack.
 * 3. Few pulls are out at rest and many under load. All are short: one that is lost is noticed soon,
 *    and what a dying connection is given is late by a whole ack wait.
 * 4. What brings nothing new is fetched once a second and no more: a durable whose state moves is written to
 *    the broker's disk at every tenth of a second in which it moved, for every member (measured: half of a broker's time).
 * 5. "Nothing there" is said only after an answer of the durable that exists now (§8). No answer,
 *    twice, or the broker's no-responders, is the named state `missing`; pulls go on meanwhile, so
 *    it ends by itself when the durable is back. Silence counts only while the broker itself answers: one
 *    that is frozen says nothing about a durable.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { statusOf } from "./wire.ts";

export type PullState = "unknown" | "ok" | "missing";

export type PullOptions = {
  readonly nc: NatsConnection;
  /** Asks for one message, or a status, at this subject. */
  readonly pull: (reply: string) => void;
  /** A subject prefix in the own inbox. */
  readonly replyLead: string;
  readonly expiresMs: number;
  readonly maxOutstanding: number;
  /** How many more messages may be taken now. */
  readonly room: () => number;
  readonly isUp: () => boolean;
  /** Says how many more wait where it brought nothing new; `undefined` for what is new, or tells nothing. */
  readonly onMessage: (message: Msg) => number | undefined;
  readonly onState: (state: PullState, before: PullState) => void;
  readonly onLost: (count: number) => void;
  /** Monotonic milliseconds. */
  readonly now: () => number;
};

export type PullLoop = {
  /** Room was freed, or the connection is back. */
  readonly kick: () => void;
  /** The connection came back: what was out may be gone. */
  readonly reconnected: () => void;
  readonly state: () => PullState;
  /**
   * Makes no more pulls, and resolves when each that is out was answered or has expired: a message
   * that still comes is handed on.
   */
  readonly stop: () => Promise<void>;
};

/** How long after its expiry a pull's status may take before the pull counts as lost. */
const GRACE_MS = 2000;
const RETRY_MS = 250;
/** How long the broker's no-responders must last: a leader that moves looks the same. */
const MISSING_AFTER_MS = 1500;
const TICK_MS = 250;
/** A little less than four ticks: the fourth one fetches. */
const REST_MS = 4 * TICK_MS - 50;
const STOP_MARGIN_MS = 100;
const STOP_LOOK_MS = 10;

export function createPullLoop(options: PullOptions): PullLoop {
  const { nc, now } = options;
  /** Number of each pull that is out, and when its answer is overdue; oldest first. */
  const out = new Map<number, number>();
  let number = 0;
  let window = 1;
  let state: PullState = "unknown";
  let refusedSince: number | undefined;
  let silent = 0;
  let answers = 0;
  let suspecting = false;
  let notBefore = 0;
  let stopping = false;

  const subscription = nc.subscribe(`${options.replyLead}*`, {
    callback: (error, message) => {
      if (error === null) receive(message);
    },
  });

  const become = (next: PullState): void => {
    if (state === next) return;
    const before = state;
    state = next;
    options.onState(next, before);
  };
  const answered = (): void => {
    refusedSince = undefined;
    silent = 0;
    answers += 1;
    become("ok");
  };
  const refusedNow = (): void => {
    refusedSince ??= now();
    notBefore = now() + RETRY_MS;
    window = 1;
    if (now() - refusedSince >= MISSING_AFTER_MS) become("missing");
  };

  /** What waits is fetched in one go, and then nothing for a moment. */
  const rest = (left: number): void => {
    window = Math.max(1, Math.min(options.maxOutstanding, left));
    if (left === 0) notBefore = now() + REST_MS;
  };
  const fill = (): void => {
    if (stopping || !options.isUp() || now() < notBefore) return;
    const want = Math.min(window, options.room());
    while (out.size < want) {
      number += 1;
      out.set(number, now() + options.expiresMs + GRACE_MS);
      options.pull(options.replyLead + number);
    }
  };
  const receive = (message: Msg): void => {
    // A message has the subject that it was stored under: only an answer about a pull has the pull's.
    const code = message.subject.startsWith(options.replyLead) ? statusOf(message) : undefined;
    if (code !== undefined) {
      out.delete(Number(message.subject.slice(options.replyLead.length)));
      onStatus(code);
    } else {
      // The broker serves waiting pulls in turn, so it was the oldest that was served.
      const [oldest] = out.keys();
      if (oldest !== undefined) out.delete(oldest);
      answered();
      const left = options.onMessage(message);
      if (left === undefined) window = Math.min(options.maxOutstanding, window * 2);
      else rest(left);
    }
    fill();
  };
  const onStatus = (code: number): void => {
    if (code === 408) {
      // Expired: the durable answered that there is nothing.
      answered();
      window = Math.max(1, Math.floor(window / 2));
    } else if (code === 409) {
      // Deleted, moved or too many pulls: the next pull tells.
      notBefore = now() + RETRY_MS;
      window = 1;
    } else {
      refusedNow();
    }
  };

  const tick = (): void => {
    const time = now();
    let lost = 0;
    for (const [pull, overdue] of out) {
      if (overdue > time) break;
      out.delete(pull);
      lost += 1;
    }
    if (lost > 0 && options.isUp()) {
      options.onLost(lost);
      void suspect();
    }
    fill();
  };
  /** One silence more, unless the broker is as silent or the durable answers meanwhile. */
  const suspect = async (): Promise<void> => {
    if (suspecting) return;
    suspecting = true;
    const before = answers;
    try {
      await nc.flush();
      if (answers !== before || stopping) return;
      silent += 1;
      if (silent >= 2) become("missing");
    } catch {
      // The connection went: what was out is asked again once it is back.
    } finally {
      suspecting = false;
    }
  };
  const timer = setInterval(tick, TICK_MS);

  return {
    kick: fill,
    reconnected: () => {
      out.clear();
      silent = 0;
      refusedSince = undefined;
      notBefore = 0;
      fill();
    },
    state: () => state,
    stop: async () => {
      stopping = true;
      // A pull can't be taken back: across the import the broker forgets one that nobody listens to
      // only at some later moment (measured), and what it is given until then is late by an ack wait.
      // Once expired it is given nothing, though its status may be a second late.
      const isLive = (overdue: number): boolean => overdue - GRACE_MS + STOP_MARGIN_MS > now();
      while (options.isUp() && [...out.values()].some(isLive)) await sleep(STOP_LOOK_MS);
      clearInterval(timer);
      await subscription.drain();
    },
  };
}
