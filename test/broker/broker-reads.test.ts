/** Leader reads and pages on a real broker, with messages that a hostile sender wrote. */
import { connect as dial } from "node:net";
import { headers } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { ensureStreams } from "../../shared/broker/ensure.ts";
import { type Page, allRows, directPage, leaderGet, leaderLast, rowPage } from "../../shared/broker/reads.ts";
import { spaceStreams } from "../../shared/broker/resources.ts";
import { hasProvenance } from "../../shared/protocol/base/headers.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { ownBroker } from "../support/own-broker.ts";
import { failure } from "../support/refusal.ts";

let broker: TestBroker;
let link: Connection;

beforeAll(async () => {
  broker = await startBroker({
    config: (port, folder) => `
      listen: "127.0.0.1:${port}"
      jetstream { store_dir: "${folder}/store" }
      # What a daemon may do: answers reach it below its own inbox only.
      authorization { users: [
        { user: setup, password: x }
        { user: reader, password: x, permissions: { publish: ">", subscribe: "_INBOX_reader_1.>" } }
      ] }`,
  });
  link = await open("setup");
  await ensureStreams(link.nc, spaceStreams("s", { replicas: 1 }));
});

afterAll(async () => {
  await link?.close();
  await broker?.stop();
});

const open = (user: string): Promise<Connection> =>
  openConnection({
    servers: [broker.url],
    name: user,
    inboxPrefix: `_INBOX_${user}_1`,
    authenticator: { user, pass: () => "x" },
    reconnect: { kind: "bounded", attempts: 3 },
  });

async function post(subject: string, text: string): Promise<number> {
  return (await link.nc.request(subject, text)).json<{ seq: number }>().seq;
}

const text = (data: Uint8Array | undefined): string => new TextDecoder().decode(data);

/** Publishes a header block byte by byte, as no client library would. */
function publishRaw(subject: string, block: string, body: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = dial(broker.port, "127.0.0.1");
    socket.once("error", reject);
    socket.on("data", (chunk) => {
      if (!chunk.toString().includes("PONG")) return;
      socket.destroy();
      resolve();
    });
    socket.write(`CONNECT {"verbose":false,"headers":true,"user":"setup","pass":"x"}\r\n`);
    const total = Buffer.byteLength(block) + Buffer.byteLength(body);
    socket.write(`HPUB ${subject} ${Buffer.byteLength(block)} ${total}\r\n${block}${body}\r\nPING\r\n`);
  });
}

async function pages(filter: string, batch: number): Promise<Page[]> {
  const read: Page[] = [];
  let fromSeq: number | undefined = 1;
  while (fromSeq !== undefined) {
    const page: Page = await directPage(link.nc, "CHAT_s", { filter, fromSeq, batch });
    read.push(page);
    fromSeq = page.nextSeq;
  }
  return read;
}

describe("leader reads", () => {
  test("the last message of a subject, its headers, its time; nothing is undefined", async () => {
    const before = Date.now();
    const sent = headers();
    sent.append("A", "1");
    sent.append("A", "2");
    await link.nc.request("cotal.s.inst.a.b.c.d", "one");
    await link.nc.request("cotal.s.inst.a.b.c.d", "two", { headers: sent, timeout: 2000 });
    const last = await leaderLast(link.nc, "DM_s", "cotal.s.inst.a.b.c.d");
    expect(last).toMatchObject({ subject: "cotal.s.inst.a.b.c.d", seq: 2 });
    expect(text(last?.data)).toBe("two");
    expect(last?.headers?.values("A")).toEqual(["1", "2"]);
    expect(last?.timeMs).toBeGreaterThan(before - 60_000);
    const first = await leaderGet(link.nc, "DM_s", 1);
    expect(first?.headers).toBeUndefined();
    expect(text(first?.data)).toBe("one");
    expect(await leaderLast(link.nc, "DM_s", "cotal.s.inst.a.b.c.e")).toBeUndefined();
    expect(await leaderGet(link.nc, "DM_s", 99)).toBeUndefined();
  });

  test("an empty body and a delete marker are entries, not absence", async () => {
    const sent = headers();
    sent.set("KV-Operation", "DEL");
    await link.nc.request("$KV.cotal_acl_s.gone", "", { headers: sent, timeout: 2000 });
    const marker = await leaderLast(link.nc, "KV_cotal_acl_s", "$KV.cotal_acl_s.gone");
    expect(marker?.data).toHaveLength(0);
    expect(marker?.headers?.get("KV-Operation")).toBe("DEL");
  });

  test.each(["cotal.s.inst.*.b.c.d", "cotal.s.inst.>", "cotal..x"])("the pattern %s is refused", async (subject) => {
    expect(await failure(leaderLast(link.nc, "DM_s", subject))).toMatchObject({ code: "bad-request" });
  });

  test("a stream that does not exist is not-found, never absence", async () => {
    expect(await failure(leaderLast(link.nc, "DM_none", "cotal.none.inst.a"))).toMatchObject({ code: "not-found" });
  });
});

describe("pages of a stream", () => {
  test("W8.07: pages hold every message once, in order, and say where they end", async () => {
    const texts = Array.from({ length: 23 }, (_, n) => `m${n}`);
    for (const [n, body] of texts.entries()) await post(`cotal.s.chat.o.a${n % 3}.paged`, body);
    const read = await pages("cotal.s.chat.*.*.paged", 5);
    expect(read.flatMap(({ messages }) => messages.map(({ data }) => text(data)))).toEqual(texts);
    expect(read.map(({ messages }) => messages.length)).toEqual([5, 5, 5, 5, 3]);
    expect(read.map(({ done }) => done)).toEqual([false, false, false, false, true]);
    expect(read.at(-1)).not.toHaveProperty("nextSeq");
  });

  test("W8.07: a page may end at a sequence, start at a time, and stop at a byte bound", async () => {
    const first = await post("cotal.s.chat.o.a.range", "x".repeat(1000));
    const second = await post("cotal.s.chat.o.a.range", "y".repeat(1000));
    await post("cotal.s.chat.o.a.range", "z".repeat(1000));
    const filter = "cotal.s.chat.*.*.range";
    const upTo = await directPage(link.nc, "CHAT_s", { filter, upToSeq: second, batch: 10 });
    expect(upTo).toMatchObject({ done: true, messages: [{ seq: first }, { seq: second }] });
    const bytes = await directPage(link.nc, "CHAT_s", { filter, batch: 10, maxBytes: 1500 });
    expect(bytes).toMatchObject({ done: false });
    expect(bytes.messages.length).toBeLessThan(3);
    const one = await directPage(link.nc, "CHAT_s", { filter, batch: 10, maxBytes: 1 });
    expect(one).toMatchObject({ done: false, messages: [{ seq: first }], nextSeq: first + 1 });
    const since = (await leaderGet(link.nc, "CHAT_s", second))?.timeMs ?? 0;
    const from = await directPage(link.nc, "CHAT_s", { filter, startTimeMs: since + 1, batch: 10 });
    expect(from.messages.every(({ timeMs }) => timeMs >= since)).toBe(true);
    const future = await directPage(link.nc, "CHAT_s", { filter, startTimeMs: Date.now() + 60_000, batch: 10 });
    expect(future).toEqual({ messages: [], done: true });
  });

  test("nothing there is an empty page that is done", async () => {
    const page = await directPage(link.nc, "CHAT_s", { filter: "cotal.s.chat.*.*.nobody", batch: 10 });
    expect(page).toEqual({ messages: [], done: true });
  });

  test("W8.17: a stream without direct gets is unavailable by that way, and says what to look at", async () => {
    const error = await failure(directPage(link.nc, "DM_s", { filter: "cotal.s.inst.>", batch: 1 }));
    expect(error).toMatchObject({ code: "unavailable", outcome: "not-executed" });
    expect(error.next).toContain("direct gets");
  });

  test("answers reach a connection that may read below its own inbox only", async () => {
    await post("cotal.s.chat.o.a.inbox", "here");
    const reader = await open("reader");
    const page = await directPage(reader.nc, "CHAT_s", { filter: "cotal.s.chat.*.*.inbox", batch: 5 });
    expect(page.messages.map(({ data }) => text(data))).toEqual(["here"]);
    expect(text((await leaderLast(reader.nc, "CHAT_s", "cotal.s.chat.o.a.inbox"))?.data)).toBe("here");
    await reader.close();
  });

  test("an empty message, and one with a status line of its own, end no page", async () => {
    await post("cotal.s.chat.o.a.status", "first");
    await post("cotal.s.chat.o.a.status", "");
    await publishRaw("cotal.s.chat.o.a.status", "NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n", "");
    await publishRaw("cotal.s.chat.o.a.status", "NATS/1.0 503 No Responders\r\n\r\n", "");
    await post("cotal.s.chat.o.a.status", "last");
    const page = await directPage(link.nc, "CHAT_s", { filter: "cotal.s.chat.*.*.status", batch: 10 });
    expect(page.messages.map(({ data }) => text(data))).toEqual(["first", "", "", "", "last"]);
    expect(page.done).toBe(true);
  });

  test("a sender's own provenance headers move nothing, and stay for the check of stored copies", async () => {
    const block = ["Nats-Subject: cotal.s.chat.victim.v.forged", "Nats-Sequence: 1", "Nats-Stream: X", "Kept: yes"];
    await publishRaw("cotal.s.chat.o.a.forged", `NATS/1.0\r\n${block.join("\r\n")}\r\n\r\n`, "forged");
    const genuine = await post("cotal.s.chat.o.a.forged", "genuine");
    const filter = "cotal.s.chat.*.*.forged";
    const { messages } = await directPage(link.nc, "CHAT_s", { filter, batch: 10 });
    expect(messages.map(({ subject }) => subject)).toEqual(["cotal.s.chat.o.a.forged", "cotal.s.chat.o.a.forged"]);
    expect(messages.map(({ seq }) => seq)).toEqual([genuine - 1, genuine]);
    expect(messages.map((entry) => hasProvenance(entry.headers?.keys() ?? []))).toEqual([true, false]);
    expect(messages[0]?.headers?.get("Kept")).toBe("yes");
    expect(messages[1]?.headers).toBeUndefined();
  });

  test.each([
    ["a space in a name", "A B: x"],
    ["a name of bytes above 126", "Ä: x"],
    ["no name", ": x"],
    ["a bare carriage return", "A: x\ry"],
  ])("headers no client can decode (%s) spoil neither page nor leader read", async (_, line) => {
    const channel = `odd${Buffer.from(line).toString("hex")}`;
    const subject = `cotal.s.chat.o.a.${channel}`;
    const filter = `cotal.s.chat.*.*.${channel}`;
    await publishRaw(subject, `NATS/1.0\r\n${line}\r\nGood: yes\r\n\r\n`, "hostile first");
    await post(subject, "one");
    await publishRaw(subject, `NATS/1.0\r\n${line}\r\nGood: yes\r\n\r\n`, "hostile");
    await post(subject, "two");
    const read = (await pages(filter, 10)).flatMap(({ messages }) => messages);
    expect(read.map(({ data }) => text(data))).toEqual(["hostile first", "one", "hostile", "two"]);
    expect(read[2]?.headers?.get("Good")).toBe("yes");
    expect(read.map((entry) => entry.subject)).toEqual([subject, subject, subject, subject]);
    const from = await directPage(link.nc, "CHAT_s", { filter, startTimeMs: 0, batch: 10 });
    expect(from.messages.map(({ data }) => text(data))).toEqual(expect.arrayContaining(["hostile first"]));
  });
});

describe("pages of a bucket", () => {
  test("2,500 keys, each once with its last value, through pages that hold no more than asked", async () => {
    const bucket = "cotal_members_s";
    const keys = Array.from({ length: 2500 }, (_, n) => `k.${n}`);
    await Promise.all(keys.map((key) => link.nc.request(`$KV.${bucket}.${key}`, "old", { timeout: 20_000 })));
    await Promise.all(keys.map((key) => link.nc.request(`$KV.${bucket}.${key}`, key, { timeout: 20_000 })));
    const seen = new Map<string, string>();
    const sizes: number[] = [];
    let cursor: number | undefined;
    do {
      const page = await rowPage(link.nc, bucket, { limit: 400, ...(cursor === undefined ? {} : { cursor }) });
      sizes.push(page.rows.length);
      for (const row of page.rows) seen.set(row.key, text(row.data));
      ({ cursor } = page);
    } while (cursor !== undefined);
    expect(sizes).toEqual([400, 400, 400, 400, 400, 400, 100]);
    expect(Object.fromEntries(seen)).toEqual(Object.fromEntries(keys.map((key) => [key, key])));
  });

  test("a filter cuts, a marker is told from a value, and a row written during the walk is met again", async () => {
    const bucket = "cotal_acl_s";
    for (const key of ["w.a", "w.b", "w.c", "other.a"]) await post(`$KV.${bucket}.${key}`, "1");
    const sent = headers();
    sent.set("KV-Operation", "PURGE");
    await link.nc.request(`$KV.${bucket}.w.b`, "", { headers: sent, timeout: 2000 });
    const met: string[] = [];
    for await (const row of allRows(link.nc, bucket, { filter: "w.>", limit: 1 })) {
      met.push(`${row.key} ${row.kind} ${text(row.data)}`);
      const isFirst = met.length === 1;
      await Promise.all(isFirst ? [post(`$KV.${bucket}.w.a`, "2")] : []);
    }
    expect(met).toEqual(["w.a value 1", "w.c value 1", "w.b marker ", "w.a value 2"]);
  });

  test("a bucket without direct gets is walked at its leader, with the same pages", async () => {
    const bucket = "cotal_auth_s";
    for (const key of ["gate.a", "gate.b", "gate.c", "uid.a"]) await post(`$KV.${bucket}.${key}`, key);
    const first = await rowPage(link.nc, bucket, { filter: "gate.*", limit: 2, via: "leader" });
    expect(first.rows.map(({ key }) => key)).toEqual(["gate.a", "gate.b"]);
    const second = await rowPage(link.nc, bucket, {
      filter: "gate.*",
      limit: 2,
      via: "leader",
      cursor: first.cursor ?? 0,
    });
    expect(second.rows.map(({ key }) => key)).toEqual(["gate.c"]);
    expect(second).not.toHaveProperty("cursor");
    expect(await failure(rowPage(link.nc, bucket, { limit: 2 }))).toMatchObject({ code: "unavailable" });
  });

  // One waits for a row to expire, the other for a deadline: together.
  test.concurrent("W8.18: a presence row that nobody renews is gone by itself", async ({ expect }) => {
    await post("$KV.cotal_presence_s.o.a", "{}");
    expect((await rowPage(link.nc, "cotal_presence_s", { limit: 5 })).rows.map(({ key }) => key)).toEqual(["o.a"]);
    const rows = async (): Promise<unknown> => (await rowPage(link.nc, "cotal_presence_s", { limit: 5 })).rows;
    await expect.poll(rows, { timeout: 25_000, interval: 500 }).toEqual([]);
    expect(await leaderLast(link.nc, "KV_cotal_presence_s", "$KV.cotal_presence_s.o.a")).toBeUndefined();
  });

  test.concurrent("a broken page is an error, never a short list", async () => {
    const own = await ownBroker();
    const quick = await openConnection({
      servers: [own.url],
      name: "quick",
      inboxPrefix: "_INBOX_quick",
      reconnect: { kind: "endless" },
    });
    await ensureStreams(quick.nc, spaceStreams("s", { replicas: 1 }));
    await own.kill();
    expect(await failure(rowPage(quick.nc, "cotal_acl_s", { limit: 5 }))).toMatchObject({ code: "deadline-exceeded" });
    await quick.close();
  });
});
