/** Streams and durables on a real broker: made once, never changed, and their drift named. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import {
  deleteConsumer,
  ensureConsumer,
  ensureStreams,
  streamState,
  verifyConsumer,
  verifyStreams,
} from "../../shared/broker/ensure.ts";
import { type StreamSpec, dlvConsumer, dmConsumer, roleConsumer, spaceStreams } from "../../shared/broker/resources.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { failure } from "../support/refusal.ts";

const UID = "abcdefghijklmnopqrstuvwx23";
const alice = { owner: "u_aaaaaaaaaaaaaaaaaaaaaaaaaa", actor: "alice" };

let broker: TestBroker;
let one: Connection;
let two: Connection;

const open = (name: string): Promise<Connection> =>
  openConnection({
    servers: [broker.url],
    name,
    inboxPrefix: `_INBOX_${name}`,
    reconnect: { kind: "bounded", attempts: 20 },
  });

beforeAll(async () => {
  broker = await startBroker();
  [one, two] = await Promise.all([open("one"), open("two")]);
});

afterAll(async () => {
  await Promise.all([one?.close(), two?.close()]);
  await broker?.stop();
});

/** A raw API request, past the code under test. */
async function api(subject: string, body: object | "" = ""): Promise<Record<string, unknown>> {
  const answer = await one.nc.request(`$JS.API.${subject}`, body === "" ? "" : JSON.stringify(body));
  return answer.json<Record<string, unknown>>();
}

async function configOf(stream: string): Promise<Record<string, unknown>> {
  return { ...(await streamState(one.nc, stream)).config };
}

const specsOf = (space: string) => spaceStreams(space, { replicas: 1 });

function specOf(space: string, name: string): StreamSpec {
  const found = specsOf(space).find((spec) => spec.name === name);
  if (found === undefined) throw new Error(`no ${name}`);
  return found;
}

describe("streams", () => {
  test("PH.02 W8.01: all are made, the broker shows the shape it was asked for, and again makes nothing", async () => {
    const specs = specsOf("made");
    const first = await ensureStreams(one.nc, specs);
    expect(first).toEqual({ created: specs.map(({ name }) => name), drift: [] });
    expect(await ensureStreams(one.nc, specs)).toEqual({ created: [], drift: [] });
    expect(await verifyStreams(one.nc, specs)).toEqual([]);
    expect(await configOf("CHAT_made")).toMatchObject({
      storage: "file",
      discard: "old",
      allow_msg_ttl: false,
      allow_direct: true,
      max_age: 0,
      max_msgs_per_subject: 1000,
    });
    expect(await configOf("DM_made")).toMatchObject({ allow_direct: false, max_age: 0, max_msgs_per_subject: -1 });
    expect(await configOf("TASK_made")).toMatchObject({ allow_direct: false, retention: "workqueue" });
  });

  test("W8.18: the broker shows the buckets as §8's table has them", async () => {
    await ensureStreams(one.nc, specsOf("made"));
    expect(await configOf("KV_cotal_presence_made")).toMatchObject({ max_age: 6e9, max_msgs_per_subject: 1 });
    expect(await configOf("KV_cotal_channels_made")).toMatchObject({ max_age: 0, max_msgs_per_subject: 1 });
    const unbounded = { max_bytes: -1, max_age: 0, max_msgs_per_subject: 1 };
    expect(await configOf("KV_cotal_membership_made")).toMatchObject({ ...unbounded, max_msg_size: 262_144 });
    expect(await configOf("KV_cotal_anycast_made")).toMatchObject({ ...unbounded, max_msg_size: 65_536 });
  });

  test("PH.02: two processes that set up the same space at once both end well", async () => {
    const specs = specsOf("race");
    const ran = await Promise.all([
      ensureStreams(one.nc, specs),
      ensureStreams(two.nc, specs),
      ensureStreams(two.nc, specs.toReversed()),
    ]);
    const made = new Set(ran.flatMap(({ created }) => created));
    expect([...made].toSorted()).toEqual(specs.map(({ name }) => name).toSorted());
    expect(ran.flatMap(({ drift }) => drift)).toEqual([]);
  });

  test("W8.03: setting up an existing space changes no limit, and a changed limit is no drift", async () => {
    const specs = specsOf("limit");
    await ensureStreams(one.nc, specs);
    const config = await configOf("CHAT_limit");
    await api("STREAM.UPDATE.CHAT_limit", { ...config, max_age: 3600e9, max_msgs_per_subject: 5 });
    expect(await ensureStreams(two.nc, specs)).toEqual({ created: [], drift: [] });
    expect(await configOf("CHAT_limit")).toMatchObject({ max_age: 3600e9, max_msgs_per_subject: 5 });
  });

  const mutations: readonly (readonly [string, Record<string, unknown>, string])[] = [
    ["CHAT", { discard: "new" }, "discard"],
    ["CHAT", { allow_msg_ttl: true }, "allow_msg_ttl"],
    ["DM", { allow_direct: true }, "allow_direct"],
    ["DM", { allow_atomic: true }, "allow_atomic"],
    ["EPF", { max_bytes: 1_000_000 }, "max_bytes"],
    ["EPC", { max_age: 3600e9 }, "max_age"],
    ["EPC", { discard_new_per_subject: false }, "discard_new_per_subject"],
    ["DLV", { allow_atomic: false }, "allow_atomic"],
    ["KV_cotal_auth", { allow_direct: true }, "allow_direct"],
    ["KV_cotal_auth", { republish: { src: ">", dest: "stolen.>" } }, "republish"],
    ["KV_cotal_presence", { max_age: 10e9, duplicate_window: 5e9 }, "max_age"],
  ];

  test.each(mutations)("PH.02: a mutated setting is named, not mended: %s %j", async (stream, change, field) => {
    const name = `${stream}_mutate`;
    const specs = [specOf("mutate", name)];
    await api(`STREAM.DELETE.${name}`);
    await ensureStreams(one.nc, specs);
    expect(await api(`STREAM.UPDATE.${name}`, { ...(await configOf(name)), ...change })).not.toHaveProperty("error");
    const { created, drift } = await ensureStreams(one.nc, specs);
    expect(created).toEqual([]);
    expect(drift.map((found) => [found.stream, found.field])).toContainEqual([name, field]);
    // The broker leaves out what is false.
    const now = await configOf(name);
    for (const [key, value] of Object.entries(change))
      expect({ [key]: now[key] ?? false }).toMatchObject({ [key]: value });
  });

  test("A.08: what is missing is a drift of the field stream, and verifying makes nothing", async () => {
    const specs = [specOf("absent", "DM_absent")];
    const expected = [{ stream: "DM_absent", field: "stream", expected: "present", found: "absent" }];
    expect(await verifyStreams(one.nc, specs)).toEqual(expected);
    expect(await verifyStreams(one.nc, specs)).toEqual(expected);
  });

  test("a stream that captures what is ours already is refused, with its number", async () => {
    await api("STREAM.CREATE.SQUAT", { name: "SQUAT", subjects: ["cotal.squat.>"] });
    const error = await failure(ensureStreams(one.nc, [specOf("squat", "CHAT_squat")]));
    expect(error).toMatchObject({ code: "failed-precondition", outcome: "not-executed" });
    await api("STREAM.DELETE.SQUAT");
  });

  test.each([
    ["EPC_deny", "cotal.deny.epc.aa"],
    ["EPF_deny", "cotal.deny.epf.e.dec.x"],
    ["KV_cotal_issued_deny", "$KV.cotal_issued_deny.a"],
    ["KV_cotal_accepted_deny", "$KV.cotal_accepted_deny.a"],
    ["KV_cotal_admission_deny", "$KV.cotal_admission_deny.a"],
    ["KV_cotal_records_deny", "$KV.cotal_records_deny.a"],
    ["KV_cotal_auth_deny", "$KV.cotal_auth_deny.natkey.a"],
  ])("PH.05: neither a purge nor a delete reaches a row of %s", async (stream, subject) => {
    await ensureStreams(one.nc, specsOf("deny"));
    const { seq } = (await one.nc.request(subject, "fact")).json<{ seq: number }>();
    expect(await api(`STREAM.PURGE.${stream}`, {})).toMatchObject({ error: { err_code: 10110 } });
    expect(await api(`STREAM.MSG.DELETE.${stream}`, { seq })).toMatchObject({ error: { err_code: 10057 } });
    const unlocked = { ...(await configOf(stream)), deny_delete: false, deny_purge: false };
    expect(await api(`STREAM.UPDATE.${stream}`, unlocked)).toHaveProperty("error");
    expect((await streamState(one.nc, stream)).messages).toBe(1);
  });

  test("PH.02: a row of the auth bucket leaves under a marker pinned to it, and the marker leaves by itself", async () => {
    await ensureStreams(one.nc, specsOf("deny"));
    const [stream, subject] = ["KV_cotal_auth_deny", "$KV.cotal_auth_deny.natkey.x"];
    const others = (await streamState(one.nc, stream)).messages;
    const { seq } = (await one.nc.request(subject, "old")).json<{ seq: number }>();
    await one.nc.request(subject, "renewed");
    const writer = createWriter({ nc: one.nc });
    const marker = { headers: { "KV-Operation": "PURGE", "Nats-TTL": "1" } };
    const late = await failure(writer.cas(stream, subject, new Uint8Array(), seq, marker));
    expect(late).toMatchObject({ code: "conflict" });
    await writer.cas(stream, subject, new Uint8Array(), seq + 1, marker);
    expect((await streamState(one.nc, stream)).messages).toBe(others + 1);
    // While it stands the key can't be created anew; once it has left, it can, and one writer wins.
    expect(await failure(writer.create(stream, subject, new Uint8Array([1])))).toMatchObject({ code: "conflict" });
    await expect.poll(async () => (await streamState(one.nc, stream)).messages, { timeout: 10_000 }).toBe(others);
    const again = await Promise.allSettled(
      Array.from({ length: 8 }, () => writer.create(stream, subject, new Uint8Array([1]))),
    );
    expect(again.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  });

  test("PH.02: a shape the broker would silently bend is refused: schedules take deny_purge away", async () => {
    const bent = { ...specOf("bent", "EPC_bent"), allow_msg_schedules: true };
    const error = await failure(ensureStreams(one.nc, [bent]));
    expect(error).toMatchObject({ code: "bad-request", outcome: "not-executed" });
    expect(await verifyStreams(one.nc, [bent])).toMatchObject([{ field: "stream" }]);
  });

  test("PH.02: a setup that died half-way is finished by the next one", async () => {
    const specs = specsOf("half");
    await ensureStreams(one.nc, specs.slice(0, 9));
    const { created, drift } = await ensureStreams(two.nc, specs);
    expect(created).toEqual(specs.slice(9).map(({ name }) => name));
    expect(drift).toEqual([]);
  });

  test("PH.02: EPC holds the first artifact of a digest, whoever writes a second", async () => {
    await ensureStreams(one.nc, specsOf("deny"));
    await one.nc.request("cotal.deny.epc.bb", "first");
    const again = (await one.nc.request("cotal.deny.epc.bb", "second")).json<Record<string, unknown>>();
    expect(again).toHaveProperty("error");
    const stored = await api("STREAM.MSG.GET.EPC_deny", { last_by_subj: "cotal.deny.epc.bb" });
    expect(stored).toMatchObject({ message: { data: btoa("first") } });
  });

  test("PH.02: the broker refuses TTL, rollup and schedule headers on streams that clients publish into", async () => {
    await ensureStreams(one.nc, specsOf("headers"));
    const { headers } = await import("@nats-io/transport-node");
    const hostile = [
      ["Nats-TTL", "never"],
      ["Nats-Rollup", "all"],
      ["Nats-Schedule", "@at 2030-01-01T00:00:00Z"],
      ["Nats-Incr", "+1"],
    ] as const;
    const subjects = ["chat.a.b.c", "inst.a.b.c.d", "svc.r.a.b", "epj.x", "epe.x", "epr.x", "ept.a.b.c.d.schedule"];
    for (const subject of subjects) {
      for (const [name, value] of hostile) {
        const sent = headers();
        sent.set(name, value);
        const ack = (await one.nc.request(`cotal.headers.${subject}`, "x", { headers: sent, timeout: 2000 })).json<
          Record<string, unknown>
        >();
        expect([subject, name, Object.keys(ack)]).toEqual([subject, name, expect.arrayContaining(["error"])]);
      }
    }
  });
});

describe("durables", () => {
  const dm = dmConsumer("dur", alice, UID, 1);

  beforeAll(async () => {
    await ensureStreams(one.nc, specsOf("dur"));
  });

  test("W8.05 W8.23: made once; the broker shows an explicit ack of 60 s and the start", async () => {
    expect(await ensureConsumer(one.nc, dm)).toEqual({ created: true });
    expect(await ensureConsumer(two.nc, dm)).toEqual({ created: false });
    expect(await verifyConsumer(one.nc, dm)).toEqual([]);
    expect(await api(`CONSUMER.INFO.DM_dur.${dm.name}`)).toMatchObject({
      config: {
        ack_policy: "explicit",
        ack_wait: 60e9,
        deliver_policy: "by_start_sequence",
        opt_start_seq: 1,
        max_deliver: -1,
        max_batch: 1,
        max_expires: 30e9,
      },
    });
  });

  test("W8.05 W8.06: processes that race make one durable", async () => {
    const specs = [dlvConsumer("dur", alice, UID), roleConsumer("dur", "review")];
    for (const spec of specs) {
      await Promise.all([one, two, one, two].map(({ nc }) => ensureConsumer(nc, spec)));
      expect(await verifyConsumer(one.nc, spec)).toEqual([]);
    }
  });

  test("W8.05: a durable that differs is a conflict, and stays as it is", async () => {
    await ensureConsumer(one.nc, dm);
    const error = await failure(ensureConsumer(one.nc, dmConsumer("dur", alice, UID, 5)));
    expect(error).toMatchObject({ code: "conflict", outcome: "not-executed" });
    expect(await verifyConsumer(one.nc, dm)).toEqual([]);
  });

  test.each([
    ["max_deliver", { max_deliver: 3 }],
    ["ack_wait", { ack_wait: 5e9 }],
    ["max_ack_pending", { max_ack_pending: 1 }],
    ["inactive_threshold", { inactive_threshold: 60e9 }],
  ])("A.08: an edited %s of a role's queue is named", async (field, change) => {
    const role = roleConsumer("dur", `edited_${field}`);
    await ensureConsumer(one.nc, role);
    const edited = { stream_name: "TASK_dur", config: { ...role.config, ...change }, action: "update" };
    const subject = `CONSUMER.CREATE.TASK_dur.${role.name}.${role.config.filter_subject}`;
    expect(await api(subject, edited)).not.toHaveProperty("error");
    expect((await verifyConsumer(one.nc, role)).map((found) => found.field)).toEqual([field]);
    expect(await failure(ensureConsumer(one.nc, role))).toMatchObject({ code: "conflict" });
    await deleteConsumer(one.nc, role.stream, role.name);
  });

  test("W8.06: two holders drain one queue, each request once", async () => {
    const role = roleConsumer("dur", "twins");
    await ensureConsumer(one.nc, role);
    for (let n = 0; n < 10; n += 1) await one.nc.request("cotal.dur.svc.twins.o.a", `task ${n}`);
    const seen: string[] = [];
    for (let n = 0; n < 10; n += 1) {
      const { nc } = n % 2 === 0 ? one : two;
      const inbox = `_INBOX_${n % 2 === 0 ? "one" : "two"}.pull${n}`;
      const sub = nc.subscribe(inbox, { max: 1 });
      nc.publish(`$JS.API.CONSUMER.MSG.NEXT.TASK_dur.${role.name}`, JSON.stringify({ batch: 1, expires: 5e9 }), {
        reply: inbox,
      });
      for await (const message of sub) {
        seen.push(message.string());
        await nc.request(message.reply ?? "", "+ACK");
      }
    }
    expect(seen).toEqual(Array.from({ length: 10 }, (_, n) => `task ${n}`));
    expect((await streamState(one.nc, "TASK_dur")).messages).toBe(0);
  });

  test("W8.08: a successor's durable sees neither what came before it nor the gap", async () => {
    const predecessor = dmConsumer("dur", { ...alice, actor: "heir" }, UID, 1);
    await ensureConsumer(one.nc, predecessor);
    const subject = `cotal.dur.inst.${alice.owner}.heir.o.a`;
    await one.nc.request(subject, "backlog");
    await deleteConsumer(one.nc, predecessor.stream, predecessor.name);
    await one.nc.request(subject, "gap");
    const frontier = (await streamState(one.nc, "DM_dur")).lastSeq;
    const successor = dmConsumer("dur", { ...alice, actor: "heir" }, "zzzzzzzzzzzzzzzzzzzzzzzz77", frontier + 1);
    await ensureConsumer(one.nc, successor);
    await one.nc.request(subject, "mine");
    await expect.poll(() => api(`CONSUMER.INFO.DM_dur.${successor.name}`)).toMatchObject({ num_pending: 1 });
  });

  test("a durable that was deleted is made anew, and deleting twice says so", async () => {
    const spec = dlvConsumer("dur", { ...alice, actor: "gone" }, UID);
    await ensureConsumer(one.nc, spec);
    expect(await deleteConsumer(one.nc, spec.stream, spec.name)).toBe(true);
    expect(await deleteConsumer(one.nc, spec.stream, spec.name)).toBe(false);
    expect(await verifyConsumer(one.nc, spec)).toMatchObject([{ field: "consumer", found: "absent" }]);
    expect(await ensureConsumer(one.nc, spec)).toEqual({ created: true });
  });

  test("a durable on a stream that does not exist is not-found", async () => {
    const error = await failure(ensureConsumer(one.nc, dmConsumer("nowhere", alice, UID, 1)));
    expect(error).toMatchObject({ code: "not-found", outcome: "not-executed" });
  });
});
