/** The one door of durable writes, atomic batches, and crash loops, on a real broker. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BatchMessage, publishBatch, stageBatch } from "../../shared/broker/batch.ts";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { ensureStreams, streamState } from "../../shared/broker/ensure.ts";
import { apiNumber, isUnknownOutcome } from "../../shared/broker/errors.ts";
import { leaderGet, leaderLast } from "../../shared/broker/reads.ts";
import { spaceStreams } from "../../shared/broker/resources.ts";
import { type Death, Died, createWriter } from "../../shared/broker/write.ts";
import { untilItEnds } from "../support/crash.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { ownBroker } from "../support/own-broker.ts";
import { failure } from "../support/refusal.ts";

let broker: TestBroker;
let link: Connection;

beforeAll(async () => {
  broker = await startBroker();
  link = await open(broker);
  await ensureStreams(link.nc, spaceStreams("s", { replicas: 1 }));
});

afterAll(async () => {
  await link?.close();
  await broker?.stop();
});

const open = ({ url }: TestBroker): Promise<Connection> =>
  openConnection({ servers: [url], name: "w", inboxPrefix: "_INBOX_w", reconnect: { kind: "endless" } });

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const textAt = async (subject: string): Promise<string> =>
  new TextDecoder().decode((await leaderLast(link.nc, "KV_cotal_acl_s", subject))?.data);

const ACL = "KV_cotal_acl_s";
const row = (key: string): string => `$KV.cotal_acl_s.${key}`;

describe("create and compare-and-set", () => {
  const writer = (): ReturnType<typeof createWriter> => createWriter({ nc: link.nc });

  test("a create returns its sequence, a second one is a conflict that ran nothing", async () => {
    const seq = await writer().create(ACL, row("once"), bytes("1"));
    expect(await leaderLast(link.nc, ACL, row("once"))).toMatchObject({ seq });
    const error = await failure(writer().create(ACL, row("once"), bytes("2")));
    expect(error).toMatchObject({ code: "conflict", outcome: "not-executed" });
    expect(error.message).not.toMatch(/sequence: \d/);
    expect(await textAt(row("once"))).toBe("1");
  });

  test("a create and a compare-and-set carry the expectation and the stream on the wire", async () => {
    const seq = await writer().create(ACL, row("wire"), bytes("1"));
    const created = await leaderGet(link.nc, ACL, seq);
    expect(created?.headers?.get("Nats-Expected-Last-Subject-Sequence")).toBe("0");
    expect(created?.headers?.get("Nats-Expected-Stream")).toBe(ACL);
    const next = await writer().cas(ACL, row("wire"), bytes("2"), seq);
    const changed = await leaderGet(link.nc, ACL, next);
    expect(changed?.headers?.get("Nats-Expected-Last-Subject-Sequence")).toBe(String(seq));
  });

  test("over a delete marker a create is a conflict, and the marker's own sequence passes", async () => {
    const seq = await writer().create(ACL, row("marked"), bytes("1"));
    const marker = await writer().cas(ACL, row("marked"), bytes(""), seq, { headers: { "KV-Operation": "DEL" } });
    expect(await failure(writer().create(ACL, row("marked"), bytes("2")))).toMatchObject({ code: "conflict" });
    await writer().cas(ACL, row("marked"), bytes("2"), marker);
    expect(await textAt(row("marked"))).toBe("2");
  });

  test("of fifty contenders at one revision one wins, and the row holds the winner", async () => {
    const seq = await writer().create(ACL, row("race"), bytes("start"));
    const ran = await Promise.allSettled(
      Array.from({ length: 50 }, (_, n) => writer().cas(ACL, row("race"), bytes(`by ${n}`), seq)),
    );
    const winners = ran.flatMap(({ status }, n) => (status === "fulfilled" ? [n] : []));
    expect(winners).toHaveLength(1);
    const losers = ran.filter((end) => end.status === "rejected").map((end) => end.reason as unknown);
    expect(losers.every((error) => apiNumber(error) === 10071)).toBe(true);
    expect(await textAt(row("race"))).toBe(`by ${winners[0]}`);
  });

  test.each([0, -1, 1.5, Number.NaN])("a compare-and-set on %s is refused before it is sent", async (seq) => {
    const { lastSeq } = await streamState(link.nc, ACL);
    expect(await failure(writer().cas(ACL, row("zero"), bytes("x"), seq))).toMatchObject({ code: "bad-request" });
    expect((await streamState(link.nc, ACL)).lastSeq).toBe(lastSeq);
  });

  test("a write that another stream captures is refused before it is stored", async () => {
    const error = await failure(writer().create("KV_cotal_auth_s", row("foreign"), bytes("x")));
    expect(error).toMatchObject({ code: "failed-precondition", outcome: "not-executed" });
    expect(await leaderLast(link.nc, ACL, row("foreign"))).toBeUndefined();
  });

  test("a write that no stream captures is unavailable, and nothing ran", async () => {
    const error = await failure(writer().create(ACL, "nowhere.at.all", bytes("x")));
    expect(error).toMatchObject({ code: "unavailable", outcome: "not-executed" });
  });

  test("a value above the bucket's bound is refused loudly", async () => {
    const error = await failure(
      writer().create("KV_cotal_anycast_s", "$KV.cotal_anycast_s.r.1.1", new Uint8Array(65_537)),
    );
    expect(error).toMatchObject({ code: "bad-request", outcome: "not-executed" });
  });

  test("an ack that names another stream proves nothing", async () => {
    const { nc } = link;
    const liar = nc.subscribe("fake.subject", {
      callback: (_, message) => void message.respond(JSON.stringify({ stream: "OTHER", seq: 1 })),
    });
    const error = await failure(createWriter({ nc }).append("MINE", "fake.subject", bytes("x")));
    expect(error).toMatchObject({ code: "failed-precondition", outcome: "unknown" });
    liar.unsubscribe();
  });

  test("W8.16: an append with a message id is stored once in the window", async () => {
    const first = await writer().append("CHAT_s", "cotal.s.chat.o.a.c", bytes("x"), { msgId: "id-1" });
    expect(first.duplicate).toBe(false);
    const again = await writer().append("CHAT_s", "cotal.s.chat.o.a.c", bytes("x"), { msgId: "id-1" });
    expect(again).toEqual({ seq: first.seq, duplicate: true });
    const other = await writer().append("CHAT_s", "cotal.s.chat.o.a.c", bytes("x"), { msgId: "id-2" });
    expect(other).toMatchObject({ duplicate: false });
    const plain = await writer().append("CHAT_s", "cotal.s.chat.o.a.c", bytes("x"));
    expect((await writer().append("CHAT_s", "cotal.s.chat.o.a.c", bytes("x"))).seq).toBe(plain.seq + 1);
  });

  test("the journal of submissions remembers an id for no longer than the broker's least window", async () => {
    const first = await writer().append("EPJ_s", "cotal.s.epj.x", bytes("x"), { msgId: "seeded" });
    await sleep(1000);
    const later = await writer().append("EPJ_s", "cotal.s.epj.x", bytes("x"), { msgId: "seeded" });
    expect(later).toEqual({ seq: first.seq + 1, duplicate: false });
  });
});

describe("silence and full stores", () => {
  test("a broker killed in the middle of writes loses nothing that it acknowledged", async () => {
    const own = await ownBroker();
    const busy = await open(own);
    await ensureStreams(busy.nc, spaceStreams("s", { replicas: 1 }));
    const writer = createWriter({ nc: busy.nc });
    const acked: number[] = [];
    const writes = Array.from({ length: 2000 }, async (_, n) => {
      const { seq } = await writer.append("DM_s", "cotal.s.inst.a.b.c.d", bytes(`${n}`), { timeoutMs: 3000 });
      acked.push(seq);
      if (acked.length === 500) await own.kill();
    });
    const ends = await Promise.allSettled(writes);
    expect(acked.length).toBeGreaterThanOrEqual(500);
    expect(ends.length).toBe(2000);
    await own.restart();
    await busy.up(20_000);
    const stored = async (): Promise<number> =>
      (await streamState(busy.nc, "DM_s").catch(() => ({ lastSeq: -1 }))).lastSeq;
    await expect.poll(stored, { timeout: 20_000 }).toBeGreaterThanOrEqual(Math.max(...acked));
    const last = await leaderGet(busy.nc, "DM_s", Math.max(...acked));
    expect(last?.subject).toBe("cotal.s.inst.a.b.c.d");
    await busy.close();
  });

  test("a frozen broker: unavailable with outcome unknown, and the write may have happened", async () => {
    const own = await ownBroker();
    const frozen = await open(own);
    await ensureStreams(frozen.nc, spaceStreams("s", { replicas: 1 }));
    own.freeze();
    await sleep(200);
    const error = await failure(
      createWriter({ nc: frozen.nc }).create(ACL, row("silent"), bytes("x"), { timeoutMs: 300 }),
    );
    expect(error).toMatchObject({ code: "unavailable", outcome: "unknown" });
    expect(isUnknownOutcome(error)).toBe(true);
    own.thaw();
    await expect.poll(async () => (await leaderLast(frozen.nc, ACL, row("silent")))?.seq, { timeout: 10_000 }).toBe(1);
    await frozen.close();
  });

  test("W8.04: a full store refuses a new message loudly, and keeps what it has", async () => {
    const full = await ownBroker({
      config: (port, folder) =>
        `listen: "127.0.0.1:${port}"\njetstream { store_dir: "${folder}/store", max_file_store: 1000000 }`,
    });
    const tiny = await open(full);
    await ensureStreams(tiny.nc, spaceStreams("s", { replicas: 1 }));
    const writer = createWriter({ nc: tiny.nc });
    let sent = 0;
    const fill = async (): Promise<void> => {
      for (; sent < 100; sent += 1) await writer.append("DM_s", "cotal.s.inst.a.b.c.d", new Uint8Array(50_000));
    };
    const error = await failure(fill());
    expect(error).toMatchObject({ code: "resource-exhausted", outcome: "not-executed" });
    expect(error.next).toContain("storage");
    expect(sent).toBeGreaterThan(5);
    expect(await streamState(tiny.nc, "DM_s")).toMatchObject({ firstSeq: 1, messages: sent });
    await tiny.close();
  });
});

describe("dying", () => {
  test("before a write nothing is written, after it the row is there, and a dead writer stays dead", async () => {
    const before = createWriter({ nc: link.nc, die: { at: 2, when: "before" } });
    await before.create(ACL, row("d1"), bytes("1"));
    await expect(before.create(ACL, row("d2"), bytes("1"))).rejects.toThrow(Died);
    await expect(before.create(ACL, row("d3"), bytes("1"))).rejects.toThrow("died before write 2");
    expect(await leaderLast(link.nc, ACL, row("d2"))).toBeUndefined();
    expect(await leaderLast(link.nc, ACL, row("d3"))).toBeUndefined();

    const after = createWriter({ nc: link.nc, die: { at: 1, when: "after" } });
    await expect(after.create(ACL, row("d4"), bytes("1"))).rejects.toThrow("died after write 1");
    expect(await textAt(row("d4"))).toBe("1");
    await expect(after.effect(() => Promise.resolve(1))).rejects.toThrow(Died);
  });

  test("a process that is to be killed is killed there", async () => {
    let kills = 0;
    const kill = (): void => {
      kills += 1;
    };
    const writer = createWriter({ nc: link.nc, die: { at: 1, when: "after", kill } });
    await expect(writer.create(ACL, row("kill"), bytes("1"))).rejects.toThrow(Died);
    expect(kills).toBe(1);
  });

  test("an operation of three writes converges wherever it dies", async () => {
    const left: string[] = [];
    const operation = async (die: Death): Promise<string> => {
      const writer = createWriter({ nc: link.nc, die });
      const create = async (key: string): Promise<void> => {
        if ((await leaderLast(link.nc, ACL, row(key))) === undefined) await writer.create(ACL, row(key), bytes(key));
      };
      await create("op.one");
      await create("op.two");
      const two = await leaderLast(link.nc, ACL, row("op.two"));
      const isDone = new TextDecoder().decode(two?.data) === "done";
      if (!isDone) await writer.cas(ACL, row("op.two"), bytes("done"), two?.seq ?? 0);
      left.push(`${die.when} ${die.at}`);
      return "ended";
    };
    const { result, deaths } = await untilItEnds(operation);
    expect(result).toBe("ended");
    expect(deaths).toBeGreaterThanOrEqual(3);
    expect(left).toHaveLength(1);
    expect(await textAt(row("op.one"))).toBe("op.one");
    expect(await textAt(row("op.two"))).toBe("done");
  });

  test("each write of a run that starts over is died at twice", async () => {
    let run = 0;
    const { deaths } = await untilItEnds(async (die) => {
      run += 1;
      const writer = createWriter({ nc: link.nc, die });
      for (const n of [1, 2, 3]) await writer.create(ACL, row(`run${run}.${n}`), bytes("x"));
    });
    expect(deaths).toBe(6);
  });

  test("what fails otherwise is no death", async () => {
    const writes = untilItEnds(async (die) => {
      const writer = createWriter({ nc: link.nc, die });
      await writer.create(ACL, row("twice"), bytes("x"));
      await writer.create(ACL, row("twice"), bytes("x"));
    });
    expect(await failure(writes)).toMatchObject({ code: "conflict" });
  });
});

describe("atomic batches", () => {
  const copy = (n: number): BatchMessage => ({ subject: `cotal.s.dlv.o.a${n}.uid`, data: bytes(`copy ${n}`) });
  const marker = (expectedSeq: number, group: number): BatchMessage => ({
    subject: `cotal.s.dlvpos.${group}`,
    data: bytes("marker"),
    headers: { "Nats-TTL": "never" },
    expectedSeq,
  });

  test("a thousand messages and their marker in one commit; headers arrive as sent", async () => {
    const { lastSeq: before } = await streamState(link.nc, "DLV_s");
    const messages = Array.from({ length: 999 }, (_, n) => ({
      ...copy(n),
      headers: { "Cotal-Delivery-Limit": "1000" },
    }));
    const { lastSeq, count } = await publishBatch(link.nc, "DLV_s", [...messages, marker(0, 1)]);
    expect({ lastSeq, count }).toEqual({ lastSeq: before + 1000, count: 1000 });
    expect((await leaderGet(link.nc, "DLV_s", before + 1))?.headers?.get("Cotal-Delivery-Limit")).toBe("1000");
    expect(await leaderLast(link.nc, "DLV_s", "cotal.s.dlvpos.1")).toMatchObject({ seq: lastSeq });
  });

  test("a batch of one", async () => {
    const { lastSeq, count } = await publishBatch(link.nc, "DLV_s", [marker(0, 2)]);
    expect(count).toBe(1);
    expect(await leaderLast(link.nc, "DLV_s", "cotal.s.dlvpos.2")).toMatchObject({ seq: lastSeq });
  });

  test("a superseded marker aborts all of it: nothing is stored", async () => {
    const { lastSeq: at } = await publishBatch(link.nc, "DLV_s", [marker(0, 3)]);
    await publishBatch(link.nc, "DLV_s", [copy(1), marker(at, 3)]);
    const { lastSeq, messages } = await streamState(link.nc, "DLV_s");
    const error = await failure(publishBatch(link.nc, "DLV_s", [copy(1), copy(2), marker(at, 3)]));
    expect(error).toMatchObject({ code: "conflict", outcome: "not-executed" });
    expect(await streamState(link.nc, "DLV_s")).toMatchObject({ lastSeq, messages });
  });

  test("two batches in flight from one marker: one commits", async () => {
    const { lastSeq: at } = await publishBatch(link.nc, "DLV_s", [marker(0, 4)]);
    const ran = await Promise.allSettled([1, 2].map((n) => publishBatch(link.nc, "DLV_s", [copy(n), marker(at, 4)])));
    expect(ran.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  });

  test("what is sent without its last message is not stored; two of them are stored one after the other", async () => {
    const before = await streamState(link.nc, "DLV_s");
    const first = stageBatch(link.nc, "DLV_s", [copy(1), copy(2)]);
    const second = stageBatch(link.nc, "DLV_s", [copy(3)]);
    await link.nc.flush();
    expect((await streamState(link.nc, "DLV_s")).lastSeq).toBe(before.lastSeq);
    const { lastSeq: at } = await first.commit(marker(0, 6));
    expect(at).toBe(before.lastSeq + 3);
    expect(await second.commit(marker(at, 6))).toEqual({ lastSeq: at + 2, count: 2 });
  });

  test("the marker that another one moved meanwhile stores nothing of what was sent before it", async () => {
    const { lastSeq: at } = await publishBatch(link.nc, "DLV_s", [marker(0, 7)]);
    const staged = stageBatch(link.nc, "DLV_s", [copy(1)]);
    const { lastSeq } = await publishBatch(link.nc, "DLV_s", [marker(at, 7)]);
    expect(await failure(staged.commit(marker(at, 7)))).toMatchObject({ code: "conflict", outcome: "not-executed" });
    expect((await streamState(link.nc, "DLV_s")).lastSeq).toBe(lastSeq);
  });

  test("too many messages, none, and two expectations of one subject are refused before they are sent", async () => {
    const { lastSeq } = await streamState(link.nc, "DLV_s");
    const many = Array.from({ length: 1001 }, (_, n) => copy(n));
    for (const messages of [many, [], [marker(0, 5), marker(0, 5)]]) {
      expect(await failure(publishBatch(link.nc, "DLV_s", messages))).toMatchObject({ code: "bad-request" });
    }
    expect((await streamState(link.nc, "DLV_s")).lastSeq).toBe(lastSeq);
  });

  test("a stream that clients publish into takes no batch", async () => {
    const { lastSeq } = await streamState(link.nc, "CHAT_s");
    const messages = [1, 2].map((n) => ({ subject: "cotal.s.chat.o.a.c", data: bytes(`${n}`) }));
    expect(await failure(publishBatch(link.nc, "CHAT_s", messages))).toMatchObject({ outcome: "not-executed" });
    expect((await streamState(link.nc, "CHAT_s")).lastSeq).toBe(lastSeq);
  });
});
