/** History limits (§8) on a real broker: bounds, refusals, and what a change removes. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { ensureStreams, streamState } from "../../shared/broker/ensure.ts";
import { historyLimits, setHistoryLimits } from "../../shared/broker/limits.ts";
import { directPage } from "../../shared/broker/reads.ts";
import { spaceStreams } from "../../shared/broker/resources.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { failure } from "../support/refusal.ts";

const DAY = 86_400;

let broker: TestBroker;
let link: Connection;

beforeAll(async () => {
  broker = await startBroker();
  link = await openConnection({
    servers: [broker.url],
    name: "limits",
    inboxPrefix: "_INBOX_limits",
    reconnect: { kind: "bounded", attempts: 3 },
  });
  await ensureStreams(link.nc, specs);
});

afterAll(async () => {
  await link?.close();
  await broker?.stop();
});

const specs = spaceStreams("s", { replicas: 1 });
const none = { maxAgeSeconds: null, maxPerSubject: null };

describe("history limits", () => {
  test("W8.02 W8.12: a new space starts with none and 1000 for chat and copies, none and none for DM", async () => {
    expect(await historyLimits(link.nc, "CHAT_s")).toEqual({ maxAgeSeconds: null, maxPerSubject: 1000 });
    expect(await historyLimits(link.nc, "DM_s")).toEqual(none);
    expect(await historyLimits(link.nc, "DLV_s")).toEqual({ maxAgeSeconds: null, maxPerSubject: 1000 });
  });

  test.each([
    ["CHAT_s", 119],
    ["CHAT_s", 0],
    ["CHAT_s", -1],
    ["CHAT_s", 120.5],
    ["CHAT_s", Number.NaN],
    ["CHAT_s", 3651 * DAY],
    ["CHAT_s", 3650 * DAY + 1],
    ["DM_s", 119],
    ["DLV_s", 3600],
    ["DLV_s", 7199],
  ])("W8.02: %s refuses an age of %s seconds and keeps what it has", async (stream, maxAgeSeconds) => {
    const before = await historyLimits(link.nc, stream);
    const error = await failure(setHistoryLimits(link.nc, stream, { maxAgeSeconds, maxPerSubject: null }));
    expect(error).toMatchObject({ code: "bad-request", outcome: "not-executed" });
    expect(error.next).toContain("3650 days");
    expect(await historyLimits(link.nc, stream)).toEqual(before);
  });

  test.each([0, -1, 1.5, Number.NaN, Infinity])("W8.02: a count of %s is refused", async (maxPerSubject) => {
    const error = await failure(setHistoryLimits(link.nc, "CHAT_s", { maxAgeSeconds: null, maxPerSubject }));
    expect(error).toMatchObject({ code: "bad-request", outcome: "not-executed" });
  });

  test.each([
    ["CHAT_s", { maxAgeSeconds: 120, maxPerSubject: 1 }],
    ["CHAT_s", { maxAgeSeconds: 3650 * DAY, maxPerSubject: null }],
    ["CHAT_s", none],
    ["DM_s", { maxAgeSeconds: 120, maxPerSubject: 7 }],
    ["DM_s", none],
    ["DLV_s", { maxAgeSeconds: 7200, maxPerSubject: 5 }],
    ["DLV_s", none],
  ])("W8.02 W8.03: %s takes %j, reads it back, and setting up again leaves it", async (stream, limits) => {
    await setHistoryLimits(link.nc, stream, limits);
    expect(await historyLimits(link.nc, stream)).toEqual(limits);
    expect(await ensureStreams(link.nc, specs)).toEqual({ created: [], drift: [] });
    expect(await historyLimits(link.nc, stream)).toEqual(limits);
  });

  test("W8.03: only the limit changes", async () => {
    const { max_age: _, max_msgs_per_subject: __, ...before } = (await streamState(link.nc, "CHAT_s")).config;
    await setHistoryLimits(link.nc, "CHAT_s", { maxAgeSeconds: 600, maxPerSubject: 50 });
    expect((await streamState(link.nc, "CHAT_s")).config).toMatchObject(before);
  });

  test.each([
    ["from none", null],
    ["from a larger count", 1000],
  ])("W8.03: lowering %s removes at once, per sender and channel, oldest first", async (from, before) => {
    await setHistoryLimits(link.nc, "CHAT_s", { maxAgeSeconds: null, maxPerSubject: before });
    const channel = from.replaceAll(" ", "_");
    const subjects = [`cotal.s.chat.o.a.${channel}`, `cotal.s.chat.o.b.${channel}`];
    for (const subject of subjects) for (let n = 0; n < 10; n += 1) await link.nc.request(subject, `${n}`);
    const { lastSeq } = await streamState(link.nc, "CHAT_s");
    await setHistoryLimits(link.nc, "CHAT_s", { maxAgeSeconds: null, maxPerSubject: 3 });
    const left = await directPage(link.nc, "CHAT_s", { filter: `cotal.s.chat.*.*.${channel}`, batch: 100 });
    expect(left.messages.map(({ data }) => new TextDecoder().decode(data))).toEqual(["7", "8", "9", "7", "8", "9"]);
    expect((await streamState(link.nc, "CHAT_s")).lastSeq).toBe(lastSeq);
  });

  test("W8.03: a change that was interrupted on its way reads as none", async () => {
    const { config } = await streamState(link.nc, "DM_s");
    const update = { ...config, max_age: 0, max_msgs_per_subject: Number.MAX_SAFE_INTEGER };
    await link.nc.request("$JS.API.STREAM.UPDATE.DM_s", JSON.stringify(update));
    expect(await historyLimits(link.nc, "DM_s")).toEqual(none);
  });

  test("W8.03: a reader takes a limit that someone set past us", async () => {
    const { config } = await streamState(link.nc, "DM_s");
    const update = { ...config, max_age: 123_456_789_000_000, max_msgs_per_subject: 1_000_000 };
    await link.nc.request("$JS.API.STREAM.UPDATE.DM_s", JSON.stringify(update));
    expect(await historyLimits(link.nc, "DM_s")).toEqual({ maxAgeSeconds: 123_456.789, maxPerSubject: 1_000_000 });
  });

  test("W8.02: what has no history limit is refused, and stays", async () => {
    for (const stream of ["TASK_s", "EPF_s", "KV_cotal_auth_s"]) {
      expect(await failure(setHistoryLimits(link.nc, stream, none))).toMatchObject({ code: "bad-request" });
    }
    expect(await ensureStreams(link.nc, specs)).toEqual({ created: [], drift: [] });
  });

  test("a space that does not exist is not-found", async () => {
    expect(await failure(setHistoryLimits(link.nc, "CHAT_none", none))).toMatchObject({ code: "not-found" });
  });
});
