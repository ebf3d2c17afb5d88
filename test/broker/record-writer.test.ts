/**
 * The record writer of `svc` over a real broker (supplement B and E): what instances say on their rails, what
 * of it is written, and what no junk, crash or second writer changes about that.
 */
import { randomBytes } from "node:crypto";
import { type NatsConnection, headers } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import {
  type RecordEvent,
  type RecordWriter,
  record,
  startRecordWriter,
} from "../../services/provisioner/record-writer.ts";
import { writeStatus } from "../../services/provisioner/service-records.ts";
import type { Connection } from "../../shared/broker/connect.ts";
import { recordWriterConsumer } from "../../shared/broker/durables.ts";
import { deleteConsumer, ensureConsumer, ensureStreams, verifyConsumer } from "../../shared/broker/ensure.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { spaceStreams } from "../../shared/broker/resources.ts";
import { type Writer, createWriter } from "../../shared/broker/write.ts";
import { jsApi, kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, recordWriterDurable, spaceNames } from "../../shared/protocol/base/names.ts";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { MAX_STATUS_BYTES, statusReports, statusSubject } from "../../shared/protocol/endpoint/status-rail.ts";
import { RegistrationStatus } from "../../shared/protocol/ledger/service-rows.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { raw } from "../support/raw-publish.ts";
import { dial } from "../support/serve-rig.ts";
import { until } from "../support/until.ts";

const ENDPOINT = "com.example.echo";
let broker: TestBroker;
let link: Connection;

beforeAll(async () => {
  broker = await startBroker();
  link = await dial(broker.url, "store");
});
afterAll(async () => {
  await link.close();
  await broker.stop();
});

/** A space of one test's own: its stores are made, and nothing is in them. */
type Place = {
  readonly space: string;
  readonly names: ReturnType<typeof spaceNames>;
  /** A writer on this connection; stopped with the test. */
  readonly write: (over?: { nc?: NatsConnection; writer?: Writer }) => { events: RecordEvent[]; writer: RecordWriter };
  /** Registers an instance as registration does, at an epoch. */
  readonly register: (epoch: number, instanceId?: string) => Promise<string>;
  readonly status: (instanceId: string) => Promise<RegistrationStatus | undefined>;
  readonly say: (instanceId: string, epoch: number, body: object | string) => Promise<number>;
};

let made = 0;

async function place(): Promise<Place> {
  const space = `rec${(made += 1)}`;
  const names = spaceNames(space);
  const store = link.nc;
  const wanted = new Set([names.epr, bucketStream(names.bucket.records)]);
  await ensureStreams(
    store,
    spaceStreams(space, { replicas: 1 }).filter(({ name }) => wanted.has(name)),
  );
  const contextOf = (nc: NatsConnection, writer: Writer) => ({ space, names, store: nc, writer });
  return {
    space,
    names,
    write: ({ nc = store, writer = createWriter({ nc }) } = {}) => {
      const events: RecordEvent[] = [];
      const started = startRecordWriter(contextOf(nc, writer), {
        onRecord: (event) => void events.push(event),
        onRecordFault: () => undefined,
      });
      onTestFinished(() => started.stop());
      return { events, writer: started };
    },
    register: async (epoch, instanceId = drawLifecycleUid(randomBytes)) => {
      const starting = { epoch, state: "starting", observedSpecRevision: 1 };
      const instance = { endpoint: ENDPOINT, instanceId } as unknown as Parameters<typeof writeStatus>[1];
      await writeStatus(contextOf(store, createWriter({ nc: store })), instance, starting);
      return instanceId;
    },
    status: async (instanceId) => {
      const { records } = names.bucket;
      const key = kvKey(records, `svc.com_example_echo.${instanceId}.status`);
      const row = await leaderLast(store, bucketStream(records), key);
      return row === undefined ? undefined : RegistrationStatus.parse(JSON.parse(new TextDecoder().decode(row.data)));
    },
    say: async (instanceId, epoch, body) => {
      const subject = statusSubject(space, { endpoint: ENDPOINT, instanceId, epoch });
      const text = typeof body === "string" ? body : JSON.stringify(body);
      return (await store.request(subject, text)).json<{ seq: number }>().seq;
    },
  };
}

const ready = { state: "ready", observedSpecRevision: 1 };
const results = (events: readonly RecordEvent[]) => events.map(({ result }) => result);
const saw = (events: readonly RecordEvent[], count: number) =>
  until(`${count} reports were met`, () => events.length >= count, 20_000);

describe("the consumer", () => {
  test("PD.09 is pre-created under the name of the grammar, with the one exact filter, and nothing else reads that stream", async () => {
    const at = await place();
    const { events } = at.write();
    const id = await at.register(1);
    await at.say(id, 1, ready);
    await saw(events, 1);
    const list = await link.nc.request(jsApi.consumerList(at.names.epr), "{}");
    const { consumers } = list.json<{ consumers: { config: Record<string, unknown> }[] }>();
    expect(consumers).toHaveLength(1);
    expect(consumers[0]?.config).toMatchObject({
      durable_name: `recw_${at.space}-svc`,
      filter_subject: `cotal.${at.space}.epr.*.*.*.svc.status`,
      ack_policy: "explicit",
      max_deliver: -1,
      max_ack_pending: 1,
    });
    expect([recordWriterDurable(at.space, "svc"), statusReports(at.space)]).toEqual([
      `recw_${at.space}-svc`,
      `cotal.${at.space}.epr.*.*.*.svc.status`,
    ]);
    expect(await verifyConsumer(link.nc, recordWriterConsumer(at.space))).toEqual([]);
  });

  test("PD.09 one of another shape is not read from; once it is gone the right one is made, and nothing was lost", async () => {
    const at = await place();
    const spec = recordWriterConsumer(at.space);
    const wide = `cotal.${at.space}.epr.>`;
    await ensureConsumer(link.nc, { ...spec, config: { ...spec.config, filter_subject: wide } });
    const faults: string[] = [];
    const writer = startRecordWriter(
      { space: at.space, names: at.names, store: link.nc, writer: createWriter({ nc: link.nc }) },
      { onRecord: () => faults.push("read"), onRecordFault: ({ code }) => faults.push(code) },
    );
    const id = await at.register(1);
    await at.say(id, 1, ready);
    await until("it has refused", () => faults.length > 1);
    await writer.stop();
    expect(new Set(faults)).toEqual(new Set(["conflict"]));
    expect(await at.status(id)).toMatchObject({ state: "starting" });
    const { events } = at.write();
    await deleteConsumer(link.nc, spec.stream, spec.name);
    await saw(events, 1);
    expect(await at.status(id)).toMatchObject({ state: "ready" });
  });
});

describe("what is written", () => {
  test("PA.08 PA.09 a report becomes the status, under the epoch of its subject whatever its body says, and the spec is not touched", async () => {
    const at = await place();
    const { events } = at.write();
    const id = await at.register(3);
    const spec = kvKey(at.names.bucket.records, `svc.com_example_echo.${id}.spec`);
    const written = (await link.nc.request(spec, "{}")).json<{ seq: number }>().seq;
    const seq = await at.say(id, 3, {
      ...ready,
      observedSpecRevision: written,
      epoch: 99,
      load: 0.5,
      reported: 12_345,
    });
    await saw(events, 1);
    expect(await at.status(id)).toEqual({
      epoch: 3,
      state: "ready",
      observedSpecRevision: written,
      load: 0.5,
      reported: seq,
    });
    expect((await leaderLast(link.nc, bucketStream(at.names.bucket.records), spec))?.seq).toBe(written);
  });

  test("PA.09 an older epoch is dropped, one that nobody registered too, and an instance that there is not; the current one goes on", async () => {
    const at = await place();
    const { events } = at.write();
    const id = await at.register(5);
    await at.say(id, 4, { ...ready, state: "i am still here" });
    await at.say(id, 6, { ...ready, state: "from the future" });
    await at.say(drawLifecycleUid(randomBytes), 5, ready);
    await at.say(id, 5, ready);
    await saw(events, 4);
    expect(results(events)).toEqual(["stale", "impossible", "unknown", "written"]);
    expect(await at.status(id)).toMatchObject({ epoch: 5, state: "ready" });
    // Taken over: what the process before says last comes to nothing.
    await at.register(6, id);
    await at.say(id, 5, { ...ready, state: "stopped" });
    await at.say(id, 6, ready);
    await saw(events, 6);
    expect(results(events).slice(4)).toEqual(["stale", "written"]);
    expect(await at.status(id)).toMatchObject({ epoch: 6, state: "ready" });
  });

  test("many reports of many instances end as each said last", async () => {
    const at = await place();
    const ids = await Promise.all(Array.from({ length: 10 }, () => at.register(1)));
    for (let n = 0; n < 20; n += 1) await Promise.all(ids.map((id) => at.say(id, 1, { ...ready, state: `s${n}` })));
    const { events } = at.write();
    await saw(events, 200);
    expect(new Set(results(events))).toEqual(new Set(["written"]));
    for (const id of ids) expect(await at.status(id)).toMatchObject({ state: "s19" });
  });
});

describe("what does not stop it", () => {
  test("PA.09 junk is passed over, counted by its kind, and what comes behind it is written", async () => {
    const at = await place();
    const id = await at.register(1);
    const own = statusSubject(at.space, { endpoint: ENDPOINT, instanceId: id, epoch: 1 });
    const deep = `${"[".repeat(1500)}${"]".repeat(1500)}`;
    const junk: (string | Uint8Array)[] = [
      "",
      "no json",
      "null",
      "[]",
      '"ready"',
      "{}",
      deep,
      JSON.stringify({ ...ready, more: "x".repeat(MAX_STATUS_BYTES) }),
      JSON.stringify({ ...ready, state: "" }),
      JSON.stringify({ ...ready, state: "x".repeat(65) }),
      JSON.stringify({ ...ready, state: { is: "ready" } }),
      JSON.stringify({ state: "ready" }),
      JSON.stringify({ ...ready, observedSpecRevision: -1 }),
      JSON.stringify({ ...ready, observedSpecRevision: 1e300 }),
      new Uint8Array([0xff, 0xfe, 0x7b, 0x7d]),
    ];
    for (const body of junk) await link.nc.request(own, body);
    const copied = headers();
    copied.set("nats-stream", "");
    await link.nc.request(own, JSON.stringify(ready), { headers: copied, timeout: 5000 });
    // Subjects of the filter that name nobody.
    const lead = `cotal.${at.space}.epr`;
    const strange = [
      `UPPER.${id}.1`,
      `com_example_echo.short.1`,
      `com_example_echo.${id}.01`,
      `com_example_echo.${id}.-1`,
    ];
    for (const middle of strange) await link.nc.request(`${lead}.${middle}.svc.status`, JSON.stringify(ready));
    const { events } = at.write();
    await at.say(id, 1, ready);
    const count = junk.length + 1 + strange.length;
    await saw(events, count + 1);
    expect(results(events)).toEqual([...Array.from({ length: count }, () => "malformed"), "written"]);
    expect(events.filter(({ why }) => why?.includes("x".repeat(65)))).toEqual([]);
    expect(await at.status(id)).toMatchObject({ state: "ready" });
  });

  test("other kinds and qualifiers on the same rail are not even read", async () => {
    const at = await place();
    const id = await at.register(1);
    const { events } = at.write();
    const lead = `cotal.${at.space}.epr.com_example_echo.${id}.1`;
    for (const tail of ["goal.status", "svc.spec", "svc.status.more", "cp.x", "svc"]) {
      await link.nc.request(`${lead}.${tail}`, JSON.stringify({ ...ready, state: tail }));
    }
    await at.say(id, 1, ready);
    await saw(events, 1);
    expect(results(events)).toEqual(["written"]);
    expect(await at.status(id)).toMatchObject({ state: "ready" });
  });

  test("a message that looks like the broker's own word does not end a pull, and headers that can't be read cost one report", async () => {
    const at = await place();
    const id = await at.register(1);
    const subject = statusSubject(at.space, { endpoint: ENDPOINT, instanceId: id, epoch: 1 });
    const { events } = at.write();
    await raw(broker.port, [
      { subject, headers: "NATS/1.0 404 No Messages\r\n\r\n", data: "" },
      { subject, headers: "NATS/1.0 409 Consumer Deleted\r\n\r\n", data: "" },
      { subject, headers: "NATS/1.0\r\nno such key: x\r\n\r\n", data: JSON.stringify(ready) },
    ]);
    await at.say(id, 1, ready);
    await saw(events, 4);
    expect(results(events)).toEqual(["malformed", "malformed", "malformed", "written"]);
  });

  test("a status that does not parse is left as it is, and costs that instance alone", async () => {
    const at = await place();
    const [broken, fine] = [await at.register(1), await at.register(1)];
    const key = kvKey(at.names.bucket.records, `svc.com_example_echo.${broken}.status`);
    await link.nc.request(key, '{"of":"a newer version"}');
    const { events } = at.write();
    await at.say(broken, 1, ready);
    await at.say(fine, 1, ready);
    await saw(events, 2);
    expect(results(events)).toEqual(["failed", "written"]);
    const row = await leaderLast(link.nc, bucketStream(at.names.bucket.records), key);
    expect(new TextDecoder().decode(row?.data)).toBe('{"of":"a newer version"}');
  });
});

describe("crashes, and several writers", () => {
  /** Ends where a killed process would: the write, or the answer to it, never comes back. */
  const hanging = (nc: NatsConnection, wrote: boolean): Writer => {
    const writer = createWriter({ nc });
    return {
      ...writer,
      cas: async (...args) => {
        if (wrote) await writer.cas(...args);
        return new Promise<number>(() => undefined);
      },
    };
  };

  test.concurrent.each([
    ["before it wrote", false, "starting", "written"],
    ["after it wrote and before it acknowledged", true, "ready", "repeated"],
  ])(
    "PA.09 a writer that is killed %s loses nothing, and the next one converges",
    async (_, wrote, meanwhile, first) => {
      const at = await place();
      const id = await at.register(1);
      const dying = await dial(broker.url, "dying");
      const context = { space: at.space, names: at.names, store: dying.nc, writer: hanging(dying.nc, wrote) };
      startRecordWriter(context, { onRecord: () => undefined, onRecordFault: () => undefined });
      await at.say(id, 1, ready);
      await at.say(id, 1, { ...ready, state: "draining" });
      const { epr } = at.names;
      const info = jsApi.consumerInfo(epr, recordWriterDurable(at.space, "svc"));
      await until("it has the first in hand", async () => {
        const answer = (await link.nc.request(info)).json<{ num_ack_pending?: number }>();
        return answer.num_ack_pending === 1;
      });
      await until("it stands where it dies", async () => (await at.status(id))?.state === meanwhile);
      await dying.close();
      const { events } = at.write();
      await saw(events, 2);
      expect(results(events)).toEqual([first, "written"]);
      expect(await at.status(id)).toMatchObject({ epoch: 1, state: "draining" });
    },
    60_000,
  );

  test("PA.09 two writers at once write each report once, and end with the last", async () => {
    const at = await place();
    const id = await at.register(1);
    const other = await dial(broker.url, "other");
    const [one, two] = [at.write(), at.write({ nc: other.nc })];
    for (let n = 0; n < 100; n += 1) await at.say(id, 1, { ...ready, state: `s${n}` });
    await until("all are met", () => one.events.length + two.events.length >= 100, 20_000);
    await Promise.all([one.writer.stop(), two.writer.stop()]);
    await other.close();
    const all = [...one.events, ...two.events];
    expect(results(all).filter((result) => result === "written")).toHaveLength(100);
    expect(await at.status(id)).toMatchObject({ state: "s99" });
  });

  test("PA.09 the same report again, and an earlier one that comes late, change nothing", async () => {
    const at = await place();
    const id = await at.register(1);
    const context = { space: at.space, names: at.names, store: link.nc, writer: createWriter({ nc: link.nc }) };
    const subject = statusSubject(at.space, { endpoint: ENDPOINT, instanceId: id, epoch: 1 });
    const message = (seq: number, state: string) => ({
      subject,
      seq,
      headerNames: [],
      data: new TextEncoder().encode(JSON.stringify({ ...ready, state })),
    });
    expect(await record(context, message(8, "second"))).toMatchObject({ result: "written" });
    for (const [seq, state] of [
      [8, "second"],
      [7, "first"],
    ] as const) {
      expect(await record(context, message(seq, state))).toMatchObject({ result: "repeated" });
    }
    expect(await at.status(id)).toMatchObject({ state: "second", reported: 8 });
  });

  test("a write that somebody else was faster with comes again and is decided anew", async () => {
    const at = await place();
    const id = await at.register(1);
    const writer = createWriter({ nc: link.nc });
    let raced = false;
    const late: Writer = {
      ...writer,
      cas: async (...args) => {
        if (!raced) {
          raced = true;
          await at.register(2, id);
        }
        return writer.cas(...args);
      },
    };
    const { events } = at.write({ writer: late });
    await at.say(id, 1, ready);
    await saw(events, 2);
    expect(results(events)).toEqual(["later", "stale"]);
    expect(await at.status(id)).toMatchObject({ epoch: 2, state: "starting" });
  });

  test("a broker that goes and comes back is drained on", async () => {
    const own = await startBroker();
    onTestFinished(() => own.stop());
    const conn = await dial(own.url, "store");
    const space = "away";
    const names = spaceNames(space);
    const nc = conn.nc;
    await ensureStreams(nc, spaceStreams(space, { replicas: 1 }));
    const id = drawLifecycleUid(randomBytes);
    const context = { space, names, store: nc, writer: createWriter({ nc }) };
    await writeStatus(context, { endpoint: ENDPOINT, instanceId: id } as unknown as Parameters<typeof writeStatus>[1], {
      epoch: 1,
      state: "starting",
      observedSpecRevision: 1,
    });
    const events: RecordEvent[] = [];
    const writer = startRecordWriter(context, {
      onRecord: (event) => void events.push(event),
      onRecordFault: () => undefined,
    });
    const subject = statusSubject(space, { endpoint: ENDPOINT, instanceId: id, epoch: 1 });
    await nc.request(subject, JSON.stringify({ ...ready, state: "one" }));
    await until("the first is written", () => events.some(({ result }) => result === "written"));
    await own.kill();
    await own.restart();
    await until("it is back", async () => {
      try {
        await nc.request(subject, JSON.stringify({ ...ready, state: "two" }), { timeout: 1000 });
        return true;
      } catch {
        return false;
      }
    });
    await until("the second is written", () => events.filter(({ result }) => result === "written").length > 1, 30_000);
    await writer.stop();
    await conn.close();
    expect(events.at(-1)).toMatchObject({ result: "written" });
  }, 60_000);

  test("a broker that is silent holds up no stop", async () => {
    const own = await startBroker();
    onTestFinished(() => own.stop());
    const conn = await dial(own.url, "store");
    const names = spaceNames("silent");
    await ensureStreams(conn.nc, spaceStreams("silent", { replicas: 1 }));
    const context = { space: "silent", names, store: conn.nc, writer: createWriter({ nc: conn.nc }) };
    const writer = startRecordWriter(context, { onRecord: () => undefined, onRecordFault: () => undefined });
    await writer.begun;
    own.freeze();
    const late = new Promise((resolve) => setTimeout(resolve, 15_000, "late"));
    expect(await Promise.race([writer.stop(), late])).toBeUndefined();
    own.thaw();
    await conn.close();
  });

  test("a stop waits for the report in hand and leaves the others to the next", async () => {
    const at = await place();
    const id = await at.register(1);
    const writer = createWriter({ nc: link.nc });
    let letGo = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    const slow: Writer = {
      ...writer,
      cas: async (...args) => {
        await held;
        return writer.cas(...args);
      },
    };
    const first = at.write({ writer: slow });
    for (const state of ["one", "two", "three"]) await at.say(id, 1, { ...ready, state });
    const { epr } = at.names;
    const info = jsApi.consumerInfo(epr, recordWriterDurable(at.space, "svc"));
    await until("one is in hand", async () => {
      const answer = (await link.nc.request(info)).json<{ num_ack_pending?: number }>();
      return answer.num_ack_pending === 1;
    });
    const stopped = first.writer.stop();
    letGo();
    await stopped;
    expect(results(first.events)).toEqual(["written"]);
    const second = at.write();
    await saw(second.events, 2);
    expect(results(second.events)).toEqual(["written", "written"]);
    expect(await at.status(id)).toMatchObject({ state: "three" });
  });
});
