/** The small parts of a session, each on its own: mailbox, memory of ids, events. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createEvents } from "../../shared/client/events.ts";
import { Lane, createMailbox } from "../../shared/client/mailbox.ts";
import { createSeen, seenKey } from "../../shared/client/seen.ts";
import { type Holds, createHolds } from "../../shared/client/holds.ts";
import { pooledRandom } from "../../shared/client/random.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { readDelivery } from "../../shared/protocol/chat/message.ts";

describe("the mailbox", () => {
  test("keeps arrival order over its lanes, and drops the oldest live entries only", async () => {
    const lanes = fc.array(fc.constantFrom(Lane.Durable, Lane.History, Lane.Live), { maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(lanes, fc.integer({ min: 1, max: 10 }), async (pushed, liveCapacity) => {
        const dropped: number[] = [];
        const mailbox = createMailbox<number>({ liveCapacity, onDropped: (entry) => dropped.push(entry) });
        for (const [index, lane] of pushed.entries()) mailbox.push(lane, index);
        const live = pushed.flatMap((lane, index) => (lane === Lane.Live ? [index] : []));
        expect(dropped).toEqual(live.slice(0, Math.max(0, live.length - liveCapacity)));
        const kept = pushed.map((_, index) => index).filter((index) => !dropped.includes(index));
        const read: (number | undefined)[] = [];
        for (const _ of kept) read.push(await mailbox.next());
        expect(read).toEqual(kept);
      }),
    );
  });

  test("hands a failure to the reader once, and reading goes on after it", async () => {
    const mailbox = createMailbox<string>({ liveCapacity: 1, onDropped: () => undefined });
    const waiting = mailbox.next();
    mailbox.fail(new CotalError(ErrorCode.NotFound, "gone"));
    await expect(waiting).rejects.toMatchObject({ code: "not-found" });
    mailbox.push(Lane.Durable, "back");
    expect(await mailbox.next()).toBe("back");
    mailbox.fail(new CotalError(ErrorCode.NotFound, "gone"));
    mailbox.recover();
    mailbox.push(Lane.Durable, "fine");
    expect(await mailbox.next()).toBe("fine");
  });

  test("what is there is read before a failure is told, and a close returns what nobody took", async () => {
    const mailbox = createMailbox<string>({ liveCapacity: 5, onDropped: () => undefined });
    mailbox.push(Lane.Durable, "a");
    mailbox.fail(new CotalError(ErrorCode.NotFound, "gone"));
    expect(await mailbox.next()).toBe("a");
    await expect(mailbox.next()).rejects.toMatchObject({ code: "not-found" });
    mailbox.push(Lane.Live, "b");
    expect(mailbox.close()).toEqual(["b"]);
    expect(await mailbox.next()).toBeUndefined();
  });

  test("a lane's source waits for room, and is let go by a close", async () => {
    const mailbox = createMailbox<number>({ liveCapacity: 5, onDropped: () => undefined });
    for (let n = 0; n < 3; n += 1) mailbox.push(Lane.History, n);
    let roomy = false;
    void mailbox.room(Lane.History, 3).then(() => (roomy = true));
    await Promise.resolve();
    expect(roomy).toBe(false);
    await mailbox.next();
    await Promise.resolve();
    expect(roomy).toBe(true);
    const released = mailbox.room(Lane.History, 1);
    mailbox.close();
    await expect(released).resolves.toBeUndefined();
  });
});

describe("W4.10: what was seen", () => {
  const delivery = (id: string, from = "local.eve", subject = `cotal.main.chat.${from}.x`) => {
    const body = { id, ts: 1, space: "main", from: { id: from, name: "e" }, channel: "x", parts: [] };
    const read = readDelivery(subject, new TextEncoder().encode(JSON.stringify(body)));
    if (!read.ok) throw new Error(read.detail);
    return read.delivery;
  };

  test("is told apart by kind, sender and id, whatever an id holds; an empty id has no key", () => {
    expect(seenKey(delivery(""))).toBeUndefined();
    const ids = fc.string({ unit: "binary", minLength: 1, maxLength: 400 }).filter((id) => id.isWellFormed());
    fc.assert(
      fc.property(
        ids,
        ids,
        fc.constantFrom("local.eve", "local.fay"),
        fc.constantFrom("local.eve", "local.fay"),
        (a, b, x, y) => {
          expect(seenKey(delivery(a, x)) === seenKey(delivery(b, y))).toBe(a === b && x === y);
          expect((seenKey(delivery(a, x)) ?? "").length).toBeLessThan(300);
        },
      ),
    );
    expect(seenKey(delivery("a", "local.eve", "cotal.main.svc.r.local.eve"))).not.toBe(seenKey(delivery("a")));
  });

  test("is bounded, and forgets the oldest", () => {
    const keys = Array.from({ length: 100 }, (_, n) => String(n));
    for (let n = 0; n < keys.length; n += 1) {
      // Made anew each time: to be asked for is to be used.
      const seen = createSeen(3);
      for (const key of keys.slice(0, n + 1)) seen.add(key);
      const known = keys
        .slice(0, n + 1)
        .toReversed()
        .filter(seen.has)
        .toReversed();
      expect(known.slice(-3)).toEqual(keys.slice(Math.max(0, n - 2), n + 1));
      expect(known.length).toBeLessThanOrEqual(6);
    }
  });

  test("what is asked for stays, and what is forgotten is gone", () => {
    const seen = createSeen(3);
    seen.add("used");
    for (let n = 0; n < 20; n += 1) {
      seen.add(String(n));
      expect(seen.has("used")).toBe(true);
    }
    for (const key of ["used", "19"]) {
      seen.forget(key);
      expect(seen.has(key)).toBe(false);
    }
  });
});

describe("copies in hand", () => {
  const info = { stream: "S", consumer: "c", deliveryCount: 1, streamSequence: 1, consumerSequence: 1, pending: 0 };
  function hands(up = true): { holds: Holds; sent: string[]; clock: { now: number; up: boolean }; lapsed: string[] } {
    const clock = { now: 0, up };
    const sent: string[] = [];
    const lapsed: string[] = [];
    const holds = createHolds({
      publishNow: () => undefined,
      publish: (subject, body) => sent.push(`${subject} ${body.split(" ")[0]}`),
      ackWaitMs: 60,
      isUp: () => clock.up,
      now: () => clock.now,
      onSettled: () => undefined,
      onLapsed: (label) => lapsed.push(label),
    });
    return { holds, sent, clock, lapsed };
  }
  const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

  test("W8.16: are renewed within their wait, and left alone once it may have run out", async () => {
    const { holds, sent, clock, lapsed } = hands();
    holds.take({ key: "k", same: "k" }, { subject: "r1", info }, "m");
    clock.now = 25;
    await pause(30);
    expect(sent).toEqual(["r1 +WPI"]);
    clock.now = 100;
    await pause(30);
    clock.now = 130;
    await pause(30);
    expect(sent).toEqual(["r1 +WPI"]);
    expect(lapsed).toEqual(["m"]);
    holds.stop();
  });

  test("no renewal counts while the connection is down", async () => {
    const { holds, sent, clock, lapsed } = hands(false);
    holds.take({ key: "k", same: "k" }, { subject: "r1", info }, "m");
    clock.now = 30;
    await pause(30);
    clock.now = 61;
    await pause(30);
    expect(sent).toEqual([]);
    expect(lapsed).toEqual(["m"]);
    holds.stop();
  });

  test("a copy that joins is settled with the first, once", () => {
    const { holds, sent } = hands();
    const hold = holds.take({ key: "k", same: "k" }, { subject: "r1", info }, "m");
    const shown = { deliveries: 1 };
    hold.counts(shown);
    expect(
      holds.join({ key: "k", same: "k" }, { subject: "r2", info: { ...info, streamSequence: 9, deliveryCount: 2 } }),
    ).toBe(true);
    expect(holds.join({ key: undefined, same: "other" }, { subject: "r3", info })).toBe(false);
    expect(shown.deliveries).toBe(2);
    hold.ack();
    hold.nak(0);
    expect(sent).toEqual(["r1 +ACK", "r2 +ACK"]);
    expect(holds.size()).toBe(0);
    holds.stop();
  });
});

describe("events", () => {
  test("a flood of refused deliveries is counted whole and told in part", () => {
    const told: unknown[] = [];
    const events = createEvents((event) => told.push(event));
    for (let n = 0; n < 5000; n += 1) events.rejected("chat", "malformed-json", "x");
    expect(events.stats(0).rejected).toEqual({ "malformed-json": 5000 });
    expect(told.length).toBeGreaterThan(0);
    expect(told.length).toBeLessThan(500);
  });

  test("drops are told as a sum, and a listener that throws harms nobody", async () => {
    const told: unknown[] = [];
    const events = createEvents((event) => {
      told.push(event);
      throw new Error("listener");
    });
    for (let n = 0; n < 100; n += 1) events.dropped();
    events.close();
    expect(told).toEqual([{ type: "dropped", rail: "chat", count: 100 }]);
    expect(events.stats(0).dropped).toBe(100);
  });

  test("an iterator gets what comes after it began, and ends with the session", async () => {
    const events = createEvents(undefined);
    const iterator = events.iterate();
    events.tell({ type: "up", server: "s" });
    expect(await iterator.next()).toMatchObject({ value: { type: "up" } });
    const last = iterator.next();
    events.close();
    expect(await last).toEqual({ done: true, value: undefined });
  });
});

test("random bytes of the pool are never handed out twice", () => {
  const random = pooledRandom();
  const drawn = Array.from({ length: 2000 }, () => Buffer.from(random(17)).toString("hex"));
  expect(new Set(drawn).size).toBe(2000);
  expect(random(10_000)).toHaveLength(10_000);
});
