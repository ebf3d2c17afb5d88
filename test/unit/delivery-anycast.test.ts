/**
 * Requests to a role as the delivery daemon decides them (§8.1), over a store in memory whose every step gives
 * way: takes, cancels, statuses, notices and the sweep, in every order that a test can think of.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createNotices } from "../../services/delivery/anycast/notices.ts";
import { type Requests, createRequests } from "../../services/delivery/anycast/requests.ts";
import { type AnycastRow, MAX_OWED, type TakenRow, decideTake, keptId } from "../../services/delivery/anycast/row.ts";
import type { AnycastStore } from "../../services/delivery/anycast/store.ts";
import { KEPT_MS, sweepAnycast } from "../../services/delivery/anycast/sweep.ts";
import { createUntakenWatch } from "../../services/delivery/anycast/untaken.ts";
import { principal } from "../../shared/protocol/base/principals.ts";
import { AnycastNotice, AnycastStatus, TakeReply, anycastKey, epochToken } from "../../shared/protocol/chat/anycast.ts";
import { readDelivery } from "../../shared/protocol/chat/message.ts";
import { type MemoryAnycast, type Step, memoryAnycast } from "../support/memory-anycast.ts";
import { Died } from "../support/memory-ledger.ts";
import { seeded } from "../support/seeded.ts";

const OWNER = `u_${"a".repeat(26)}`;
const ALICE = `${OWNER}.alice`;
const ME = principal(`u_${"s".repeat(26)}`, "delivery");
const request = (id = "m1", role = "reviewer") => ({ id, role, sender: ALICE });

type Daemon = {
  readonly store: AnycastStore;
  readonly requests: Requests;
  readonly take: (
    holder: string,
    seq: number,
    change?: { count?: number; id?: string; epoch?: string; role?: string },
  ) => Promise<string>;
  readonly settled: () => Promise<void>;
  readonly sweep: () => ReturnType<typeof sweepAnycast>;
};

/** One daemon over it: what it owes is published once it is asked to settle. */
function daemon(memory: MemoryAnycast, options: Parameters<MemoryAnycast["store"]>[0] = {}, now = () => 1000): Daemon {
  const store = memory.store(options);
  const notices = createNotices({
    store,
    space: "main",
    me: ME,
    onPublished: () => undefined,
    onFailed: () => undefined,
  });
  const owed = new Set<string>();
  const requests = createRequests({
    store,
    now,
    onOwed: (key) => void owed.add(key),
    lastNotice: store.lastNotice,
  });
  return {
    store,
    requests,
    take: async (actor, seq, { count = 1, id = "m1", epoch = memory.created(), role = "reviewer" } = {}) => {
      const holder = `${OWNER}.${actor}`;
      const body = { from: { id: holder, name: actor }, seq, id, count, epoch };
      const reply = await requests.take({ role, holder, body });
      return reply.ok ? "ok" : reply.code;
    },
    settled: async () => {
      for (const key of owed) await notices.settle(key);
      owed.clear();
    },
    sweep: () => sweepAnycast({ store, requests, notices, now }),
  };
}

const keyOf = (memory: MemoryAnycast, seq: number): string => anycastKey(memory.created(), seq);
const events = (memory: MemoryAnycast) =>
  memory.notices.map(({ data, subject }) => {
    const read = readDelivery(subject, data);
    if (!read.ok) throw new Error(read.detail);
    const [, data2] = read.delivery.message.parts as unknown as [unknown, { data: unknown }];
    const { event, taker, previous } = AnycastNotice.parse(data2.data).cotalAnycastNotice;
    return [event, taker.name, ...(previous === undefined ? [] : [previous.name])].join(" ");
  });

describe("W81.11 the table of a take", () => {
  const taken = (change: Partial<TakenRow> = {}): TakenRow => ({
    v: 1,
    id: "m1",
    role: "reviewer",
    sender: ALICE,
    state: "taken",
    taker: { id: `${OWNER}.bob`, name: "bob" },
    count: 2,
    at: 1,
    rev: 1,
    owed: [],
    ...change,
  });
  const by = (actor: string, count: number) => ({ holder: { id: `${OWNER}.${actor}`, name: actor }, count });

  test("W81.10 W81.11 a higher count moves it, the same holder at the same count wins without a write, any other is refused", () => {
    fc.assert(
      fc.property(
        fc.constantFrom("bob", "carol"),
        fc.integer({ min: 1, max: 5 }),
        fc.integer({ min: 1, max: 5 }),
        (actor, held, count) => {
          const row = taken({ count: held });
          const decided = decideTake(row, request(), by(actor, count), 9);
          const isHis = actor === "bob";
          const written = { kind: "write", row: { count, at: 9, rev: isHis ? 1 : 2, taker: { name: actor } } };
          const kept = isHis && count === held ? { kind: "held" } : { kind: "refused", code: "taken" };
          expect(decided).toMatchObject(count > held ? written : kept);
        },
      ),
    );
  });

  test("W81.11 a move keeps who had it before; the same holder's next delivery keeps it too", () => {
    const moved = decideTake(taken(), request(), by("carol", 3), 9) as { row: TakenRow };
    expect(moved.row.previous).toEqual({ id: `${OWNER}.bob`, name: "bob" });
    const again = decideTake(moved.row, request(), by("carol", 4), 10) as { row: TakenRow };
    expect(again.row.previous).toEqual({ id: `${OWNER}.bob`, name: "bob" });
    expect(again.row.owed).toEqual(moved.row.owed);
  });

  test("W81.11 nothing takes a cancelled request, at any count", () => {
    const { taker: _, count: __, ...rest } = taken();
    const row: AnycastRow = { ...rest, state: "cancelled", removal: "deleted" };
    expect(decideTake(row, request(), by("bob", 9), 9)).toEqual({ kind: "refused", code: "cancelled" });
  });

  test("a row that owes as many notices as it may hold decides nothing more", () => {
    const owed = Array.from({ length: MAX_OWED }, (_, at) => ({
      rev: at + 1,
      at: 1,
      event: "redelivered" as const,
      after: 0,
      taker: { id: ALICE, name: "a" },
    }));
    expect(decideTake(taken({ owed }), request(), by("carol", 3), 9)).toEqual({ kind: "refused", code: "busy" });
  });

  test("an id as long as a message is kept as its digest", () => {
    expect(keptId("x".repeat(100_000))).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(keptId("short")).toBe("short");
  });
});

describe("W81.05 W81.04 the answers to a take", () => {
  test("W81.05 ok, taken, gone, cancelled, mismatch", async () => {
    const memory = memoryAnycast();
    const { take, requests } = daemon(memory);
    const [one, two, three] = [memory.ask(request()), memory.ask(request("m2")), memory.ask(request("m3"))];
    expect(await take("bob", one)).toBe("ok");
    expect(await take("bob", one)).toBe("ok");
    expect(await take("carol", one)).toBe("taken");
    expect(await take("carol", one, { count: 2 })).toBe("ok");
    expect(await take("bob", one, { count: 2 })).toBe("taken");
    memory.ack(one);
    expect(await take("bob", one, { count: 3 })).toBe("gone");
    await requests.cancel(ALICE, { seq: two });
    expect(await take("bob", two, { id: "m2" })).toBe("cancelled");
    expect(await take("bob", three, { id: "other" })).toBe("mismatch");
    expect(await take("bob", three, { id: "m3", role: "writer" })).toBe("mismatch");
    expect(await take("bob", 99)).toBe("gone");
  });

  test("W81.04 a copy of a stream that was made anew takes nothing, though the same sequence, role and id are there", async () => {
    const memory = memoryAnycast();
    const { take } = daemon(memory);
    const old = memory.created();
    memory.ask(request());
    memory.recreate();
    const seq = memory.ask(request());
    expect(await take("bob", seq, { epoch: old })).toBe("mismatch");
    expect(await take("bob", seq)).toBe("ok");
  });

  test.each(["created", "request", "row"])(
    "W81.04 the stream is made anew at the step %s of a take: mismatch, and no row of either stream",
    async (at) => {
      const memory = memoryAnycast();
      memory.ask(request());
      let done = false;
      const step: Step = (name) => {
        if (name !== at || done) return;
        done = true;
        memory.recreate();
        memory.ask(request());
      };
      const before = memory.created();
      expect(await daemon(memory, { step }).take("bob", 1, { epoch: before })).toBe("mismatch");
      expect(memory.keys()).toEqual([]);
    },
  );

  test("W81.04 a stream made anew again and again is no answer: the take is not decided", async () => {
    const memory = memoryAnycast();
    memory.ask(request());
    const step: Step = (name) => {
      if (name === "request") memory.recreate();
    };
    await expect(daemon(memory, { step }).take("bob", 1)).rejects.toMatchObject({ code: "unavailable" });
  });

  test("a request that breaks the contract is nobody's to take; its sender can still take it back", async () => {
    const memory = memoryAnycast();
    const { take, requests } = daemon(memory);
    const seq = memory.ask({ role: "reviewer", sender: ALICE, id: undefined });
    expect(await take("bob", seq)).toBe("mismatch");
    expect(await requests.cancel(ALICE, { seq })).toMatchObject({ state: "cancelled", removal: "deleted" });
  });

  test("a write whose answer was lost is read, not guessed: the take wins once", async () => {
    const memory = memoryAnycast();
    const seq = memory.ask(request());
    const lossy = daemon(memory, { fault: { at: 1, when: "answer lost" } });
    expect(await lossy.take("bob", seq)).toBe("ok");
    await lossy.settled();
    expect(events(memory)).toEqual(["taken bob"]);
  });
});

describe("W81.10 races", () => {
  /** Steps of both sides end in an order that the round's own seed draws. */
  const racing = (round: number) => {
    const draw = seeded(round + 1);
    return async (): Promise<void> => {
      for (let turns = draw.int(0, 5); turns > 0; turns -= 1) await Promise.resolve();
    };
  };

  test("W81.10 W81.17 take against cancel, 1,000 rounds: one winner, a truthful status, at most one notice", async () => {
    const won = { take: 0, cancel: 0 };
    for (let round = 0; round < 1000; round += 1) {
      const memory = memoryAnycast();
      const seq = memory.ask(request());
      const [one, two] = [daemon(memory, { pause: racing(round) }), daemon(memory, { pause: racing(round + 5000) })];
      const [took, cancelled] = await Promise.all([one.take("bob", seq), two.requests.cancel(ALICE, { seq })]);
      const isTaken = took === "ok";
      won[isTaken ? "take" : "cancel"] += 1;
      expect(cancelled.state).toBe(isTaken ? "taken" : "cancelled");
      expect(["ok", "cancelled"]).toContain(took);
      expect(memory.queued(seq)).toBe(isTaken);
      expect(await one.requests.status(ALICE, { seq })).toEqual(cancelled);
      await one.settled();
      expect(events(memory)).toEqual(isTaken ? ["taken bob"] : []);
    }
    expect(won.take).toBeGreaterThan(50);
    expect(won.cancel).toBeGreaterThan(50);
  });

  test("W81.10 W81.17 two takes of one count: one winner, one notice that names it", async () => {
    const won = { bob: 0, carol: 0 };
    for (let round = 0; round < 300; round += 1) {
      const memory = memoryAnycast();
      const seq = memory.ask(request());
      const [one, two] = [daemon(memory, { pause: racing(round) }), daemon(memory, { pause: racing(round + 5000) })];
      const took = await Promise.all([one.take("bob", seq), two.take("carol", seq)]);
      expect(took.toSorted()).toEqual(["ok", "taken"]);
      const winner = took[0] === "ok" ? "bob" : "carol";
      won[winner] += 1;
      await Promise.all([one.settled(), two.settled()]);
      expect(events(memory)).toEqual([`taken ${winner}`]);
      expect(await one.requests.status(ALICE, { seq })).toMatchObject({ state: "taken", taker: { name: winner } });
    }
    expect(Math.min(won.bob, won.carol)).toBeGreaterThan(20);
  });

  test("W81.11 W81.17 a redelivery against the first take: the later count has it, and each transition is told once", async () => {
    for (let round = 0; round < 300; round += 1) {
      const memory = memoryAnycast();
      const seq = memory.ask(request());
      const [one, two] = [daemon(memory, { pause: racing(round) }), daemon(memory, { pause: racing(round + 5000) })];
      const [first, later] = await Promise.all([one.take("bob", seq), two.take("carol", seq, { count: 2 })]);
      expect(later).toBe("ok");
      await Promise.all([one.settled(), two.settled()]);
      expect(events(memory)).toEqual(first === "ok" ? ["taken bob", "redelivered carol bob"] : ["taken carol"]);
      expect(await one.requests.status(ALICE, { seq })).toMatchObject({ state: "taken", taker: { name: "carol" } });
    }
  });

  test("W81.16 two cancels of one request: both tell the same end of it", async () => {
    for (let round = 0; round < 200; round += 1) {
      const memory = memoryAnycast();
      const seq = memory.ask(request());
      const both = [daemon(memory, { pause: racing(round) }), daemon(memory, { pause: racing(round + 5000) })];
      const ended = await Promise.all(both.map(({ requests }) => requests.cancel(ALICE, { seq })));
      expect(ended.map(({ state }) => state)).toEqual(["cancelled", "cancelled"]);
      expect(memory.queued(seq)).toBe(false);
    }
  });
});

describe("W81.15 W81.14 what a sender reads", () => {
  test("W81.15 every state, and each is a lawful status", async () => {
    const memory = memoryAnycast();
    const { take, requests } = daemon(memory);
    const seen = async (seq: number, id?: string) =>
      AnycastStatus.parse(await requests.status(ALICE, { seq, ...(id === undefined ? {} : { id }) }));
    const seq = memory.ask(request());
    expect(await seen(seq)).toEqual({ state: "waiting", seq, role: "reviewer" });
    await take("bob", seq);
    const bob = { id: `${OWNER}.bob`, name: "bob" };
    expect(await seen(seq)).toEqual({ state: "taken", seq, role: "reviewer", taker: bob, at: 1000 });
    await take("carol", seq, { count: 2 });
    expect(await seen(seq)).toMatchObject({ state: "taken", taker: { name: "carol" }, previous: bob });
    memory.ack(seq);
    expect(await seen(seq)).toMatchObject({ state: "taken", taker: { name: "carol" } });
    const two = memory.ask(request("m2"));
    expect(await requests.cancel(ALICE, { seq: two })).toEqual({
      state: "cancelled",
      seq: two,
      role: "reviewer",
      removal: "deleted",
    });
    const three = memory.ask(request("m3"));
    memory.ack(three);
    expect(await seen(three)).toEqual({ state: "unknown", seq: three });
    expect(await requests.cancel(ALICE, { seq: three })).toEqual({ state: "unknown", seq: three });
  });

  test("W81.14 another's request reads unknown, is not cancelled, and an id pins the request", async () => {
    const memory = memoryAnycast();
    const { requests, take } = daemon(memory);
    const mallory = `${OWNER}.mallory`;
    const seq = memory.ask(request());
    expect(await requests.status(mallory, { seq })).toEqual({ state: "unknown", seq });
    expect(await requests.cancel(mallory, { seq })).toEqual({ state: "unknown", seq });
    expect(memory.queued(seq)).toBe(true);
    expect(await requests.status(ALICE, { seq, id: "another" })).toEqual({ state: "unknown", seq });
    expect(await requests.cancel(ALICE, { seq, id: "another" })).toEqual({ state: "unknown", seq });
    await take("bob", seq);
    expect(await requests.status(mallory, { seq })).toEqual({ state: "unknown", seq });
    expect(await requests.cancel(mallory, { seq })).toEqual({ state: "unknown", seq });
    expect(await requests.status(ALICE, { seq, id: "m1" })).toMatchObject({ state: "taken" });
    expect(await requests.status(ALICE, { seq, id: "another" })).toEqual({ state: "unknown", seq });
  });

  test("W81.15 W81.16 a removal that a recreated stream left pending reads already-gone, and the newer request waits", async () => {
    const memory = memoryAnycast();
    const seq = memory.ask(request());
    const dying = daemon(memory, { fault: { at: 1, when: "after" } });
    await expect(dying.requests.cancel(ALICE, { seq })).rejects.toBeInstanceOf(Died);
    memory.recreate();
    const { requests, sweep } = daemon(memory);
    const gone = { state: "cancelled", seq, role: "reviewer", removal: "already-gone" };
    expect(await requests.status(ALICE, { seq })).toEqual(gone);
    memory.ask(request("m2"));
    expect(await requests.status(ALICE, { seq, id: "m1" })).toEqual(gone);
    expect(await requests.status(ALICE, { seq })).toMatchObject({ state: "waiting" });
    await sweep();
    expect(memory.queued(seq)).toBe(true);
    expect(await requests.status(ALICE, { seq, id: "m1" })).toEqual(gone);
    expect(await requests.cancel(ALICE, { seq, id: "m1" })).toEqual(gone);
    expect(memory.queued(seq)).toBe(true);
  });

  test("W81.13 after a restore the queue has a new creation time, no row matches, and the request waits until it is taken", async () => {
    const memory = memoryAnycast();
    const { requests, take } = daemon(memory);
    const seq = memory.ask(request());
    await take("bob", seq, { count: 4 });
    memory.recreate();
    expect(memory.ask(request())).toBe(seq);
    expect(await requests.status(ALICE, { seq })).toEqual({ state: "waiting", seq, role: "reviewer" });
    expect(await take("carol", seq, { count: 1 })).toBe("ok");
    expect(await requests.status(ALICE, { seq })).toMatchObject({ state: "taken", taker: { name: "carol" } });
  });
});

describe("W81.16 W81.17 a crash between any two steps", () => {
  test.each(["before", "after", "answer lost"] as const)(
    "W81.16 a cancel that ends %s each of its writes is finished by the next one",
    async (when) => {
      for (let at = 1; at <= 3; at += 1) {
        const memory = memoryAnycast();
        const seq = memory.ask(request());
        await daemon(memory, { fault: { at, when } })
          .requests.cancel(ALICE, { seq })
          .catch(() => undefined);
        const ended = await daemon(memory).requests.cancel(ALICE, { seq });
        expect(ended).toMatchObject({ state: "cancelled" });
        expect(["deleted", "already-gone"]).toContain(ended.state === "cancelled" ? ended.removal : "");
        expect(memory.queued(seq)).toBe(false);
        expect(await daemon(memory).take("bob", seq)).toBe("cancelled");
      }
    },
  );

  test.each(["before", "after", "answer lost"] as const)(
    "W81.17 a take whose daemon ends %s each of its writes: the sender is told exactly once of what stands",
    async (when) => {
      for (let at = 1; at <= 3; at += 1) {
        const memory = memoryAnycast();
        const seq = memory.ask(request());
        const dying = daemon(memory, { fault: { at, when } });
        await (async () => {
          await dying.take("bob", seq);
          await dying.settled();
        })().catch(() => undefined);
        const next = daemon(memory);
        await next.sweep();
        expect(await next.take("bob", seq)).toBe("ok");
        await next.settled();
        await next.sweep();
        expect(events(memory)).toEqual(["taken bob"]);
        expect(memory.row(keyOf(memory, seq))?.owed).toEqual([]);
      }
    },
  );

  test("W81.17 a notice is a direct message of the daemon's, under the id of its transition", async () => {
    const memory = memoryAnycast();
    const seq = memory.ask(request());
    const one = daemon(memory);
    await one.take("bob", seq);
    await one.take("carol", seq, { count: 2 });
    await one.settled();
    const epoch = epochToken(memory.created());
    expect(memory.notices.map(({ id }) => id)).toEqual([`anycast.${epoch}.${seq}.1`, `anycast.${epoch}.${seq}.2`]);
    const [first] = memory.notices;
    const read = readDelivery(first?.subject ?? "", first?.data ?? new Uint8Array());
    expect(read).toMatchObject({
      ok: true,
      delivery: {
        kind: "dm",
        from: `${ME.owner}.delivery`,
        target: ALICE,
        message: {
          id: `anycast.${epoch}.${seq}.1`,
          parts: [
            { kind: "text" },
            {
              kind: "data",
              data: { cotalAnycastNotice: { seq, role: "reviewer", event: "taken", taker: { name: "bob" } } },
            },
          ],
        },
      },
    });
  });
});

describe("W81.12 the sweep", () => {
  test("W81.12 a row goes a day after it was first found off the queue, and never while the request is queued", async () => {
    const memory = memoryAnycast();
    let now = 1_000_000;
    const { take, settled, sweep } = daemon(memory, {}, () => now);
    const [kept, done] = [memory.ask(request()), memory.ask(request("m2"))];
    await take("bob", kept);
    await take("bob", done, { id: "m2" });
    await settled();
    now += 30 * KEPT_MS;
    memory.ack(done);
    expect(await sweep()).toMatchObject({ rows: 2, removed: 0 });
    now += KEPT_MS - 1;
    expect(await sweep()).toMatchObject({ removed: 0 });
    now += 1;
    expect(await sweep()).toMatchObject({ removed: 1 });
    expect(memory.keys()).toEqual([keyOf(memory, kept)]);
    memory.recreate();
    await sweep();
    now += KEPT_MS;
    expect(await sweep()).toMatchObject({ removed: 1 });
    expect(memory.keys()).toEqual([]);
  });

  test("W81.12 a row that owes a notice stays until it is published; a clock that was set back removes nothing", async () => {
    const memory = memoryAnycast();
    let now = 1_000_000;
    const one = daemon(memory, {}, () => now);
    const seq = memory.ask(request());
    await one.take("bob", seq);
    memory.ack(seq);
    expect(memory.notices).toEqual([]);
    await one.sweep();
    expect(events(memory)).toEqual(["taken bob"]);
    await one.sweep();
    now -= 5 * KEPT_MS;
    expect(await one.sweep()).toMatchObject({ removed: 0 });
  });

  test("W81.12 a row that moved while it was swept stays: what is removed is pinned", async () => {
    const memory = memoryAnycast();
    let now = 1_000_000;
    const seq = memory.ask(request());
    const first = daemon(memory, {}, () => now);
    await first.take("bob", seq);
    await first.settled();
    memory.ack(seq);
    await first.sweep();
    now += KEPT_MS;
    const key = keyOf(memory, seq);
    let moved = false;
    const other = memory.store();
    const step: Step = async (name) => {
      if (name !== "remove" || moved) return;
      moved = true;
      const found = await other.row(key);
      if (found?.row !== undefined) await other.cas(key, found.row, found.revision);
    };
    await daemon(memory, { step }, () => now).sweep();
    expect(memory.row(key)).toBeDefined();
  });
});

test("every answer is a lawful reply of the wire", async () => {
  const memory = memoryAnycast();
  const { requests } = daemon(memory);
  const body = { from: { id: ALICE, name: "a" }, seq: 1, id: "x", count: 1, epoch: "e" };
  expect(TakeReply.safeParse(await requests.take({ role: "r", holder: ALICE, body })).success).toBe(true);
});

describe("deliveries that nobody takes", () => {
  const map = (entries: Record<string, number>) => new Map(Object.entries(entries));

  test("they are told when two sweeps in a row have seen them, and not for a moment", () => {
    const watch = createUntakenWatch();
    expect(watch.look(map({ a: 3, b: 1, c: 2 }), map({ a: 1, c: 2 }))).toEqual([]);
    expect(watch.look(map({ a: 5, b: 0, c: 3 }), map({ a: 2, c: 2 }))).toEqual([{ role: "a", count: 2 }]);
    expect(watch.look(map({ a: 0, c: 3 }), map({ c: 1 }))).toEqual([{ role: "c", count: 1 }]);
    expect(watch.look(map({}), map({ a: 9 }))).toEqual([]);
  });

  test("the sweep counts what is taken and still queued, by role", async () => {
    const memory = memoryAnycast();
    const one = daemon(memory);
    const asked = [
      memory.ask(request()),
      memory.ask(request()),
      memory.ask(request("m1", "writer")),
      memory.ask(request()),
    ];
    for (const seq of asked.slice(0, 2)) await one.take("bob", seq);
    await one.take("bob", asked[2] ?? 0, { role: "writer" });
    await one.settled();
    memory.ack(asked[1] ?? 0);
    expect((await one.sweep()).taken).toEqual(map({ reviewer: 1, writer: 1 }));
  });
});
