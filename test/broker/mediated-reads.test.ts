/** Mediated reads: history by channel and range, the registry, presence, each cut to the caller's ACL. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type NatsConnection, headers } from "@nats-io/transport-node";
import { leaderLast } from "../../shared/broker/reads.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { jsApi, kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { ownContract } from "../../shared/protocol/endpoint/own-contracts.ts";
import { type HistoryAnswer, RecordsAnswer } from "../../shared/protocol/endpoint/reads-shapes.ts";
import { ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import type { z } from "zod";
import { failure } from "../support/refusal.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";

/** As a deleted row stands in a bucket. */
const deleted = headers();
deleted.set("KV-Operation", "DEL");

type History = z.infer<typeof HistoryAnswer>;

let space: TestSpace;
let writer: Minted;
let reader: Minted;
let nc: NatsConnection;
const subjects = spaceSubjects("main");
const names = spaceNames("main");
const POSTS = 450;

beforeAll(async () => {
  space = await startSpace();
  writer = await space.mint({ actor: "writer", publish: [">"], subscribe: [">"] });
  reader = await space.mint({ actor: "reader", subscribe: ["news", "team.>"] });
  nc = await space.connect(writer);
  for (let index = 0; index < POSTS; index += 1) {
    nc.publish(subjects.chat(writer.view.principal, index % 3 === 0 ? "news" : "noise"), JSON.stringify({ index }));
  }
  await nc.request(subjects.chat(writer.view.principal, "last"), "{}");
});
afterAll(() => space.stop());

const ask = async (args: object, as: Minted = reader): Promise<History> =>
  (await space.call("history", args, { as })) as History;
const indexes = (page: History): number[] =>
  page.messages.map(({ data }) => (JSON.parse(data) as { index: number }).index);
const NEWS = Array.from({ length: POSTS / 3 }, (_, index) => index * 3);

describe("history", () => {
  test("W8.07: pages forward cover a channel once, in order", async () => {
    const read: number[] = [];
    let fromSeq: number | undefined = 1;
    while (fromSeq !== undefined) {
      const page: History = await ask({ channel: "news", fromSeq, limit: 40 });
      expect(page.messages.length).toBeLessThanOrEqual(40);
      read.push(...indexes(page));
      fromSeq = page.nextSeq;
    }
    expect(read).toEqual(NEWS);
  });

  test("W8.07: the last N come in order, also of a channel that is rare in the stream", async () => {
    expect(indexes(await ask({ channel: "news", last: 5 }))).toEqual(NEWS.slice(-5));
    nc.publish(subjects.chat(writer.view.principal, "team.rare"), JSON.stringify({ index: -1 }));
    for (let index = 0; index < 900; index += 1) nc.publish(subjects.chat(writer.view.principal, "noise"), "{}");
    await nc.request(subjects.chat(writer.view.principal, "noise"), "{}");
    expect(indexes(await ask({ channel: "team.rare", last: 5 }))).toEqual([-1]);
  });

  test("W8.07: a range ends where it was asked to", async () => {
    const all = await ask({ channel: "news", last: 20 });
    const [first, second, third] = all.messages;
    const page = await ask({ channel: "news", fromSeq: first?.seq, upToSeq: second?.seq });
    expect(page.messages.map(({ seq }) => seq)).toEqual([first?.seq, second?.seq]);
    const late = await ask({ channel: "news", sinceMs: third?.storedAt, last: undefined, limit: 1000 });
    expect(late.messages.every(({ storedAt }) => storedAt >= (third?.storedAt ?? 0))).toBe(true);
  });

  test("W8.07: two readers at once both complete", async () => {
    const pages = await Promise.all(Array.from({ length: 8 }, () => ask({ channel: "news", last: 100 })));
    for (const page of pages) expect(indexes(page)).toEqual(NEWS.slice(-100));
  });

  test("W8.07: a channel outside the ACL is refused, one under a family is not", async () => {
    expect(await failure(ask({ channel: "noise", last: 1 }))).toMatchObject({
      code: "permission-denied",
      outcome: "not-executed",
    });
    await ask({ channel: "team.backend.deep", last: 1 });
    expect((await failure(ask({ channel: "team", last: 1 }))).code).toBe("permission-denied");
  });

  test("W8.07 W12.01: a narrowed ACL holds at the next page, of a history that was begun before too", async () => {
    const agent = await space.mint({ actor: "narrowed", subscribe: ["news"] });
    const { nextSeq } = await ask({ channel: "news", limit: 10 }, agent);
    expect(nextSeq).toBeGreaterThan(1);
    const store = await space.store();
    const key = kvKey(names.bucket.acl, ledgerKey.acl(agent.view.principal, agent.view.uid));
    const stream = bucketStream(names.bucket.acl);
    const row = await leaderLast(store, stream, key);
    const narrowed = { ...(JSON.parse(new TextDecoder().decode(row?.data)) as object), allowSubscribe: [] };
    const bytes = new TextEncoder().encode(JSON.stringify(narrowed));
    await createWriter({ nc: store }).cas(stream, key, bytes, row?.seq ?? 0);
    for (const args of [{ fromSeq: nextSeq, limit: 10 }, { last: 1 }]) {
      expect(await failure(ask({ channel: "news", ...args }, agent))).toMatchObject({
        code: "permission-denied",
        outcome: "not-executed",
      });
    }
    expect((await failure(space.call("frontier", { channel: "news" }, { as: agent }))).code).toBe("permission-denied");
    expect(await space.call("channels", {}, { as: agent })).toMatchObject({ channels: [] });
    // Without a row at all it reads nothing.
    await store.request(key, "", { headers: deleted, timeout: 5000 });
    expect((await failure(space.call("channels", {}, { as: agent }))).code).toBe("permission-denied");
  });

  test("W8.07 there is one way to ask: the provisioner serves no read, and the broker lets nobody ask it for one", async () => {
    for (const command of ["history", "roster", "channels", "frontier", "artifacts", "endpoints", "dm-history"]) {
      const asked = space.call(command, { channel: "news" }, { as: reader, endpoint: EndpointName.Provisioner });
      expect((await failure(asked)).code).toBe("permission-denied");
    }
    expect([...ownContract(EndpointName.Provisioner).commands.keys()]).not.toContain("history");
  });

  test("a page is bounded in bytes and says where the next begins", async () => {
    const big = "x".repeat(60_000);
    for (let index = 0; index < 12; index += 1) {
      await nc.request(subjects.chat(writer.view.principal, "team.big"), JSON.stringify({ index, big }));
    }
    const read: number[] = [];
    let pages = 0;
    let fromSeq: number | undefined = 1;
    while (fromSeq !== undefined) {
      const page: History = await ask({ channel: "team.big", fromSeq, limit: 1000 });
      read.push(...indexes(page));
      fromSeq = page.nextSeq;
      pages += 1;
    }
    expect(read).toEqual(Array.from({ length: 12 }, (_, index) => index));
    expect(pages).toBeGreaterThan(2);
    const last = await ask({ channel: "team.big", last: 12 });
    expect(indexes(last)).toEqual([9, 10, 11]);
    expect(indexes(await ask({ channel: "team.big", last: 2, upToSeq: last.olderUpToSeq }))).toEqual([7, 8]);
  });

  test("bytes that are no text are counted, and do not hide their neighbours", async () => {
    const to = subjects.chat(writer.view.principal, "team.bytes");
    await nc.request(to, JSON.stringify({ index: 1 }));
    await nc.request(to, new Uint8Array([0xff, 0xfe, 0x00]));
    await nc.request(to, JSON.stringify({ index: 2 }));
    const page = await ask({ channel: "team.bytes", limit: 10 });
    expect(indexes(page)).toEqual([1, 2]);
    expect(page.unreadable).toBe(1);
  });

  test.each([
    { what: "a wildcard", args: { channel: "team.*", last: 1 } },
    { what: "4097 characters", args: { channel: "c".repeat(4097), last: 1 } },
    { what: "more than a page", args: { channel: "news", limit: 1001 } },
    { what: "a negative sequence", args: { channel: "news", fromSeq: -1 } },
    { what: "no channel", args: {} },
  ])("$what is refused as bad-request", async ({ args }) => {
    expect(await failure(ask(args))).toMatchObject({ code: "bad-request", outcome: "not-executed" });
  });

  test("W9.08: direct messages of the space are an admin's to read, and nobody else's", async () => {
    const inbox = subjects.inst(reader.view.principal, writer.view.principal);
    await nc.request(inbox, JSON.stringify({ index: 77 }));
    const admin = await space.mint({ actor: "admin", profile: "admin" });
    const page = (await space.call("dm-history", {}, { as: admin })) as History;
    expect(page.messages.map(({ subject }) => subject)).toContain(inbox);
    for (const as of [reader, await space.mint({ actor: "watcher", profile: "observer" })]) {
      expect((await failure(space.call("dm-history", {}, { as, deadlineMs: 3000 }))).code).toBe("permission-denied");
    }
  });
});

describe("the channel registry", () => {
  test("W7.01: settings are bounded, kept under a concrete channel, and removed by null", async () => {
    const set = (channel: string, change: object): Promise<unknown> =>
      space.call("channel-set", { channel, change: nulls(change) });
    expect(await set("team.one", { description: "the first", replayWindow: "24h", deliveryClass: "live" })).toEqual({
      config: { description: "the first", replayWindow: "24h", deliveryClass: "live" },
    });
    expect((await failure(set("team.*", { description: "x" }))).code).toBe("bad-request");
    expect((await failure(set("team.one", { replayWindow: "24 h" }))).code).toBe("bad-request");
    expect((await failure(set("team.one", { description: "d".repeat(201) }))).code).toBe("bad-request");
    expect((await failure(set("team.one", { instructions: "i".repeat(2001) }))).code).toBe("bad-request");
    expect(await set("team.one", { replay: false })).toEqual({ config: { replay: false } });
  });

  test("W7.01: a reader sees the channels of its list, and the defaults", async () => {
    await space.call("channel-set", { channel: "hidden", change: nulls({ description: "not for all" }) });
    const answer = (await space.call("channels", {}, { as: reader })) as {
      channels: { channel: string }[];
      defaults: object;
    };
    expect(answer.defaults).toEqual({ deliveryClass: "durable" });
    expect(answer.channels.map(({ channel }) => channel)).toEqual(["team.one"]);
  });

  test("W7.08: the join watermark is the last sequence, and only for a readable pattern", async () => {
    const { frontier } = (await space.call("frontier", { channel: "team.>" }, { as: reader })) as { frontier: number };
    const ack = (await nc.request(subjects.chat(writer.view.principal, "team.next"), "{}")).json<{ seq: number }>();
    expect(frontier).toBe(ack.seq - 1);
    expect((await failure(space.call("frontier", { channel: ">" }, { as: reader }))).code).toBe("permission-denied");
  });

  test("changes that meet are both kept", async () => {
    const fields = ["description", "instructions"];
    await Promise.all(
      fields.map((field) => space.call("channel-set", { channel: "met", change: { ...KEEP, [field]: field } })),
    );
    const answer = (await space.call("channels", {}, { as: writer })) as {
      channels: { channel: string; config: object }[];
    };
    expect(answer.channels.find(({ channel }) => channel === "met")?.config).toEqual({
      description: "description",
      instructions: "instructions",
    });
  });
});

describe("records", () => {
  const page = async (args: object, as: Minted = reader) =>
    RecordsAnswer.parse(await space.call("records", args, { as }));
  const OWN = `svc.com_acme_r.${"r".repeat(24)}`;

  test("PD.07 what every member may read comes in pages, each record once, with its revision; a snapshot is bounded", async () => {
    const store = await space.store();
    const put = async (key: string, value: unknown): Promise<number> =>
      (await store.request(kvKey(names.bucket.records, key), JSON.stringify(value))).json<{ seq: number }>().seq;
    const revisions = new Map<string, number>();
    for (let index = 0; index < 700; index += 1) {
      const key = `${OWN}${String(index)
        .padStart(4, "0")
        .replaceAll(/\d/g, (digit) => "abcdefghij"[Number(digit)] ?? "")}.spec`;
      revisions.set(key, await put(key, { index, filler: "x".repeat(1000) }));
    }
    await put(`lifecycle.u_x.secret`, { hidden: true });
    const seen = new Map<string, number>();
    let pages = 0;
    let cursor: number | undefined;
    do {
      const { records, ...next }: Awaited<ReturnType<typeof page>> = await page({
        kind: "svc",
        ...(cursor === undefined ? {} : { cursor }),
      });
      expect(Buffer.byteLength(JSON.stringify(records))).toBeLessThan(450_000);
      for (const { key, revision } of records) {
        expect(key.startsWith("svc.")).toBe(true);
        if (!key.startsWith(OWN)) continue;
        expect(seen.has(key)).toBe(false);
        seen.set(key, revision);
      }
      ({ cursor } = next);
      pages += 1;
    } while (cursor !== undefined);
    expect(seen).toEqual(revisions);
    expect(pages).toBeGreaterThan(1);
    expect(await page({ kind: "svc", cursor: Number.MAX_SAFE_INTEGER })).toEqual({ records: [] });
    expect(await page({ kind: "contracts" })).toEqual({ records: [] });
  }, 60_000);

  test.each([
    "lifecycle",
    "uid",
    "frontier",
    "govern",
    "policy",
    "svc.>",
    "*",
    ">",
    "svc.com_acme_x",
    "",
    "constructor",
  ])("PD.07 the kind %j is none that a member reads", async (kind) => {
    expect(await failure(page({ kind }))).toMatchObject({ code: "bad-request", outcome: "not-executed" });
  });

  test.each([
    { kind: "svc", cursor: -1 },
    { kind: "svc", cursor: 1.5 },
    { kind: "svc", filter: ">" },
    {},
    { kind: ["svc"] },
  ])("PD.07 %j is refused as bad-request", async (args) => {
    expect((await failure(page(args))).code).toBe("bad-request");
  });
});

describe("presence", () => {
  test("W6.14: 1,500 records are listed in pages, and no consumer is left on the stream", async () => {
    const store = await space.store();
    const bucket = names.bucket.presence;
    const owner = writer.view.principal.owner;
    for (let index = 0; index < 1500; index += 1) {
      const key = dotForm({ owner, actor: `peer_${index}` });
      store.publish(kvKey(bucket, key), JSON.stringify({ card: { id: key } }));
    }
    await store.flush();
    const keys = new Set<string>();
    let cursor: number | undefined;
    do {
      const page = (await space.call(
        "roster",
        { limit: 400, ...(cursor === undefined ? {} : { cursor }) },
        { as: reader },
      )) as {
        records: { key: string }[];
        cursor?: number;
      };
      for (const { key } of page.records) keys.add(key);
      ({ cursor } = page);
    } while (cursor !== undefined);
    expect(keys.size).toBe(1500);
    const consumers = (await store.request(jsApi.consumerNames(bucketStream(bucket)))).json<{ total: number }>();
    expect(consumers.total).toBe(0);
  });
});

/** Fields that a change leaves alone are left out; the wire shape wants the others named. */
const KEEP = {};
const nulls = (change: object): object => ({
  replayWindow: null,
  deliveryClass: null,
  description: null,
  instructions: null,
  ...change,
});
