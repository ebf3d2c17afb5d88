/**
 * The holder's side of a request to a role (§8.1): takes it with the delivery daemon when it is about to be
 * shown, and not before.
 *
 * Siblings: `take-rail.ts` asks, `take-causes.ts` says why it can't, `mailbox.ts` knows when something is about to
 * be shown, `holds.ts` knows the copy.
 *
 * Invariants
 * 1. Nothing is shown before a take of the very copy in hand was answered `ok`: the same delivery count, an ack
 *    wait that has not run out, and the same link to the broker. Otherwise the newer copy is taken.
 * 2. Nothing is asked while the connection is down. A take that waits when it drops ends with it, and is asked
 *    anew on the new link.
 * 3. A refused copy is forgotten without an ack. Only a `mismatch` of a copy that came before the queue was made
 *    anew is given back, once: it comes again carrying the new time.
 * 4. What can't be taken stays unshown, and its cause is told once, with what to do; it is asked for again later.
 */
import { CotalError, toCotalError } from "../protocol/base/errors.ts";
import { AnycastTakesAnswer } from "../protocol/endpoint/delivery-shapes.ts";
import { DeliveryCommand } from "../grants/commands.ts";
import { DESCRIBE, EndpointName } from "../protocol/endpoint/grammar.ts";
import type { Call } from "./caller.ts";
import type { Events } from "./events.ts";
import type { Hold } from "./holds.ts";
import type { Door, DoorAnswer } from "./mailbox.ts";
import { TAKE_CAUSES, type TakeCause, causeOf } from "./take-causes.ts";
import type { TakeRail } from "./take-rail.ts";

export type TakerOptions = {
  readonly role: string;
  readonly rail: TakeRail;
  readonly call: Call;
  readonly events: Events;
  readonly isUp: () => boolean;
  readonly timeoutMs: number;
  /** The queue's creation time is known, for the first time: requests may be pulled. */
  readonly onReady: () => void;
  /** What could not be taken may be asked for again. */
  readonly onRetry: () => void;
};

export type Taker = {
  /** Learns the queue's creation time: resolves after the first try, and goes on by itself. */
  readonly begin: () => Promise<void>;
  readonly epoch: () => string | undefined;
  readonly door: (hold: Hold, id: string) => Door;
  readonly down: () => void;
  readonly up: () => void;
  readonly close: () => void;
};

const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 10_000;
/** Copies of one request that are asked for in a row. */
const TRIES = 3;

export function createTaker(options: TakerOptions): Taker {
  const { role, rail, call, events, isUp, timeoutMs } = options;
  let epoch: string | undefined;
  let link = 0;
  let told: TakeCause | undefined;
  let failures = 0;
  let timer: NodeJS.Timeout | undefined;
  let closed = false;
  let reading: Promise<TakeCause | undefined> | undefined;

  const works = (): void => {
    failures = 0;
    if (told !== undefined) events.tell({ type: "takes-again", role });
    told = undefined;
  };
  const again = (): void => {
    clearTimeout(timer);
    if (!closed) void attempt();
  };
  /** Told when it begins, and asked for again later each time. */
  const rest = (cause: TakeCause | undefined): "later" => {
    if (cause !== undefined && cause !== told && !closed) {
      told = cause;
      events.tell({ type: "takes-nothing", role, cause, ...TAKE_CAUSES[cause] });
    }
    clearTimeout(timer);
    if (!closed) timer = setTimeout(again, Math.min(MAX_WAIT_MS, FIRST_WAIT_MS * 2 ** failures)).unref();
    failures += 1;
    return "later";
  };

  /** Reads the queue's creation time; says what is in the way. */
  const readTime = (): Promise<TakeCause | undefined> => (reading ??= read().finally(() => (reading = undefined)));
  const read = async (): Promise<TakeCause | undefined> => {
    try {
      const { data } = await call(EndpointName.Delivery, DeliveryCommand.AnycastTakes, {}, { deadlineMs: timeoutMs });
      const answer = AnycastTakesAnswer.safeParse(data);
      if (!answer.success) return "old-daemon";
      ({ epoch } = answer.data);
      return undefined;
    } catch (thrown) {
      const cause = causeOf(toCotalError(thrown));
      return cause === "no-daemon" && (await isServed()) ? "old-daemon" : cause;
    }
  };
  /** A daemon that does not know the command has nobody on its subject, but it describes itself. */
  const isServed = async (): Promise<boolean> => {
    try {
      await call(EndpointName.Delivery, DESCRIBE, undefined, { deadlineMs: timeoutMs });
      return true;
    } catch (thrown) {
      return !(thrown instanceof CotalError) || causeOf(thrown) === "old-daemon";
    }
  };
  const attempt = async (): Promise<void> => {
    if (epoch !== undefined) return options.onRetry();
    if (!isUp()) return;
    const cause = await readTime();
    if (closed) return;
    if (epoch === undefined) return void rest(cause);
    works();
    options.onReady();
  };

  const mismatch = async (hold: Hold): Promise<DoorAnswer> => {
    const cause = await readTime();
    if (cause !== undefined) return rest(cause);
    if (hold.settled()) return "gone";
    // Invariant 3: it comes again with the time just read, and a second mismatch finds nothing that moved.
    if (hold.copy().epoch === epoch) hold.forget();
    else hold.nak(0);
    return "gone";
  };

  const open = (hold: Hold, id: string) => async (): Promise<DoorAnswer> => {
    for (let tries = 0; tries < TRIES; tries += 1) {
      if (hold.settled()) return "gone";
      if (!isUp() || closed) return "later";
      if (!hold.isAlive()) {
        hold.forget();
        return "gone";
      }
      const copy = hold.copy();
      const asked = { link, ...copy };
      hold.renew();
      const said = await rail.ask({ seq: copy.seq, id, count: copy.count, epoch: copy.epoch ?? "" });
      if (hold.settled()) return "gone";
      if (said.kind === "down") return "later";
      if (said.kind === "nobody") return rest((await readTime()) ?? "no-answer");
      if (said.kind === "failed") return rest(said.cause);
      if (said.reply.ok) {
        works();
        const { seq, count } = hold.copy();
        if (asked.link !== link || seq !== asked.seq || count !== asked.count || !hold.isAlive()) continue;
        hold.shown();
        return "show";
      }
      const { code } = said.reply;
      if (code === "busy") return rest("busy");
      works();
      if (code === "mismatch") return mismatch(hold);
      hold.forget();
      return "gone";
    }
    return rest(undefined);
  };

  return {
    begin: attempt,
    epoch: () => epoch,
    door: (hold, id) => ({ open: open(hold, id), isGone: () => hold.settled() }),
    down: () => {
      link += 1;
      rail.down();
    },
    up: () => {
      failures = 0;
      again();
    },
    close: () => {
      closed = true;
      clearTimeout(timer);
      rail.close();
    },
  };
}
