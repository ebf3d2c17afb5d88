/** Sending: the fact a send rests on, and every way in which it can fail. */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { api, dump, makeStream } from "../support/raw-jetstream.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { type Sessions, sessionsOf } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";
import { connect } from "../../shared/client/index.ts";
import { connect as dial } from "@nats-io/transport-node";

describe("in an authenticated space", () => {
  let space: TestSpace;
  let sessions: Sessions;
  beforeAll(async () => {
    space = await startSpace({ auth: "static" });
    sessions = sessionsOf(space);
  });
  afterAll(async () => {
    await sessions.closeAll();
    await space.stop();
  });

  test("W3.07: a channel outside the post list is refused at once as permission-denied, and says nothing ran", async () => {
    const alice = await sessions.minted({ actor: "alice", subscribe: ["general"], publish: ["general"] });
    const refused = alice.send("secrets", "hi");
    const fine = alice.send("general", "hi");
    await expect(refused).rejects.toMatchObject({ code: "permission-denied", outcome: "not-executed" });
    expect(await fine).toMatchObject({ stream: "CHAT_main" });
    const many = await Promise.allSettled(Array.from({ length: 20 }, () => alice.send("secrets", "hi")));
    expect(many.every(({ status }) => status === "rejected")).toBe(true);
    expect(alice.stats()).toMatchObject({ published: 1, publishFailed: 21 });
  });

  test("W5.07: a message over the broker's payload is refused here, with advice, and one that fits is stored whole", async () => {
    const alice = await sessions.minted({ actor: "al2", subscribe: ["general"], publish: ["general"] });
    const other = await space.connect(await space.mint({ actor: "al4" }));
    // What the broker grants this user, which may be less than its own.
    await other.flush();
    const limit = other.info?.max_payload ?? 0;
    expect(limit).toBeGreaterThan(1000);
    await expect(alice.send("general", "x".repeat(limit))).rejects.toMatchObject({
      code: "bad-request",
      outcome: "not-executed",
      next: expect.stringContaining("artifact") as string,
    });
    const big = "y".repeat(limit - 600);
    const { seq } = await alice.send("general", big);
    const stored = (await dump(await space.store(), "CHAT_main")).find((entry) => entry.seq === seq);
    expect(JSON.parse(stored?.data ?? "{}")).toMatchObject({ parts: [{ text: big }] });
  });

  test("256 in flight keep the order in which they were sent", async () => {
    const alice = await sessions.minted({ actor: "al3", subscribe: ["order"], publish: ["order"] });
    const sent = await Promise.all(Array.from({ length: 2000 }, (_, n) => alice.send("order", String(n))));
    const seqs = sent.map(({ seq }) => seq);
    expect(seqs).toEqual(seqs.toSorted((a, b) => a - b));
    expect(new Set(seqs).size).toBe(2000);
  });
});

describe("in an open space", () => {
  let broker: TestBroker;
  let nc: NatsConnection;
  beforeAll(async () => {
    broker = await startBroker();
    nc = await dial({ servers: broker.url, reconnectTimeWait: 50, maxReconnectAttempts: -1 });
    await makeStream(nc, "DM_main", { subjects: ["cotal.main.inst.>"] });
  });
  afterAll(async () => {
    await nc.close();
    await broker.stop();
  });
  afterEach(() => broker.thaw());
  /** The signal takes a moment to reach every thread. */
  const freeze = async () => {
    broker.freeze();
    await new Promise((resolve) => setTimeout(resolve, 200));
  };
  const open = (limits = {}) =>
    connect({
      servers: [broker.url],
      credentials: { kind: "open", actor: "alice" },
      presence: false,
      limits,
      reconnect: { kind: "endless", baseMs: 50, capMs: 200 },
    });

  test("without a stream nothing is stored, and the send says so at once", async () => {
    const alice = await open();
    await expect(alice.send("general", "hi")).rejects.toMatchObject({ code: "unavailable", outcome: "not-executed" });
    await alice.close();
  });

  test("W8.04: a full store refuses loudly", async () => {
    await makeStream(nc, "CHAT_full", { subjects: ["cotal.full.chat.>"], max_bytes: 600, discard: "new" });
    const alice = await connect({
      servers: [broker.url],
      space: "full",
      credentials: { kind: "open", actor: "alice" },
      presence: false,
    });
    await alice.send("general", "fits");
    await expect(alice.send("general", "x".repeat(500))).rejects.toMatchObject({
      code: "resource-exhausted",
      outcome: "not-executed",
    });
    await alice.close();
  });

  test("a receipt counts only if it parses and names the stream; another's settles nothing", async () => {
    const alice = await open({ publishTimeoutMs: 1500 });
    const forger = nc.subscribe("cotal.main.svc.>", {
      callback: (_, message) => {
        for (const forged of [
          "+OK",
          "{}",
          "null",
          "7",
          '{"stream":"DM_main","seq":1}',
          '{"stream":"TASK_main","seq":0}',
        ]) {
          nc.publish(message.reply ?? "none", forged);
        }
      },
    });
    await nc.flush();
    await expect(alice.ask("reviewer", "hi")).rejects.toMatchObject({ code: "unavailable", outcome: "unknown" });
    forger.unsubscribe();
    await alice.close();
  });

  test("what waits for receipts is bounded: over it a send is refused, not queued", async () => {
    const alice = await open({ maxPending: 10, publishTimeoutMs: 2000 });
    await freeze();
    const sends = Array.from({ length: 11 }, () => alice.dm("local.bob", "hi"));
    const settled = Promise.allSettled(sends);
    await expect(sends[10]).rejects.toMatchObject({ code: "resource-exhausted", outcome: "not-executed" });
    const results = await settled;
    expect(results.slice(0, 10).every(({ status }) => status === "rejected")).toBe(true);
    expect(results[0]).toMatchObject({ reason: { code: "unavailable", outcome: "unknown" } });
    broker.thaw();
    await alice.close();
  });

  test("kill -9 during traffic: what was acknowledged is stored once, what was not is told as it is", async () => {
    const alice = await open({ publishTimeoutMs: 10_000 });
    const before = (await dump(nc, "DM_main")).length;
    const results: Promise<unknown>[] = [];
    let stop = false;
    const sending = (async () => {
      while (!stop) {
        const sent = alice.dm("local.bob", `m${results.length}`);
        sent.catch(() => undefined);
        results.push(sent);
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
    })();
    await until("traffic", () => results.length > 100);
    await broker.kill();
    await new Promise((resolve) => setTimeout(resolve, 300));
    await broker.restart();
    const atRestart = results.length;
    await until("traffic after it", () => results.length > atRestart + 100);
    stop = true;
    await sending;
    const settled = await Promise.allSettled(results);
    const acknowledged = settled.flatMap((result) =>
      result.status === "fulfilled" ? [result.value as { id: string; seq: number }] : [],
    );
    expect(acknowledged.length).toBeGreaterThan(200);
    const stored = (await dump(nc, "DM_main")).slice(before).map(({ seq, data }) => ({
      seq,
      id: (JSON.parse(data) as { id: string }).id,
    }));
    const bySeq = new Map(stored.map(({ seq, id }) => [seq, id]));
    expect(acknowledged.filter(({ id, seq }) => bySeq.get(seq) !== id)).toEqual([]);
    expect(new Set(stored.map(({ id }) => id)).size).toBe(stored.length);
    const failed = settled.flatMap((result) =>
      result.status === "rejected" ? [result.reason as { code: string }] : [],
    );
    expect(failed.every(({ code }) => code === "unavailable")).toBe(true);
    await alice.close();
  });

  test("a closed session refuses to send, and closing fails what is under way", async () => {
    const alice = await open();
    await freeze();
    const sent = alice.dm("local.bob", "hi");
    await new Promise((resolve) => setTimeout(resolve, 50));
    const settled = Promise.allSettled([sent]);
    await alice.close();
    broker.thaw();
    expect(await settled).toMatchObject([{ reason: { code: "unavailable", outcome: "unknown" } }]);
    await expect(alice.dm("local.bob", "hi")).rejects.toMatchObject({ code: "unavailable", outcome: "not-executed" });
    await expect(api(nc, "INFO")).resolves.toBeDefined();
  });
});
