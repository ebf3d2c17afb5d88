/**
 * The holder's rules of §8.1 over a rail that the test answers: when a request is taken, when it may be shown, what
 * becomes of a copy that is refused, and what is told when nothing can be taken.
 */
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { createEvents, type SessionEvent } from "../../shared/client/events.ts";
import { type AckSubject, type Hold, createHolds } from "../../shared/client/holds.ts";
import { Lane, createMailbox } from "../../shared/client/mailbox.ts";
import type { TakeCause } from "../../shared/client/take-causes.ts";
import type { TakeSaid } from "../../shared/client/take-rail.ts";
import { type Taker, createTaker } from "../../shared/client/takes.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import type { TakeCode, TakeRequest } from "../../shared/protocol/chat/anycast.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const ACK_WAIT_MS = 60_000;
const said = (code: TakeCode | "ok"): TakeSaid => ({
  kind: "reply",
  reply: code === "ok" ? { ok: true } : { ok: false, code, error: "x" },
});
const fault = (code: ErrorCode, outcome: Outcome = Outcome.Unknown) => new CotalError(code, "x", { outcome });

type Asked = { readonly [K in "seq" | "id" | "count" | "epoch"]: TakeRequest[K] } & {
  readonly answer: (said: TakeSaid) => void;
};

/** A holder's parts, real but for the wire. */
function rig() {
  const told: SessionEvent[] = [];
  const sent: string[] = [];
  const asked: Asked[] = [];
  const calls: string[] = [];
  let isUp = true;
  const state = {
    epoch: "T1",
    /** Answers at once, in turn; else the test answers. */
    answers: [] as (TakeCode | "ok")[],
    daemon: (command: string): unknown => {
      if (command !== "anycast-takes") throw fault(ErrorCode.Unavailable, Outcome.NotExecuted);
      return { takes: true, epoch: state.epoch };
    },
  };
  const events = createEvents((event) => told.push(event));
  const mailbox = createMailbox<string>({ liveCapacity: 10, onDropped: () => undefined });
  const publish = (subject: string, body: string) => void sent.push(`${body.split(" ")[0] ?? ""} ${subject}`);
  const holds = createHolds({
    publish,
    publishNow: publish,
    ackWaitMs: ACK_WAIT_MS,
    isUp: () => isUp,
    now: Date.now,
    onSettled: () => undefined,
    onLapsed: (id) => events.tell({ type: "lapsed", rail: "role", id }),
  });
  let ready = 0;
  const taker: Taker = createTaker({
    role: "reviewer",
    events,
    isUp: () => isUp,
    timeoutMs: 1000,
    onReady: () => void (ready += 1),
    onRetry: mailbox.retry,
    call: async (_, command) => {
      calls.push(command);
      return Promise.resolve({ data: state.daemon(command), instanceId: "i", epoch: 1 });
    },
    rail: {
      ask: ({ seq, count, id, epoch }) =>
        new Promise((answer) => {
          sent.push(`take ${seq}.${count}`);
          const one: Asked = { seq, count, id, epoch, answer };
          asked.push(one);
          const next = state.answers.shift();
          if (next !== undefined) answer(said(next));
        }),
      down: () => {
        for (const { answer } of asked) answer({ kind: "down" });
      },
      close: () => undefined,
    },
  });
  const receipt = (seq: number, count: number): AckSubject => ({
    subject: `ack${seq}.${count}`,
    info: {
      stream: "TASK",
      consumer: "svc",
      deliveryCount: count,
      streamSequence: seq,
      consumerSequence: 1,
      pending: 0,
    },
    epoch: taker.epoch(),
  });
  const identity = (id: string) => ({ key: id, same: id });
  return {
    told,
    sent,
    asked,
    calls,
    state,
    mailbox,
    holds,
    taker,
    ready: () => ready,
    /** A copy comes in. */
    arrives: (id: string, seq: number, count = 1): Hold | undefined => {
      if (holds.join(identity(id), receipt(seq, count))) return undefined;
      const hold = holds.take(identity(id), receipt(seq, count), id, { asked: true });
      mailbox.pushBehind(taker.door(hold, id), id);
      return hold;
    },
    down: () => {
      isUp = false;
      taker.down();
    },
    up: () => {
      isUp = true;
      taker.up();
    },
    causes: (): (TakeCause | "again")[] =>
      told.flatMap((event) => {
        if (event.type === "takes-nothing") return [event.cause];
        return event.type === "takes-again" ? ["again" as const] : [];
      }),
  };
}

const settle = () => vi.advanceTimersByTimeAsync(0);

/** What the reader has got: it reads on and on. */
function reading(mailbox: { next: () => Promise<string | undefined> }): string[] {
  const got: string[] = [];
  const read = async (): Promise<void> => {
    for (;;) {
      const one = await mailbox.next();
      if (one === undefined) return;
      got.push(one);
    }
  };
  void read();
  return got;
}

async function ready() {
  const one = rig();
  await one.taker.begin();
  return one;
}

describe("W81.06 taken when it is about to be shown, and not before", () => {
  test("W81.06 nothing is pulled before the queue's creation time is known, and a copy carries it", async () => {
    const one = await ready();
    expect([one.ready(), one.taker.epoch()]).toEqual([1, "T1"]);
    one.arrives("a", 1);
    reading(one.mailbox);
    expect(one.asked).toMatchObject([{ seq: 1, id: "a", count: 1, epoch: "T1" }]);
  });

  test("W81.06 a count and a preview take nothing; only a read does, and of one request at a time", async () => {
    const one = await ready();
    one.arrives("a", 1);
    one.arrives("b", 2);
    expect([one.holds.size(), one.mailbox.peek()]).toEqual([2, ["a", "b"]]);
    await vi.advanceTimersByTimeAsync(1000);
    expect(one.asked).toEqual([]);
    const first = one.mailbox.next();
    await settle();
    expect(one.asked.map(({ id }) => id)).toEqual(["a"]);
    one.asked[0]?.answer(said("ok"));
    expect(await first).toBe("a");
    await vi.advanceTimersByTimeAsync(1000);
    expect(one.asked.map(({ id }) => id)).toEqual(["a"]);
  });

  test("W81.07 its ack wait is restarted before it is asked", async () => {
    const one = await ready();
    one.arrives("a", 1);
    reading(one.mailbox);
    expect(one.sent).toEqual(["+WPI ack1.1", "take 1.1"]);
  });

  test("W81.06 one whose reader went away meanwhile stays where it was, and is taken again for the next one", async () => {
    const one = await ready();
    one.arrives("a", 1);
    const first = one.mailbox.next();
    await settle();
    one.mailbox.release();
    expect(await first).toBeUndefined();
    one.asked[0]?.answer(said("ok"));
    await settle();
    expect(one.mailbox.peek()).toEqual(["a"]);
    one.state.answers.push("ok");
    expect(await one.mailbox.next()).toBe("a");
    expect(one.asked).toHaveLength(2);
  });
});

describe("W81.05 what becomes of a refused copy", () => {
  test.each<TakeCode>(["cancelled", "taken", "gone"])(
    "W81.05 %s: it is forgotten without a word to the broker, and what came after is shown",
    async (code) => {
      const one = await ready();
      one.state.answers.push(code, "ok");
      const hold = one.arrives("a", 1);
      one.arrives("b", 2);
      const got = reading(one.mailbox);
      await settle();
      expect(got).toEqual(["b"]);
      expect(hold?.settled()).toBe(true);
      expect(one.sent.filter((line) => /ack1/.test(line))).toEqual(["+WPI ack1.1"]);
      expect(one.holds.size()).toBe(1);
    },
  );

  test("W81.05 busy: it stays unshown, and is asked for again later", async () => {
    const one = await ready();
    one.state.answers.push("busy", "ok");
    one.arrives("a", 1);
    const got = reading(one.mailbox);
    await settle();
    expect([got, one.holds.size(), one.causes()]).toEqual([[], 1, ["busy"]]);
    await vi.advanceTimersByTimeAsync(1000);
    expect([got, one.causes()]).toEqual([["a"], ["busy", "again"]]);
  });

  test("W81.08 mismatch on a stream that was made anew: the time is read, the copy given back once; it comes with the new time", async () => {
    const one = await ready();
    one.state.answers.push("mismatch");
    one.arrives("a", 1);
    one.state.epoch = "T2";
    const got = reading(one.mailbox);
    await settle();
    expect(one.sent.slice(-1)).toEqual(["-NAK ack1.1"]);
    one.state.answers.push("ok");
    one.arrives("a", 1, 2);
    await settle();
    expect(got).toEqual(["a"]);
    expect(one.asked.map(({ epoch }) => epoch)).toEqual(["T1", "T2"]);
  });

  test("W81.08 a second mismatch of it is forgotten and not given back; so is one where no time has moved", async () => {
    const one = await ready();
    one.state.answers.push("mismatch", "mismatch");
    one.arrives("a", 1);
    one.state.epoch = "T2";
    reading(one.mailbox);
    await settle();
    one.arrives("a", 1, 2);
    await settle();
    expect(one.sent.filter((line) => line.startsWith("-NAK"))).toEqual(["-NAK ack1.1"]);
    expect(one.holds.size()).toBe(0);
  });
});

describe("W81.07 shown only as the very copy that was taken", () => {
  test("W81.07 a newer delivery came while it was asked: the newer copy is taken, and shown once", async () => {
    const one = await ready();
    one.arrives("a", 1, 1);
    const got = reading(one.mailbox);
    await settle();
    one.arrives("a", 1, 2);
    one.asked[0]?.answer(said("ok"));
    await settle();
    expect(got).toEqual([]);
    expect(one.asked.map(({ count }) => count)).toEqual([1, 2]);
    one.asked[1]?.answer(said("ok"));
    await settle();
    expect(got).toEqual(["a"]);
  });

  test.each([
    ["surely", ACK_WAIT_MS],
    ["perhaps: the broker's clock began before", 0.95 * ACK_WAIT_MS],
  ])(
    "W81.07 its ack wait ran out while it was asked (%s): it is not shown, and forgotten; the broker gives it to somebody",
    async (_how, ms) => {
      const one = await ready();
      const hold = one.arrives("a", 1);
      const got = reading(one.mailbox);
      await settle();
      await vi.advanceTimersByTimeAsync(ms);
      one.asked[0]?.answer(said("ok"));
      await settle();
      expect([got, one.asked.length, hold?.settled()]).toEqual([[], 1, true]);
      expect(one.sent.filter((line) => /^(?:-NAK|\+ACK|\+TERM)/.test(line))).toEqual([]);
    },
  );

  test("W81.19 a copy that nobody reads is not renewed: its ack wait runs out, it is forgotten, and never asked for", async () => {
    const one = await ready();
    one.arrives("a", 1);
    await vi.advanceTimersByTimeAsync(ACK_WAIT_MS + 10_000);
    expect([one.sent, one.holds.size(), one.mailbox.peek()]).toEqual([[], 0, []]);
    const got = reading(one.mailbox);
    await settle();
    expect([one.asked, got]).toEqual([[], []]);
  });

  test("W81.06 once shown it is renewed while it is handled", async () => {
    const one = await ready();
    one.state.answers.push("ok");
    one.arrives("a", 1);
    reading(one.mailbox);
    await settle();
    await vi.advanceTimersByTimeAsync(2 * ACK_WAIT_MS);
    expect(one.sent.filter((line) => line.startsWith("+WPI")).length).toBeGreaterThan(4);
    expect(one.holds.size()).toBe(1);
  });

  test("W81.07 the link dropped while it was asked: the take ends with it and is asked anew on the new one; shown once", async () => {
    const one = await ready();
    one.arrives("a", 1);
    const got = reading(one.mailbox);
    await settle();
    one.down();
    await settle();
    one.asked[0]?.answer(said("ok"));
    await settle();
    expect(got).toEqual([]);
    one.state.answers.push("ok");
    one.up();
    await settle();
    expect([got, one.asked.length, one.causes()]).toEqual([["a"], 2, []]);
  });

  test("W81.07 the answer came, and the link dropped and came back before it was shown: it is taken again", async () => {
    const one = await ready();
    one.arrives("a", 1);
    const got = reading(one.mailbox);
    await settle();
    one.asked[0]?.answer(said("ok"));
    one.down();
    one.up();
    await settle();
    expect(got).toEqual([]);
    one.asked[1]?.answer(said("ok"));
    await settle();
    expect(got).toEqual(["a"]);
  });
});

describe("W81.09 while the connection is down", () => {
  test("W81.09 no request is offered or asked for, everything else is read; once it is back each is offered where it arrived", async () => {
    const one = await ready();
    one.mailbox.push(Lane.Durable, "dm1");
    one.arrives("a", 1);
    one.mailbox.push(Lane.Durable, "dm2");
    one.arrives("b", 2);
    one.mailbox.push(Lane.Live, "chat");
    one.down();
    const got: (string | undefined)[] = [];
    for (let at = 0; at < 3; at += 1) got.push(await one.mailbox.next());
    expect([got, one.asked]).toEqual([["dm1", "dm2", "chat"], []]);
    one.state.answers.push("ok", "ok");
    const rest = reading(one.mailbox);
    await settle();
    expect(rest).toEqual([]);
    one.up();
    await settle();
    expect(rest).toEqual(["a", "b"]);
  });

  test("W81.09 what arrived before a request is read before it, and what arrived after it after it", async () => {
    const one = await ready();
    one.mailbox.push(Lane.Durable, "dm1");
    one.arrives("a", 1);
    one.mailbox.push(Lane.Durable, "dm2");
    const got = reading(one.mailbox);
    await settle();
    expect(got).toEqual(["dm1"]);
    one.asked[0]?.answer(said("ok"));
    await settle();
    expect(got).toEqual(["dm1", "a", "dm2"]);
  });

  test("W81.09 one that has to wait keeps its place: what came after it is read meanwhile, and it is next once it can be taken", async () => {
    const one = await ready();
    one.state.answers.push("busy");
    one.arrives("a", 1);
    one.mailbox.push(Lane.Durable, "dm1");
    expect(await one.mailbox.next()).toBe("dm1");
    one.mailbox.push(Lane.Durable, "dm2");
    await vi.advanceTimersByTimeAsync(1000);
    one.state.answers.push("ok");
    expect([await one.mailbox.next(), await one.mailbox.next()]).toEqual(["a", "dm2"]);
  });
});

describe("W81.19 W81.20 what is told when nothing can be taken", () => {
  test.each<[string, TakeCause, (command: string) => unknown]>([
    [
      "no daemon",
      "no-daemon",
      () => {
        throw fault(ErrorCode.Unavailable, Outcome.NotExecuted);
      },
    ],
    [
      "a daemon that says it knows no such command",
      "old-daemon",
      (command) => {
        if (command === "anycast-takes") throw fault(ErrorCode.Unimplemented);
        return {};
      },
    ],
    [
      "a daemon that nobody hears on that command, but that describes itself",
      "old-daemon",
      (command) => {
        if (command === "anycast-takes") throw fault(ErrorCode.Unavailable, Outcome.NotExecuted);
        return {};
      },
    ],
    ["a daemon whose answer has another shape", "old-daemon", () => ({ takes: false })],
    [
      "a credential that may not ask",
      "old-credential",
      () => {
        throw fault(ErrorCode.PermissionDenied, Outcome.NotExecuted);
      },
    ],
    [
      "silence",
      "no-answer",
      () => {
        throw fault(ErrorCode.DeadlineExceeded);
      },
    ],
  ])(
    "W81.19 W81.20 %s: nothing is pulled, the cause and a remedy are told once, and it goes on when it can",
    async (_what, cause, daemon) => {
      const one = rig();
      const works = one.state.daemon;
      one.state.daemon = daemon;
      await one.taker.begin();
      await vi.advanceTimersByTimeAsync(30_000);
      expect([one.ready(), one.causes()]).toEqual([0, [cause]]);
      expect(one.told).toContainEqual(expect.objectContaining({ type: "takes-nothing", role: "reviewer" }));
      one.state.daemon = works;
      await vi.advanceTimersByTimeAsync(15_000);
      expect([one.ready(), one.causes()]).toEqual([1, [cause, "again"]]);
    },
  );

  test("W81.20 a take that nobody hears asks the daemon why: one that is gone, one that is old, one that is just back", async () => {
    const one = await ready();
    one.arrives("a", 1);
    const got = reading(one.mailbox);
    const works = one.state.daemon;
    const gone = (): never => {
      throw fault(ErrorCode.Unavailable, Outcome.NotExecuted);
    };
    const old = (command: string): unknown => (command === "describe" ? {} : gone());
    for (const daemon of [gone, old, works]) {
      one.state.daemon = daemon;
      one.asked.at(-1)?.answer({ kind: "nobody" });
      await vi.advanceTimersByTimeAsync(15_000);
    }
    expect(one.causes()).toEqual(["no-daemon", "old-daemon", "no-answer"]);
    one.asked.at(-1)?.answer(said("ok"));
    await settle();
    expect(got).toEqual(["a"]);
  });

  test("W81.19 a refused publish, and a take without an answer, are told apart; the copy is kept unshown", async () => {
    const one = await ready();
    one.arrives("a", 1);
    const got = reading(one.mailbox);
    await settle();
    one.asked.at(-1)?.answer({ kind: "failed", cause: "old-credential" });
    await vi.advanceTimersByTimeAsync(1000);
    one.asked.at(-1)?.answer({ kind: "failed", cause: "no-answer" });
    await settle();
    expect([one.causes(), one.holds.size(), got]).toEqual([["old-credential", "no-answer"], 1, []]);
  });
});
