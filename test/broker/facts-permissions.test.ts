/**
 * Facts about the broker's permissions that the product's safety rests on, each against a bare
 * broker: a new version that moves one of them turns it red here, before anything else does.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BareBroker, startBareBroker } from "../support/bare-accounts.ts";
import { createProber, tap } from "../support/probe.ts";
import { api, dump, makeDurable, makeStream, put, streamFacts } from "../support/raw-jetstream.ts";
import { until } from "../support/until.ts";

const INBOX = "_INBOX.>";
const create = (filter: string) => `$JS.API.CONSUMER.CREATE.CHAT.reader.${filter}`;

let broker: BareBroker;
let root: NatsConnection;

beforeAll(async () => {
  const reads = (allow: string[], deny: string[] = []) => ({ subscribe: { allow, deny } });
  broker = await startBareBroker({
    A: {
      jetstream: true,
      users: {
        root: {},
        star: reads(["a.*"]),
        star_cut: reads(["a.*"], ["a.*.>"]),
        one_token: reads(["*"]),
        literal_end: reads(["a.*.b"]),
        tail: reads(["a.>"]),
        queue: reads(["w.> grp"]),
        two_queues: reads(["w.> v1.*"]),
        empty_publish: { publish: { allow: [] }, subscribe: { allow: [INBOX] } },
        responder: { subscribe: { allow: ["ask"] }, allow_responses: true },
        creator: { publish: { allow: [create("chat.team.*")] }, subscribe: { allow: [INBOX] } },
        pinned: { publish: { allow: [create("chat.team.a")] }, subscribe: { allow: [INBOX] } },
        poster: { publish: { allow: ["in.poster"] }, subscribe: { allow: [INBOX] } },
        puller: { publish: { allow: ["$JS.API.CONSUMER.MSG.NEXT.BOX.own"] }, subscribe: { allow: [INBOX] } },
        getter: { publish: { allow: ["$JS.API.DIRECT.GET.KV.kv.getter"] }, subscribe: { allow: [INBOX] } },
        batch_getter: { publish: { allow: ["$JS.API.DIRECT.GET.KV"] }, subscribe: { allow: [INBOX] } },
      },
    },
  });
  root = await broker.login("root");
}, 60_000);

afterAll(() => broker.end());

async function refusedSubscriptions(user: string, subjects: readonly string[]): Promise<string[]> {
  const nc = await broker.login(user);
  const refused = await createProber(nc).refused(subjects.map((subject) => ({ op: "sub", subject })));
  return refused.map(({ subject }) => subject);
}

describe("subscribe entries", () => {
  test("an allow that ends in * admits a subscription that ends in >, and delivers deeper subjects", async () => {
    const nc = await broker.login("star");
    const heard = await tap(nc, "a.>");
    for (const subject of ["a.1", "a.1.2.3"]) root.publish(subject);
    await until("both arrived", () => heard.messages.length === 2);
    expect(heard.subjects()).toEqual(["a.1", "a.1.2.3"]);
    const everything = await tap(await broker.login("one_token"), ">");
    root.publish("x.y.z");
    await until("it arrived", () => everything.subjects().includes("x.y.z"));
    expect(everything.subjects()).toContain("x.y.z");
  });

  test("the deny <entry>.> beside it cuts those deliveries and keeps the others", async () => {
    const nc = await broker.login("star_cut");
    const [wide, exact] = [await tap(nc, "a.>"), await tap(nc, "a.*")];
    for (const subject of ["a.1.2.3", "a.1.2", "a.1"]) root.publish(subject);
    await until("the lawful one arrived", () => exact.messages.length > 0);
    expect(exact.subjects()).toEqual(["a.1"]);
    expect(wide.subjects().filter((subject) => subject !== "a.1")).toEqual([]);
  });

  test("an allow that ends in a literal or in > does not leak", async () => {
    expect(await refusedSubscriptions("literal_end", ["a.*.b", "a.*.>", "a.>", "a.*.*", "a.*.b.>"])).toEqual([
      "a.*.>",
      "a.>",
      "a.*.*",
      "a.*.b.>",
    ]);
    expect(await refusedSubscriptions("tail", ["a.>", "a.b.*", ">", "*.b", "*.>"])).toEqual([">", "*.b", "*.>"]);
  });

  test("an allow with a queue admits that queue only, and no plain subscription", async () => {
    const nc = await broker.login("queue");
    const refused = await createProber(nc).refused([
      { op: "sub", subject: "w.a", queue: "grp" },
      { op: "sub", subject: "w.b", queue: "other" },
      { op: "sub", subject: "w.c", queue: "grp.x" },
      { op: "sub", subject: "w.d" },
    ]);
    expect(refused.map(({ subject }) => subject)).toEqual(["w.b", "w.c", "w.d"]);
  });

  test("wildcards of a queue are matched by token", async () => {
    const nc = await broker.login("two_queues");
    const refused = await createProber(nc).refused([
      { op: "sub", subject: "w.a", queue: "v1.x" },
      { op: "sub", subject: "w.b", queue: "v1" },
      { op: "sub", subject: "w.c", queue: "v1x" },
    ]);
    expect(refused.map(({ subject }) => subject)).toEqual(["w.b", "w.c"]);
  });
});

describe("publish entries", () => {
  test("an empty publish list in a configuration file allows everything: absent is not denied", async () => {
    const prober = createProber(await broker.login("empty_publish"));
    expect(await prober.isRefused({ op: "pub", subject: "anything" })).toBe(false);
  });

  test("allowing responses without a publish list turns publish into deny by default", async () => {
    const nc = await broker.login("responder");
    const prober = createProber(nc);
    nc.subscribe("ask", { callback: (_, message) => void message.respond("yes") });
    await nc.flush();
    expect((await root.request("ask", "", { timeout: 3000 })).string()).toBe("yes");
    expect(await prober.isRefused({ op: "pub", subject: "anything" })).toBe(true);
  });

  test("a literal wildcard in a published subject matches the grant by token and reaches wildcard subscribers only", async () => {
    const heard = await tap(root, "a.*");
    const concrete = await tap(root, "a.b");
    root.publish("a.*");
    await until("the wildcard subscriber heard it", () => heard.messages.length === 1);
    expect([heard.subjects(), concrete.subjects()]).toEqual([["a.*"], []]);
  });
});

describe("consumer creates", () => {
  const body = (filter: object) => ({
    stream_name: "CHAT",
    action: "create",
    config: { name: "reader", ack_policy: "none", inactive_threshold: 5e9, ...filter },
  });

  beforeAll(async () => {
    await makeStream(root, "CHAT", { subjects: ["chat.>"] });
    for (const channel of ["team.a", "team.a.deep", "other"]) await put(root, `chat.${channel}`, channel);
  });

  test("a publish allow whose filter tail ends in * admits a create with > and reads deeper subjects", async () => {
    const nc = await broker.login("creator");
    const answer = await nc.request(create("chat.team.>"), JSON.stringify(body({ filter_subject: "chat.team.>" })));
    const answered = answer.json<{ num_pending?: number }>();
    await api(root, "CONSUMER.DELETE.CHAT.reader");
    expect(answered.num_pending).toBe(2);
  });

  test("a pinned create admits a durable name and a push subject: an exporter that outlives its maker", async () => {
    const nc = await broker.login("pinned");
    const config = {
      filter_subject: "chat.team.a",
      durable_name: "reader",
      deliver_subject: "somebody.else",
      inactive_threshold: 0,
    };
    const heard = await tap(root, "somebody.else");
    const answer = await nc.request(create("chat.team.a"), JSON.stringify(body(config)));
    expect(answer.json<{ error?: object }>().error).toBeUndefined();
    await nc.close();
    await put(root, "chat.team.a", "after its maker left");
    await until("both messages were pushed to it", () => heard.messages.length === 2);
    expect(heard.messages.map((message) => message.string())).toEqual(["team.a", "after its maker left"]);
    await api(root, "CONSUMER.DELETE.CHAT.reader");
  });

  test("narrowing itself is enforced: another filter, several filters and the bare form are refused", async () => {
    const nc = await broker.login("pinned");
    const tampered = [
      { filter_subject: "chat.other" },
      { filter_subject: "chat.>" },
      { filter_subjects: ["chat.team.a", "chat.other"] },
      {},
    ];
    const codes: unknown[] = [];
    for (const filter of tampered) {
      const answer = await nc.request(create("chat.team.a"), JSON.stringify(body(filter)));
      codes.push(answer.json<{ error?: { err_code: number } }>().error?.err_code);
    }
    // The filter of the subject and the one of the body differ (10131), or there are several (10137).
    expect(codes).toEqual([10_131, 10_131, 10_137, 10_131]);
    const refused = await createProber(nc).refused([
      { op: "pub", subject: "$JS.API.CONSUMER.CREATE.CHAT.reader" },
      { op: "pub", subject: "$JS.API.CONSUMER.CREATE.CHAT" },
      { op: "pub", subject: "$JS.API.CONSUMER.DURABLE.CREATE.CHAT.reader" },
      { op: "pub", subject: create("chat.other") },
    ]);
    expect(refused).toHaveLength(4);
    expect((await streamFacts(root, "CHAT"))?.consumers).toBe(0);
  });
});

describe("the broker's own replies, inside one account with JetStream", () => {
  beforeAll(async () => {
    await makeStream(root, "IN", { subjects: ["in.>"] });
    await makeStream(root, "BOX", { subjects: ["box.>"] });
    await makeStream(root, "KV", { subjects: ["kv.>"], max_msgs_per_subject: 1, allow_direct: true });
    await makeDurable(root, "BOX", "own");
  });

  async function victim(name: string): Promise<void> {
    await makeStream(root, name, { subjects: [`${name}.>`] });
    await put(root, `${name}.row`, "precious");
  }

  test("the status of a bound pull, aimed at STREAM.PURGE or STREAM.DELETE, is executed", async () => {
    await victim("PURGED");
    await victim("DELETED");
    const nc = await broker.login("puller");
    const next = "$JS.API.CONSUMER.MSG.NEXT.BOX.own";
    const pull = (reply: string) => nc.publish(next, JSON.stringify({ batch: 1, no_wait: true }), { reply });
    pull("$JS.API.STREAM.PURGE.PURGED");
    pull("$JS.API.STREAM.DELETE.DELETED");
    await until("the purge ran", async () => (await streamFacts(root, "PURGED"))?.messages === 0);
    await until("the delete ran", async () => (await streamFacts(root, "DELETED")) === undefined);
    expect(await streamFacts(root, "DELETED")).toBeUndefined();
  });

  test("a PubAck aimed at a captured subject is stored over what stood there", async () => {
    await put(root, "kv.acl", '{"allow":["one"]}');
    const nc = await broker.login("poster");
    nc.publish("in.poster", "hello", { reply: "kv.acl" });
    await until("the row was overwritten", async () =>
      (await dump(root, "KV")).some(({ data }) => data.includes('"stream":"IN"')),
    );
    expect((await dump(root, "KV")).filter(({ subject }) => subject === "kv.acl").map(({ data }) => data)).toEqual([
      expect.stringContaining('"stream":"IN"'),
    ]);
  });

  test("a direct get of an own row, aimed at CONSUMER.CREATE, executes chosen bytes", async () => {
    const made = JSON.stringify({
      stream_name: "IN",
      action: "create",
      config: { durable_name: "planted", name: "planted" },
    });
    await put(root, "kv.getter", made);
    const nc = await broker.login("getter");
    nc.publish("$JS.API.DIRECT.GET.KV.kv.getter", "", { reply: "$JS.API.CONSUMER.CREATE.IN.planted" });
    await until("the consumer is there", async () => (await streamFacts(root, "IN"))?.consumers === 1);
    expect((await streamFacts(root, "IN"))?.consumers).toBe(1);
  });

  test("a pulled message keeps its stored subject; a direct get stores a copy under a foreign one, with provenance headers", async () => {
    await put(root, "box.1", "from the box");
    await put(root, "kv.getter", "from the row");
    const seen = await tap(root, "in.victim");
    const puller = await broker.login("puller");
    puller.publish("$JS.API.CONSUMER.MSG.NEXT.BOX.own", JSON.stringify({ batch: 1 }), { reply: "in.victim" });
    await until("the copy arrived", () => seen.messages.length === 1);
    const getter = await broker.login("getter");
    getter.publish("$JS.API.DIRECT.GET.KV.kv.getter", "", { reply: "in.forged" });
    await until("the copy was stored", async () =>
      (await dump(root, "IN")).some(({ subject }) => subject === "in.forged"),
    );
    const copy = (await dump(root, "IN")).find(({ subject }) => subject === "in.forged");
    // Routed to in.victim and stored there, under the subject that it was first stored with.
    expect([seen.subjects(), copy?.data]).toEqual([["box.1"], "from the row"]);
    expect((await dump(root, "IN")).map(({ subject }) => subject)).toContain("box.1");
    for (const name of ["Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"])
      expect(copy?.hdrs).toContain(`${name}:`);
    expect((await dump(root, "IN")).map(({ subject }) => subject)).not.toContain("in.victim");
  });

  test("filters of a batched direct get stand in the body: a grant of the bucket reads every row of it", async () => {
    await put(root, "kv.secret", "not yours");
    const nc = await broker.login("batch_getter");
    const read: string[] = [];
    nc.subscribe("_INBOX.batch", { callback: (_, message) => void read.push(message.string()) });
    nc.publish("$JS.API.DIRECT.GET.KV", JSON.stringify({ multi_last: ["kv.secret"] }), { reply: "_INBOX.batch" });
    await until("the batch ended", () => read.length === 2);
    nc.publish("$JS.API.DIRECT.GET.KV", JSON.stringify({ next_by_subj: "kv.secret", seq: 1, batch: 1 }), {
      reply: "_INBOX.batch",
    });
    await until("the second batch ended", () => read.length === 4);
    expect(read.filter((text) => text === "not yours")).toHaveLength(2);
  });
});

test("strict mode refuses a PubAck aimed at PURGE as a request, and without it the broker executes it", async () => {
  const outcome = async (jetstream: object): Promise<string[]> => {
    const one = await startBareBroker({ A: { jetstream: true, users: { root: {} } } }, { jetstream });
    try {
      const nc = await one.login("root");
      await makeStream(nc, "S", { subjects: ["s.>"] });
      await put(nc, "s.row", "precious");
      nc.publish("s.post", "x", { reply: "$JS.API.STREAM.PURGE.S" });
      // The same stream takes the next publish after the purge, if there was one.
      await nc.flush();
      await until("the post was stored", async () => ((await streamFacts(nc, "S"))?.lastSeq ?? 0) >= 2);
      await new Promise((resolve) => setTimeout(resolve, 200));
      return (await dump(nc, "S")).map(({ data }) => data);
    } finally {
      await one.end();
    }
  };
  expect(await outcome({})).toEqual(["precious", "x"]);
  // The PubAck's own sequence reads as "keep from here".
  expect(await outcome({ strict: false })).toEqual(["x"]);
});
