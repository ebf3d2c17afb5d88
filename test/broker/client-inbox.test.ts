/** The durable inbox: what is shown, acknowledged, terminated, given back, and named when it can't be read. */
import { createHash } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { verifyArtifact } from "../../shared/client/index.ts";
import { RejectReason } from "../../shared/protocol/chat/message.ts";
import { api, makeDurable, put } from "../support/raw-jetstream.ts";
import { type Sessions, type TestSession, sessionsOf, take, texts } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";

let space: TestSpace;
let sessions: Sessions;
let raw: NatsConnection;
let serial = 0;

beforeAll(async () => {
  space = await startSpace({ auth: "open" });
  sessions = sessionsOf(space);
  raw = await space.store();
});
afterAll(async () => {
  await sessions.closeAll();
  await space.stop();
});

const durableOf = (session: TestSession) => `dm_local-${session.me.principal.actor}-${session.me.uid}`;
const fresh = () => `b${(serial += 1)}`;

/** A reader whose durable has a short ack wait: open mode binds what is there. */
async function reader(config: object, limits: object): Promise<TestSession> {
  const bob = await sessions.open(fresh(), { limits });
  await makeDurable(raw, "DM_main", durableOf(bob), {
    filter_subject: `cotal.main.inst.local.${bob.me.principal.actor}.>`,
    max_batch: 1,
    ...config,
  });
  return bob;
}

const message = (change: object) => ({
  id: `id${(serial += 1)}`,
  ts: 1,
  space: "main",
  from: { id: "local.eve", name: "eve" },
  to: "local.bob",
  parts: [{ kind: "text", text: "x" }],
  ...change,
});
const dmTo = (session: TestSession, body: object | string, headers: Record<string, string> = {}) =>
  put(
    raw,
    `cotal.main.inst.${session.me.id}.local.eve`,
    typeof body === "string" ? body : JSON.stringify(body),
    headers,
  );

type Info = { num_pending: number; num_ack_pending: number; delivered: { consumer_seq: number } };
const info = async (session: TestSession) =>
  (await api(raw, `CONSUMER.INFO.DM_main.${durableOf(session)}`)) as unknown as Info;

async function expectSettled(session: TestSession): Promise<void> {
  await until("nothing pending", async () => {
    const { num_pending, num_ack_pending } = await info(session);
    return num_pending === 0 && num_ack_pending === 0;
  });
}

describe("permanent anomalies", () => {
  test("W4.11 W5.05 W5.09 W3.04: poison is terminated once with its reason, counted, and what follows is shown", async () => {
    const bob = await sessions.open(fresh());
    await bob.listen();
    await dmTo(bob, "{not json");
    await dmTo(bob, message({ from: { id: "local.mallory", name: "m" } }));
    await dmTo(bob, message({ from: undefined }));
    await dmTo(bob, message({ id: undefined }));
    await dmTo(bob, message({ id: 7 }));
    await dmTo(bob, message({ channel: "x" }));
    await put(raw, `cotal.main.inst.${bob.me.id}.UAQGWOEV.eve`, JSON.stringify(message({})));
    await dmTo(bob, message({ parts: [{ kind: "text", text: "good" }] }));
    expect(texts(await take(bob, 1))).toEqual(["good"]);
    await expectSettled(bob);
    expect(bob.stats()).toMatchObject({
      received: { dm: 1 },
      redelivered: 0,
      rejected: {
        [RejectReason.MalformedJson]: 1,
        [RejectReason.SenderMismatch]: 2,
        [RejectReason.MalformedEnvelope]: 3,
        [RejectReason.MalformedSubject]: 1,
      },
    });
    expect((await info(bob)).delivered.consumer_seq).toBe(8);
  });

  test("W5.10: a copy with a stored-message header is refused, in any case and with any value", async () => {
    const bob = await sessions.open(fresh());
    await bob.listen();
    for (const [name, value] of [
      ["Nats-Stream", "CHAT_main"],
      ["nats-subject", "a"],
      ["NATS-SEQUENCE", ""],
      ["Nats-Time-Stamp", "x"],
    ] as const) {
      await dmTo(bob, message({}), { [name]: value });
    }
    await dmTo(bob, message({ parts: [{ kind: "text", text: "good" }] }));
    expect(texts(await take(bob, 1))).toEqual(["good"]);
    expect(bob.stats().rejected).toEqual({ [RejectReason.StoredCopy]: 4 });
    await expectSettled(bob);
  });

  test("W5.06 W5.02 W4.02: unknown fields and part kinds are ignored, and the kind is the subject's", async () => {
    const bob = await sessions.open(fresh());
    await bob.listen();
    const parts = [{ kind: "com.acme.x", v: 1 }, { kind: "mystery" }, { kind: "text", text: "shown", extra: 1 }];
    await dmTo(
      bob,
      message({ to: undefined, channel: "general", parts, meta: { a: 1 }, from: { id: "local.eve", name: "e", x: 1 } }),
    );
    const [item] = await take(bob, 1);
    expect(item).toMatchObject({ kind: "dm", text: "shown" });
    expect(item?.parts.map(({ kind }) => kind)).toEqual(["com.acme.x", "text"]);
  });
});

describe("deduplication", () => {
  test("W4.10: messages with an empty id are each shown and each acknowledged", async () => {
    const bob = await sessions.open(fresh());
    await bob.listen();
    for (const text of ["one", "two", "three"]) await dmTo(bob, message({ id: "", parts: [{ kind: "text", text }] }));
    expect(texts(await take(bob, 3)).toSorted()).toEqual(["one", "three", "two"]);
    await expectSettled(bob);
    expect(bob.stats()).toMatchObject({ acked: 3, duplicates: 0 });
  });

  test("W4.09: one sender's id is shown once, another sender's same id is another message", async () => {
    const bob = await sessions.open(fresh());
    await bob.listen();
    await dmTo(bob, message({ id: "same", parts: [{ kind: "text", text: "eve" }] }));
    await dmTo(bob, message({ id: "same", parts: [{ kind: "text", text: "eve again" }] }));
    const other = message({
      id: "same",
      from: { id: "local.fay", name: "fay" },
      parts: [{ kind: "text", text: "fay" }],
    });
    await put(raw, `cotal.main.inst.${bob.me.id}.local.fay`, JSON.stringify(other));
    expect(texts(await take(bob, 2)).toSorted()).toEqual(["eve", "fay"]);
    await dmTo(bob, message({ id: "same", parts: [{ kind: "text", text: "eve at last" }] }));
    await expectSettled(bob);
    await until("two doubles", () => bob.stats().duplicates === 2);
    expect(bob.stats()).toMatchObject({ received: { dm: 2 } });
  });
});

// Each waits out an acknowledgement of its own reader.
describe.concurrent("acknowledgement", () => {
  test("W4.05 W8.16: what a reader did not handle comes again, to its next session as well", async () => {
    const bob = await sessions.open(fresh());
    await bob.listen();
    await dmTo(bob, message({ id: "keep" }));
    const inbox = bob.inbox();
    expect(await inbox.next()).toMatchObject({ value: { id: "keep", deliveries: 1 } });
    await bob.drain();
    const { actor } = bob.me.principal;
    const again = await sessions.open(actor, { credentials: { kind: "open", actor, uid: bob.me.uid } });
    expect(await again.inbox().next()).toMatchObject({ value: { id: "keep", deliveries: 2 } });
  });

  test("W4.05: a session that is cut off without a word gets what it did not acknowledge again", async () => {
    const bob = await reader({ ack_wait: 1e9 }, {});
    await bob.listen();
    await dmTo(bob, message({ id: "once more" }));
    expect(await bob.inbox().next()).toMatchObject({ value: { id: "once more", deliveries: 1 } });
    await bob.close();
    const { actor } = bob.me.principal;
    const again = await sessions.open(actor, { credentials: { kind: "open", actor, uid: bob.me.uid } });
    const [item] = await take(again, 1);
    expect(item).toMatchObject({ id: "once more" });
    expect(item?.deliveries).toBeGreaterThan(1);
  });

  test("leaving a loop without a word gives the item back at once", async () => {
    const bob = await sessions.open(fresh());
    await bob.listen();
    await dmTo(bob, message({ id: "again" }));
    for await (const item of bob.inbox()) {
      expect(item.deliveries).toBe(1);
      break;
    }
    expect(await take(bob, 1)).toMatchObject([{ id: "again", deliveries: 2 }]);
    await expectSettled(bob);
  });

  test("a handler that fails gets the item again, and the reason is told", async () => {
    const bob = await sessions.open(fresh());
    await bob.listen();
    let tries = 0;
    const handling = bob.onItem(() => {
      tries += 1;
      if (tries === 1) throw new Error("not now");
    });
    await dmTo(bob, message({}));
    await until("handled at the second try", () => bob.stats().acked === 1);
    await handling.stop();
    expect(tries).toBe(2);
    expect(bob.told).toContainEqual(expect.objectContaining({ type: "handler-failed" }));
  });

  test("W8.16: a slow handler is renewed for many ack waits and gets its item once", async () => {
    // An ack wait that a busy machine's pause does not run out.
    const bob = await reader({ ack_wait: 2e9 }, { ackWaitMs: 2000 });
    await bob.listen();
    let calls = 0;
    const handling = bob.onItem(async () => {
      calls += 1;
      await new Promise((resolve) => setTimeout(resolve, 7000));
    });
    await dmTo(bob, message({}));
    await until("handled", () => bob.stats().acked === 1);
    await handling.stop();
    await expectSettled(bob);
    expect(calls).toBe(1);
    expect(bob.stats().redelivered).toBe(0);
  });

  test("a redelivery of what is in hand joins it, and one acknowledgement settles both", async () => {
    // The broker's wait is shorter than what the session believes: it renews too late.
    const bob = await reader({ ack_wait: 5e8 }, { ackWaitMs: 60_000 });
    await bob.listen();
    await dmTo(bob, message({ id: "slow" }));
    const inbox = bob.inbox();
    const first = await inbox.next();
    await until("redelivered", () => bob.stats().redelivered > 0);
    expect(first).toMatchObject({ value: { id: "slow" } });
    first.value?.ack();
    await expectSettled(bob);
    expect(bob.stats()).toMatchObject({ received: { dm: 1 }, acked: 1 });
    await inbox.return?.();
  });
});

describe("back-pressure", () => {
  test("a reader that stands still holds its bound, the rest waits at the broker, and nothing is lost", async () => {
    const bob = await sessions.open(fresh(), { limits: { held: 5 } });
    await bob.listen();
    for (let n = 0; n < 40; n += 1) await dmTo(bob, message({ parts: [{ kind: "text", text: String(n) }] }));
    await until("the bound is reached", () => bob.stats().held === 5);
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(bob.stats()).toMatchObject({ held: 5, acked: 0, received: { dm: 5 } });
    expect(await info(bob)).toMatchObject({ num_ack_pending: 5, num_pending: 35 });
    const items = await take(bob, 40);
    expect(texts(items)).toEqual(Array.from({ length: 40 }, (_, n) => String(n)));
    await expectSettled(bob);
  });

  test("a flood of channel posts pushes no direct message out", async () => {
    const alice = await sessions.open(fresh());
    const bob = await sessions.open(fresh(), { limits: { liveCapacity: 50 } });
    await bob.listen();
    await (
      await bob.join("flood")
    ).replayed;
    await alice.dm(bob.me.id, "the one");
    await until("held", () => bob.stats().held === 1);
    await Promise.all(Array.from({ length: 600 }, () => alice.send("flood", "noise", { mentions: [bob.me.name] })));
    await until("all came", () => bob.stats().received.chat === 600);
    const items = await take(bob, 51);
    expect(items[0]).toMatchObject({ kind: "dm", text: "the one" });
    expect(items.slice(1).every(({ kind }) => kind === "chat")).toBe(true);
    expect(bob.stats().dropped).toBe(550);
    const told = () => bob.told.reduce((sum, event) => sum + (event.type === "dropped" ? event.count : 0), 0);
    await until("every drop is told", () => told() === 550);
  });
});

describe("a durable that is not there", () => {
  test("is a named state and an error to the reader, never an empty inbox; reading goes on when it is back", async () => {
    const bob = await sessions.open(fresh());
    await bob.listen();
    await until("answered", () => bob.inboxState().dm === "ok");
    await api(raw, `CONSUMER.DELETE.DM_main.${durableOf(bob)}`);
    const inbox = bob.inbox();
    await expect(inbox.next()).rejects.toMatchObject({ code: "not-found" });
    expect(bob.inboxState()).toMatchObject({ dm: "missing" });
    expect(bob.told).toContainEqual({ type: "durable-missing", rail: "dm", durable: durableOf(bob) });
    await dmTo(bob, message({ parts: [{ kind: "text", text: "meanwhile" }] }));
    await makeDurable(raw, "DM_main", durableOf(bob), {
      filter_subject: `cotal.main.inst.${bob.me.id}.>`,
      max_batch: 1,
    });
    expect(texts(await take(bob, 1))).toEqual(["meanwhile"]);
    expect(bob.told).toContainEqual({ type: "durable-back", rail: "dm", durable: durableOf(bob) });
  });

  test("a handler is told by an event, stays, and gets its items once the durable is back", async () => {
    const bob = await sessions.open(fresh());
    await bob.listen();
    const got: string[] = [];
    const handling = bob.onItem((item) => void got.push(item.text));
    await api(raw, `CONSUMER.DELETE.DM_main.${durableOf(bob)}`);
    await until("missing", () => bob.inboxState().dm === "missing");
    await dmTo(bob, message({ parts: [{ kind: "text", text: "meanwhile" }] }));
    const filter = `cotal.main.inst.${bob.me.id}.>`;
    await makeDurable(raw, "DM_main", durableOf(bob), { filter_subject: filter, max_batch: 1 });
    await until("handled", () => got.length === 1);
    await handling.stop();
    expect(got).toEqual(["meanwhile"]);
    expect(await handling.ended).toBeUndefined();
  });

  test("a durable that was made again shows nothing a second time", async () => {
    const bob = await sessions.open(fresh());
    await bob.listen();
    await dmTo(bob, message({ id: "old" }));
    await take(bob, 1);
    await api(raw, `CONSUMER.DELETE.DM_main.${durableOf(bob)}`);
    await makeDurable(raw, "DM_main", durableOf(bob), {
      filter_subject: `cotal.main.inst.${bob.me.id}.>`,
      max_batch: 1,
    });
    await dmTo(bob, message({ id: "new" }));
    expect(await take(bob, 1)).toMatchObject([{ id: "new" }]);
    expect(bob.stats().duplicates).toBe(1);
    await expectSettled(bob);
  });
});

describe("a stream that was made anew", () => {
  test("its first messages are not taken for what is in hand under the same sequence", async () => {
    const nc = raw;
    await api(nc, "STREAM.CREATE.DM_lab", { name: "DM_lab", subjects: ["cotal.lab.inst.>"], storage: "file" });
    const bob = await sessions.own({ space: "lab", credentials: { kind: "open", actor: "bob" }, presence: false });
    await bob.listen();
    const send = (id: string) =>
      put(nc, "cotal.lab.inst.local.bob.local.eve", JSON.stringify(message({ id, space: "lab" })));
    await send("before");
    await send("");
    const inbox = bob.inbox();
    expect(await inbox.next()).toMatchObject({ value: { id: "before", receivedSeq: 1 } });
    await until("both in hand", () => bob.stats().held === 2);
    await api(nc, "STREAM.DELETE.DM_lab");
    await api(nc, "STREAM.CREATE.DM_lab", { name: "DM_lab", subjects: ["cotal.lab.inst.>"], storage: "file" });
    await makeDurable(nc, "DM_lab", durableOf(bob), { filter_subject: "cotal.lab.inst.local.bob.>", max_batch: 1 });
    await send("after");
    await send("after too");
    await until("all four are in hand", () => bob.stats().held === 4);
    expect(await inbox.next()).toMatchObject({ value: { id: "" } });
    expect(await inbox.next()).toMatchObject({ value: { id: "after", receivedSeq: 1 } });
    expect(await inbox.next()).toMatchObject({ value: { id: "after too", receivedSeq: 2 } });
    await inbox.return?.();
  });
});

describe("a role's queue in an open space", () => {
  test("W8.06 W4.05: its holders share one queue, each request is done by one, and a dead holder's come again", async () => {
    const role = "workers";
    await makeDurable(raw, "TASK_main", `svc_${role}`, {
      filter_subject: `cotal.main.svc.${role}.>`,
      max_batch: 1,
      ack_wait: 1e9,
    });
    const alice = await sessions.open(fresh());
    const holders = await Promise.all(
      [1, 2, 3].map(() => sessions.open(fresh(), { role, limits: { ackWaitMs: 1000 } })),
    );
    const done: string[] = [];
    const [dead, ...alive] = holders;
    await dead?.listen({ dm: false });
    for (let n = 0; n < 30; n += 1) await alice.ask(role, String(n));
    const hoarder = dead?.inbox({ dm: false });
    expect(await hoarder?.next()).toMatchObject({ done: false });
    expect(dead?.stats().held).toBe(1);
    await dead?.close();
    const handlings = alive.map((holder) => holder.onItem((item) => void done.push(item.text), { dm: false }));
    await until("all are done", () => new Set(done).size === 30);
    expect(done).toHaveLength(30);
    expect(alive.every((holder) => holder.stats().acked > 0)).toBe(true);
    await Promise.all(handlings.map((handling) => handling.stop()));
  });
});

describe("artifacts", () => {
  test("W5.04: a claimed size allocates nothing, and only bytes of the digest pass", async () => {
    const bob = await sessions.open(fresh());
    await bob.listen();
    const digest = `sha256:${createHash("sha256").update("right").digest("hex")}`;
    const part = { kind: "artifact", name: "a", mediaType: "text/plain", digest, size: 2 ** 50 };
    await dmTo(bob, message({ parts: [part, { ...part, digest: digest.toUpperCase() }] }));
    const [item] = await take(bob, 1);
    expect(item?.parts).toEqual([part]);
    const bytes = (text: string) => new TextEncoder().encode(text);
    expect(() => verifyArtifact({ digest }, bytes("wrong"))).toThrow("do not have the artifact's digest");
    expect(verifyArtifact({ digest }, bytes("right"))).toBeUndefined();
  });
});
