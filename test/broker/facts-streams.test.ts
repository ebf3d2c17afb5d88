/**
 * Facts about streams and rows that the ledger, the message stores and the timers rest on, each
 * against a bare broker.
 */
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BareBroker, startBareBroker } from "../support/bare-accounts.ts";
import { publishOptions, tap } from "../support/probe.ts";
import { type Answer, api, dump, makeDurable, makeStream, put, streamFacts } from "../support/raw-jetstream.ts";
import { until } from "../support/until.ts";

let broker: BareBroker;
let nc: NatsConnection;

beforeAll(async () => {
  broker = await startBareBroker({ A: { jetstream: true, users: { root: {} } } });
  nc = await broker.login("root");
}, 60_000);

afterAll(() => broker.end());

const EXPECTED = "Nats-Expected-Last-Subject-Sequence";
const code = (answer: Answer): number | undefined => answer.error?.err_code;
/** A publish of raw headers that nothing answers but by its reply. */
const send = (subject: string, data: string, headers: Record<string, string>) =>
  nc.publish(subject, data, publishOptions({ headers }));

/** Everything one direct get answers, to its end. */
async function directAnswers(stream: string, body: object): Promise<{ rows: string[]; status: number }> {
  const rows: string[] = [];
  let status = 0;
  const inbox = `_INBOX.direct.${Math.random().toString(36).slice(2)}`;
  const subscription = nc.subscribe(inbox, {
    callback: (_: Error | null, message: Msg) => {
      const said = message.headers?.code ?? 0;
      if (said === 0) rows.push(message.headers?.get("Nats-Subject") ?? "");
      else status = said;
    },
  });
  nc.publish(`$JS.API.DIRECT.GET.${stream}`, JSON.stringify(body), { reply: inbox });
  await until("the batch ended", () => status !== 0);
  subscription.unsubscribe();
  return { rows, status };
}

describe("compare-and-set", () => {
  beforeAll(() => makeStream(nc, "ROWS", { subjects: ["rows.>"], max_msgs_per_subject: 1 }));

  test("a lost expectation is refused with 10071 and stores nothing", async () => {
    const first = await put(nc, "rows.a", "1", { [EXPECTED]: "0" });
    const lost = await put(nc, "rows.a", "2", { [EXPECTED]: "0" });
    expect([first["seq"], code(lost)]).toEqual([1, 10_071]);
    expect((await dump(nc, "ROWS")).map(({ data }) => data)).toEqual(["1"]);
  });

  test("the refusal of an expectation tells the last sequence of a subject: an oracle that stays", async () => {
    const [own, other] = [await put(nc, "rows.mine", "x"), await put(nc, "rows.theirs", "y")];
    const answer = await put(nc, "rows.mine", "z", {
      [EXPECTED]: "0",
      "Nats-Expected-Last-Subject-Sequence-Subject": "rows.theirs",
    });
    expect(own["seq"]).not.toBe(other["seq"]);
    // 10164: the other subject is answered for only where it is the publish's own.
    expect([10_071, 10_164]).toContain(code(answer));
    expect(code(await put(nc, "rows.mine", "z", { "Nats-Expected-Last-Sequence": "1" }))).toBe(10_071);
  });

  test("a delete marker counts as a row: create over it is refused, a CAS on the marker has one winner of 20", async () => {
    await put(nc, "rows.k", "live");
    const marker = await put(nc, "rows.k", "", { "KV-Operation": "DEL" });
    expect(code(await put(nc, "rows.k", "again", { [EXPECTED]: "0" }))).toBe(10_071);
    const expected = { [EXPECTED]: String(marker["seq"]) };
    const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => put(nc, "rows.k", `${n}`, expected)));
    expect(answers.filter((answer) => answer.error === undefined)).toHaveLength(1);
    expect(answers.filter((answer) => code(answer) === 10_071)).toHaveLength(19);
  });
});

describe("what a stream denies", () => {
  const DENIED = { deny_delete: true, deny_purge: true, max_msgs_per_subject: 1 };

  test("deny_delete and deny_purge hold and can't be undone; a delete of the whole stream remains", async () => {
    await makeStream(nc, "FAST", { subjects: ["fast.>"], ...DENIED });
    await put(nc, "fast.a", "1");
    expect(code(await api(nc, "STREAM.PURGE.FAST"))).toBe(10_110);
    expect(code(await api(nc, "STREAM.MSG.DELETE.FAST", { seq: 1 }))).toBe(10_057);
    const loosened = { name: "FAST", subjects: ["fast.>"], storage: "file", max_msgs_per_subject: 1 };
    expect(code(await api(nc, "STREAM.UPDATE.FAST", loosened))).toBe(10_052);
    expect((await streamFacts(nc, "FAST"))?.messages).toBe(1);
    expect((await api(nc, "STREAM.DELETE.FAST"))["success"]).toBe(true);
  });

  test.each([
    ["schedules", { allow_msg_schedules: true, allow_msg_ttl: true }],
    ["delete markers with a life", { subject_delete_marker_ttl: 60e9, allow_msg_ttl: true }],
  ])("%s turn deny_purge off and rollup on in silence, and pedantic makes that an error", async (_, setting) => {
    const config = { name: "LOOSE", subjects: ["loose.>"], storage: "file", ...DENIED, deny_delete: false, ...setting };
    const pedantic = await api(nc, "STREAM.CREATE.LOOSE", { ...config, pedantic: true });
    expect(pedantic.error?.code).toBeGreaterThanOrEqual(400);
    const silent = await api(nc, "STREAM.CREATE.LOOSE", config);
    const made = silent["config"] as { deny_purge?: boolean; allow_rollup_hdrs?: boolean };
    await api(nc, "STREAM.DELETE.LOOSE");
    expect([made.deny_purge ?? false, made.allow_rollup_hdrs]).toEqual([false, true]);
  });

  test.each<[string, Record<string, string>, number]>([
    ["rollup", { "Nats-Rollup": "all" }, 10_111],
    ["rollup of a subject", { "Nats-Rollup": "sub" }, 10_111],
    ["a life", { "Nats-TTL": "1" }, 10_166],
    ["a schedule", { "Nats-Schedule": "@at 2030-01-01T00:00:00Z", "Nats-Schedule-Target": "plain.b" }, 10_188],
    ["a counter", { "Nats-Incr": "+1" }, 10_168],
    ["a batch", { "Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1" }, 10_174],
  ])("a stream that did not allow it refuses a publisher's header for %s", async (_, headers, refusal) => {
    if ((await streamFacts(nc, "PLAIN")) === undefined) await makeStream(nc, "PLAIN", { subjects: ["plain.>"] });
    await put(nc, "plain.a", "stays");
    const before = await dump(nc, "PLAIN");
    expect(code(await put(nc, "plain.a", "x", headers))).toBe(refusal);
    expect(await dump(nc, "PLAIN")).toEqual(before);
  });

  test("a life is whole seconds, at least one", async () => {
    await makeStream(nc, "TTL", { subjects: ["ttl.>"], allow_msg_ttl: true });
    expect(code(await put(nc, "ttl.a", "x", { "Nats-TTL": "100ms" }))).toBe(10_165);
    expect(code(await put(nc, "ttl.a", "x", { "Nats-TTL": "1" }))).toBeUndefined();
  });

  test("a message id is remembered over subjects and senders: a squatted one answers duplicate and stores nothing", async () => {
    await makeStream(nc, "IDS", { subjects: ["ids.*"] });
    const id = { "Nats-Msg-Id": "guessed" };
    await put(nc, "ids.mallory", "squat", id);
    const honest = await put(nc, "ids.alice", "mine", id);
    expect([honest["duplicate"], honest["seq"]]).toEqual([true, 1]);
    await api(nc, "STREAM.PURGE.IDS");
    expect((await put(nc, "ids.alice", "mine", id))["duplicate"]).toBe(true);
  });
});

describe("batched direct gets", () => {
  beforeAll(async () => {
    await makeStream(nc, "MANY", { subjects: ["many.>"], allow_direct: true, max_msgs_per_subject: 1 });
    for (let n = 0; n < 1100; n += 1) nc.publish(`many.${n}`, "x");
    await until("all are stored", async () => (await streamFacts(nc, "MANY"))?.messages === 1100);
  });

  test("multi_last over more than 1024 subjects fails with 413, whatever the batch", async () => {
    expect(await directAnswers("MANY", { multi_last: ["many.>"], batch: 10 })).toEqual({ rows: [], status: 413 });
  });

  test("next_by_subj pages: 204 ends a batch, 404 is the end", async () => {
    const page = await directAnswers("MANY", { seq: 1099, next_by_subj: "many.>", batch: 5 });
    const end = await directAnswers("MANY", { seq: 1101, next_by_subj: "many.>", batch: 5 });
    expect([page, end]).toEqual([
      { rows: ["many.1098", "many.1099"], status: 204 },
      { rows: [], status: 404 },
    ]);
  });
});

describe("atomic batches", () => {
  beforeAll(() => makeStream(nc, "BATCH", { subjects: ["batch.>"], allow_atomic: true }));

  async function batch(
    id: string,
    items: readonly { subject: string; headers?: Record<string, string> }[],
  ): Promise<Answer> {
    const last = items.length - 1;
    for (const [n, item] of items.entries()) {
      const headers = { "Nats-Batch-Id": id, "Nats-Batch-Sequence": String(n + 1), ...item.headers };
      if (n === last) return put(nc, item.subject, id, { ...headers, "Nats-Batch-Commit": "1" });
      send(item.subject, id, headers);
    }
    throw new Error("an empty batch");
  }

  test("commits as a whole", async () => {
    const answer = await batch("good", [{ subject: "batch.a" }, { subject: "batch.b" }, { subject: "batch.marker" }]);
    expect([answer.error, answer["count"], (await streamFacts(nc, "BATCH"))?.messages]).toEqual([undefined, 3, 3]);
  });

  test("one failed expectation aborts all of it with 10071", async () => {
    const before = await dump(nc, "BATCH");
    const answer = await batch("lost", [
      { subject: "batch.a" },
      { subject: "batch.b" },
      { subject: "batch.marker", headers: { [EXPECTED]: "1" } },
    ]);
    expect([code(answer), await dump(nc, "BATCH")]).toEqual([10_071, before]);
  });

  test("one duplicate aborts all of it with 10201", async () => {
    await put(nc, "batch.a", "x", { "Nats-Msg-Id": "seen" });
    const before = await dump(nc, "BATCH");
    const answer = await batch("twice", [
      { subject: "batch.b" },
      { subject: "batch.c", headers: { "Nats-Msg-Id": "seen" } },
    ]);
    expect([code(answer), await dump(nc, "BATCH")]).toEqual([10_201, before]);
  });

  test("a gap, and more than 1000 messages, abort it", async () => {
    const before = await dump(nc, "BATCH");
    send("batch.a", "gap", { "Nats-Batch-Id": "gap", "Nats-Batch-Sequence": "1" });
    const gap = await put(nc, "batch.a", "gap", {
      "Nats-Batch-Id": "gap",
      "Nats-Batch-Sequence": "3",
      "Nats-Batch-Commit": "1",
    });
    const large = await batch(
      "large",
      Array.from({ length: 1001 }, () => ({ subject: "batch.a" })),
    );
    expect([gap.error === undefined, large.error === undefined]).toEqual([false, false]);
    expect(await dump(nc, "BATCH")).toEqual(before);
  });
});

describe("schedules", () => {
  beforeAll(() =>
    makeStream(nc, "TIMER", {
      subjects: ["timer.*.armed", "timer.*.fire"],
      allow_msg_schedules: true,
      allow_rollup_hdrs: true,
      allow_msg_ttl: true,
    }),
  );
  const at = (time: string, target: string) => ({ "Nats-Schedule": `@at ${time}`, "Nats-Schedule-Target": target });
  const PAST = "2020-01-01T00:00:00Z";

  test("a past time fires at once, with the scheduler named; core subscribers don't see it and a consumer does", async () => {
    const core = await tap(nc, "timer.a.fire");
    await makeDurable(nc, "TIMER", "fires", { filter_subject: "timer.*.fire" });
    await put(nc, "timer.a.armed", "due", at(PAST, "timer.a.fire"));
    const inbox = await tap(nc, "_INBOX.fires");
    nc.publish("$JS.API.CONSUMER.MSG.NEXT.TIMER.fires", JSON.stringify({ batch: 1, expires: 5e9 }), {
      reply: "_INBOX.fires",
    });
    await until("it was delivered", () => inbox.messages.length > 0);
    const [fired] = inbox.messages;
    expect([fired?.subject, fired?.string()]).toEqual(["timer.a.fire", "due"]);
    expect([fired?.headers?.get("Nats-Scheduler"), fired?.headers?.get("Nats-Schedule-Next")]).toEqual([
      "timer.a.armed",
      "purge",
    ]);
    expect(core.messages).toEqual([]);
  });

  test("a target outside the stream or equal to the source is refused", async () => {
    for (const target of ["elsewhere.x", "timer.b.armed"]) {
      expect((await put(nc, "timer.b.armed", "x", at(PAST, target))).error?.code).toBeGreaterThanOrEqual(400);
    }
  });

  test.each<[string, Record<string, string>]>([
    ["the scheduler alone", { "Nats-Scheduler": "timer.c.armed" }],
    ["the next time alone", { "Nats-Schedule-Next": "purge" }],
    ["its own subject", { "Nats-Scheduler": "timer.c.fire", "Nats-Schedule-Next": "purge" }],
    ["another next", { "Nats-Scheduler": "timer.c.armed", "Nats-Schedule-Next": "2035-01-01T00:00:00Z" }],
  ])("a forged scheduler header is refused with 10212: %s", async (_, headers) => {
    expect(code(await put(nc, "timer.c.fire", "x", headers))).toBe(10_212);
  });

  test("a whole forged pair is stored as if it had fired, and purges the schedule it names: nobody but the timer writer may publish here", async () => {
    await put(nc, "timer.e.armed", "theirs", at("2035-01-01T00:00:00Z", "timer.e.fire"));
    const forged = await put(nc, "timer.f.fire", "forged", {
      "Nats-Scheduler": "timer.e.armed",
      "Nats-Schedule-Next": "purge",
    });
    expect(forged.error).toBeUndefined();
    expect((await dump(nc, "TIMER")).map(({ subject }) => subject)).not.toContain("timer.e.armed");
  });

  test("a stream without schedules doesn't act on a scheduler pair: the row it names stays", async () => {
    await makeStream(nc, "CALM", { subjects: ["calm.*"] });
    await put(nc, "calm.row", "stays");
    await put(nc, "calm.other", "x", { "Nats-Scheduler": "calm.row", "Nats-Schedule-Next": "purge" });
    expect((await dump(nc, "CALM"))[0]).toMatchObject({ subject: "calm.row", data: "stays" });
  });

  test("the same subject again replaces the schedule", async () => {
    await put(nc, "timer.d.armed", "first", at("2035-01-01T00:00:00Z", "timer.d.fire"));
    await put(nc, "timer.d.armed", "second", at(PAST, "timer.d.fire"));
    await until("it fired", async () => (await dump(nc, "TIMER")).some(({ subject }) => subject === "timer.d.fire"));
    expect(
      (await dump(nc, "TIMER")).filter(({ subject }) => subject.startsWith("timer.d")).map(({ data }) => data),
    ).toEqual(["second"]);
  });
});

describe("shared durables", () => {
  test("a made-up ack subject settles what somebody else holds: bound by the durable, not by the holder", async () => {
    await makeStream(nc, "WORK", { subjects: ["work.>"], retention: "workqueue" });
    await makeDurable(nc, "WORK", "svc");
    await put(nc, "work.a", "job");
    const holder = await tap(nc, "_INBOX.holder");
    nc.publish("$JS.API.CONSUMER.MSG.NEXT.WORK.svc", JSON.stringify({ batch: 1 }), { reply: "_INBOX.holder" });
    await until("it is held", () => holder.messages.length === 1);
    const other = await broker.login("root");
    other.publish("$JS.ACK.WORK.svc.1.1.1.0.0", "+ACK");
    await until("it is gone", async () => (await streamFacts(nc, "WORK"))?.messages === 0);
    expect((await streamFacts(nc, "WORK"))?.messages).toBe(0);
  });

  test("bounds of a pull are the durable's: more than max_batch or max_expires is refused with 409", async () => {
    await makeStream(nc, "BOUND", { subjects: ["bound.>"] });
    await makeDurable(nc, "BOUND", "own", { max_batch: 1, max_expires: 30e9, max_waiting: 2 });
    const answer = async (body: object): Promise<number | undefined> => {
      const said = await nc.request("$JS.API.CONSUMER.MSG.NEXT.BOUND.own", JSON.stringify(body), { timeout: 5000 });
      return said.headers?.code;
    };
    expect([await answer({ batch: 2, no_wait: true }), await answer({ batch: 1, expires: 31e9 })]).toEqual([409, 409]);
    const waiting = await tap(nc, "_INBOX.waiting");
    for (let n = 0; n < 2; n += 1) {
      nc.publish("$JS.API.CONSUMER.MSG.NEXT.BOUND.own", JSON.stringify({ batch: 1, expires: 20e9 }), {
        reply: "_INBOX.waiting",
      });
    }
    expect(await answer({ batch: 1, expires: 1e9 })).toBe(409);
    waiting.stop();
  });
});
