/**
 * The bearer of one session: fetched before a dial, renewed before it ends, asked about when the broker
 * refuses it.
 *
 * ```
 * empty ──▶ held ──▶ over ──▶ held …      held ──refused──▶ suspect ──▶ held | ended      any ──▶ ended
 * ```
 *
 * Invariants
 * 1. One request at a time, whoever asks; every wait between two is drawn from a growing, jittered pace
 *    (field case 20). A 429 is a wait during which nothing is asked and nothing is dialled (§10).
 * 2. Renewal is placed from the bearer's end and not on a tick: it begins at 60 to 75 % of its life, and
 *    what fails is tried again within what is left, at least once (field case 22). A moment that was
 *    missed, because the process slept, is made up for at once.
 * 3. `current` gives nothing that is over, that the broker has refused, or that belongs to another
 *    incarnation than the first: inbox, durables and subjects of the session are that one's.
 * 4. A refusal ends the source where nothing is left to live on: until then the exchange is asked again,
 *    as a grant may come back.
 */
import type { Supply, SupplyTrouble } from "../broker/supply.ts";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../protocol/base/errors.ts";
import { type Exchanged, retryAfterMs } from "./exchange.ts";

/** Time as the source sees it; times in milliseconds. */
export type Clock = {
  /** Monotonic; it may stand still while the machine sleeps. */
  readonly now: () => number;
  /** Of the day; it may be set, back too. */
  readonly wall: () => number;
  /** Calls back once; the result takes it back. */
  readonly after: (ms: number, run: () => void) => () => void;
};

export type BearerSourceOptions = {
  /** Asks the exchange once. */
  readonly fetch: (signal: AbortSignal) => Promise<Exchanged>;
  readonly clock?: Clock;
  /** A number in [0, 1). */
  readonly random?: () => number;
};

export type BearerSource = Supply & {
  /** What to present now; throws if there is nothing. */
  readonly current: () => Exchanged;
};

/** Part of its life at which a bearer is renewed: from the first to the second. */
const RENEW_FROM = 0.6;
const RENEW_SPREAD = 0.15;
/** Renewals that failed, after which the pace alone counts: the window has seen enough of them. */
const HURRIED = 3;
/** A bearer that hardly lives is no reason to ask more often than this. */
const MIN_RENEW_MS = 5000;
const BASE_WAIT_MS = 1000;
const CAP_WAIT_MS = 30_000;
const MIN_WAIT_MS = 1000;
const MAX_ATTEMPT_MS = 10_000;
const MIN_ATTEMPT_MS = 1000;
/** How long a connection must have been taken for its next refusal to count as the first. */
const STABLE_MS = 10_000;
/** A longer timer is set in pieces, so that a machine that wakes up looks at the clock soon. */
const PIECE_MS = 15_000;

/** The exchange's word is the last one: asking again without a change changes nothing. */
const FINAL: ReadonlySet<ErrorCode> = new Set([
  ErrorCode.BadRequest,
  ErrorCode.Unauthenticated,
  ErrorCode.PermissionDenied,
  ErrorCode.NotFound,
  ErrorCode.FailedPrecondition,
  ErrorCode.Expired,
  ErrorCode.Unimplemented,
]);

type Held = { readonly got: Exchanged; readonly until: number; readonly wallUntil: number };

export function createBearerSource(options: BearerSourceOptions): BearerSource {
  const { fetch, clock = SYSTEM_CLOCK, random = Math.random } = options;
  const listeners = new Set<(trouble: SupplyTrouble) => void>();
  let held: Held | undefined;
  let first: Exchanged | undefined;
  let ended: CotalError | undefined;
  let isSuspect = false;
  let failures = 0;
  let refusals = 0;
  let acceptedAt: number | undefined;
  let limitedUntil = 0;
  let dueAt = 0;
  let unset: (() => void) | undefined;
  let abort: AbortController | undefined;
  let waiting: { readonly resolve: () => void; readonly reject: (error: CotalError) => void }[] = [];

  const leftMs = (): number =>
    held === undefined ? 0 : Math.min(held.until - clock.now(), held.wallUntil - clock.wall());
  const isLimited = (): boolean => clock.now() < limitedUntil;
  const isGood = (): boolean => ended === undefined && !isSuspect && leftMs() > 0 && !isLimited();

  const tell = (trouble: SupplyTrouble): void => {
    for (const listener of listeners) listener(trouble);
  };

  const settle = (error?: CotalError): void => {
    const woken = waiting;
    waiting = [];
    for (const { resolve, reject } of woken) {
      if (error === undefined) resolve();
      else reject(error);
    }
  };

  const end = (error: CotalError): void => {
    if (ended !== undefined) return;
    ended = error;
    held = undefined;
    unset?.();
    abort?.abort();
    settle(error);
    tell({ error, isFinal: true, failures, waitMs: 0 });
  };

  /** The next attempt is made then: one timer, whatever was planned before. */
  const plan = (ms: number): void => {
    dueAt = clock.now() + ms;
    arm();
  };

  const arm = (): void => {
    unset?.();
    unset = clock.after(Math.max(0, Math.min(dueAt - clock.now(), PIECE_MS)), () => {
      unset = undefined;
      if (ended !== undefined || abort !== undefined) return;
      if (clock.now() >= dueAt || isMissed()) void attempt();
      else arm();
    });
  };

  /** The bearer ended while nobody looked: its renewal was planned for a moment that is past. */
  const isMissed = (): boolean =>
    held !== undefined && failures === 0 && dueAt < held.until && leftMs() <= 0 && !isLimited();

  const attempt = async (): Promise<void> => {
    unset?.();
    unset = undefined;
    const own = new AbortController();
    abort = own;
    const [asked, askedWall, left] = [clock.now(), clock.wall(), leftMs()];
    const bound = Math.max(MIN_ATTEMPT_MS, left > 0 ? Math.min(MAX_ATTEMPT_MS, left / 3) : MAX_ATTEMPT_MS);
    try {
      const got = await bounded(fetch(own.signal), bound, own);
      if (ended === undefined) take(got, asked, askedWall);
    } catch (thrown) {
      if (ended === undefined) failed(toCotalError(thrown));
    } finally {
      abort = undefined;
    }
  };

  /** Settles in time, whether or not the request hears that it was given up. */
  const bounded = <T>(request: Promise<T>, ms: number, own: AbortController): Promise<T> =>
    new Promise<T>((resolve, reject) => {
      const unbound = clock.after(ms, () => own.abort());
      const givenUp = (): void => {
        unbound();
        reject(silent(ms));
      };
      own.signal.addEventListener("abort", givenUp, { once: true });
      void request.then(resolve, reject).finally(unbound);
    });

  const take = (got: Exchanged, asked: number, askedWall: number): void => {
    if (first !== undefined && (first.owner !== got.owner || first.lifecycleUid !== got.lifecycleUid)) {
      return end(another());
    }
    if (got.lifeMs <= clock.now() - asked) return failed(stillborn());
    first ??= got;
    held = { got, until: asked + got.lifeMs, wallUntil: askedWall + got.lifeMs };
    failures = 0;
    isSuspect = false;
    plan(Math.max(MIN_RENEW_MS, asked - clock.now() + got.lifeMs * (RENEW_FROM + RENEW_SPREAD * random())));
    settle();
  };

  const failed = (error: CotalError): void => {
    const left = isSuspect ? 0 : leftMs();
    if (FINAL.has(error.code) && left <= 0) return end(error);
    failures += 1;
    const away = retryAfterMs(error);
    let waitMs = backoff(failures - 1);
    if (away !== undefined) {
      waitMs = away + random() * BASE_WAIT_MS;
      limitedUntil = clock.now() + away;
    } else if (left > 0 && failures <= HURRIED) {
      waitMs = Math.max(MIN_WAIT_MS, Math.min(waitMs, left / 3));
    }
    plan(waitMs);
    settle(error);
    tell({ error, isFinal: false, failures, waitMs: Math.round(waitMs) });
  };

  /** Between a half and the whole of a growing ceiling. */
  const backoff = (after: number): number =>
    Math.min(CAP_WAIT_MS, BASE_WAIT_MS * 2 ** Math.min(after, 16)) * (0.5 + random() / 2);

  return {
    current: () => {
      if (isGood() && held !== undefined) return held.got;
      throw ended ?? nothing();
    },
    isReady: () => {
      if (isGood()) return true;
      if (ended === undefined && abort === undefined && isMissed()) void attempt();
      return false;
    },
    ready: (signal) => {
      if (isGood()) return Promise.resolve();
      if (ended !== undefined) return Promise.reject(ended);
      return new Promise((resolve, reject) => {
        const cancel = (): void => {
          waiting = waiting.filter((one) => one !== entry);
          reject(cancelled());
        };
        const done = (): void => signal?.removeEventListener("abort", cancel);
        const entry = {
          resolve: () => {
            done();
            resolve();
          },
          reject: (error: CotalError) => {
            done();
            reject(error);
          },
        };
        if (signal?.aborted === true) return reject(cancelled());
        signal?.addEventListener("abort", cancel, { once: true });
        waiting.push(entry);
        if (abort === undefined && (unset === undefined || isMissed())) void attempt();
      });
    },
    waitMs: () => (abort !== undefined || unset === undefined ? 0 : Math.max(0, Math.round(dueAt - clock.now()))),
    ended: () => ended,
    accepted: () => {
      acceptedAt = clock.now();
    },
    refused: () => {
      if (ended !== undefined || isSuspect) return;
      if (acceptedAt !== undefined && clock.now() - acceptedAt >= STABLE_MS) refusals = 0;
      acceptedAt = undefined;
      isSuspect = true;
      refusals += 1;
      // What is under way was asked for before the refusal, and may not know of it yet: it will do.
      if (abort !== undefined) return;
      plan(Math.max(refusals === 1 ? 0 : backoff(refusals - 2), limitedUntil - clock.now()));
    },
    watch: (listener) => void listeners.add(listener),
    close: () => {
      listeners.clear();
      end(closed());
    },
  };
}

const SYSTEM_CLOCK: Clock = {
  now: () => performance.now(),
  wall: () => Date.now(),
  after: (ms, run) => {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
};

const failure = (code: ErrorCode, message: string, next: string): CotalError =>
  new CotalError(code, message, { outcome: Outcome.NotExecuted, next });

const silent = (ms: number): CotalError =>
  failure(
    ErrorCode.Unavailable,
    `no bearer within ${Math.round(ms)} ms`,
    "check that the auth service runs; it is asked again",
  );

const stillborn = (): CotalError =>
  failure(
    ErrorCode.Unavailable,
    "the exchange gave a bearer that is over already",
    "compare the clocks of the auth service's machines",
  );

const another = (): CotalError =>
  failure(
    ErrorCode.FailedPrecondition,
    "this actor was enrolled anew: the session's incarnation has ended",
    "open a new session",
  );

const nothing = (): CotalError =>
  failure(ErrorCode.Unavailable, "there is no bearer to present now", "wait: the exchange is being asked");

const cancelled = (): CotalError => failure(ErrorCode.Cancelled, "the wait for a bearer was ended", "try again");
const closed = (): CotalError => failure(ErrorCode.Cancelled, "the session is closed", "open a new session");
