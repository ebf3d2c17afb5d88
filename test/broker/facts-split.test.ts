/**
 * Facts about the split into front and store (decision H60), against bare accounts: what crosses, and
 * that no reply of the broker, wherever it is aimed, does anything on the far side.
 */
import { AuthorizationError, type NatsConnection, RequestError } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type BareOperator,
  NO_LIMITS,
  WITH_JETSTREAM,
  privateServices,
  startBareOperator,
} from "../support/bare-operator.ts";
import { type Tap, publishOptions, tap } from "../support/probe.ts";
import { api, dump, makeDurable, makeStream, put, streamFacts } from "../support/raw-jetstream.ts";
import { until } from "../support/until.ts";

const NEXT = "$JS.API.CONSUMER.MSG.NEXT.BOX";
const EXPORTED = ["chat.>", "$KV.presence.>", `${NEXT}.*`, "$JS.ACK.BOX.>"];
const pulls = (nc: NatsConnection, durable: string, reply: string, body: object = { batch: 1, no_wait: true }): void =>
  nc.publish(`${NEXT}.${durable}`, JSON.stringify(body), { reply });

let broker: BareOperator;
let store: NatsConnection;
let front: NatsConnection;

beforeAll(async () => {
  broker = await startBareOperator(
    async (keys) => {
      const [from, to] = [keys.get("STORE"), keys.get("FRONT")];
      if (from === undefined || to === undefined) throw new Error("no keys");
      const { exports, imports } = await privateServices(from, to, EXPORTED);
      return {
        STORE: { limits: WITH_JETSTREAM, exports },
        FRONT: { limits: NO_LIMITS, imports },
        // The same tokens, in the hands of an account they were not made out to.
        THIEF: { limits: NO_LIMITS, imports },
        STRANGER: { limits: NO_LIMITS },
      };
    },
    ["STORE", "FRONT", "THIEF", "STRANGER"],
  );
  store = await broker.login(await broker.user("STORE"));
  front = await broker.login(await broker.user("FRONT"));
  await makeStream(store, "CHAT", { subjects: ["chat.>"] });
  await makeStream(store, "BOX", { subjects: ["box.>"] });
  await makeStream(store, "KV_presence", { subjects: ["$KV.presence.>"], max_msgs_per_subject: 1, allow_direct: true });
  await makeStream(store, "PRECIOUS", { subjects: ["precious.>"] });
  await put(store, "precious.row", "stays");
}, 60_000);

afterAll(() => broker.end());

describe("what crosses", () => {
  test("one publish reaches live subscribers in front, is stored, and is acknowledged; a duplicate is reported", async () => {
    const live = await tap(front, "chat.>");
    const ack = await put(front, "chat.a", "hello", { "Nats-Msg-Id": "1" });
    const again = await put(front, "chat.a", "hello", { "Nats-Msg-Id": "1" });
    expect([ack["stream"], again["duplicate"]]).toEqual(["CHAT", true]);
    await until("the live subscriber heard both", () => live.messages.length === 2);
    expect((await dump(store, "CHAT")).map(({ data }) => data)).toEqual(["hello"]);
    live.stop();
  });

  test("a publish without a reply subject is stored too", async () => {
    front.publish("chat.quiet", "no reply");
    await until("it is stored", async () =>
      (await dump(store, "CHAT")).some(({ subject }) => subject === "chat.quiet"),
    );
    expect((await dump(store, "CHAT")).at(-1)?.data).toBe("no reply");
  });

  test("what a daemon publishes in the store is not seen in front", async () => {
    const live = await tap(front, "chat.>");
    await put(store, "chat.store", "from the store");
    await front.flush();
    expect(live.messages).toEqual([]);
  });

  test("a pull keeps the stored subject, and its ack crosses back", async () => {
    await makeDurable(store, "BOX", "own", { max_batch: 1, max_expires: 30e9 });
    await put(store, "box.1", "letter");
    const inbox = await tap(front, "_INBOX.own");
    pulls(front, "own", "_INBOX.own");
    await until("it came", () => inbox.messages.length === 1);
    const [letter] = inbox.messages;
    expect([letter?.subject, letter?.string()]).toEqual(["box.1", "letter"]);
    front.publish(letter?.reply ?? "", "+ACK");
    await until("it is settled", async () => (await api(store, "CONSUMER.INFO.BOX.own"))["num_ack_pending"] === 0);
    const settled = (await api(store, "CONSUMER.INFO.BOX.own"))["ack_floor"];
    expect(settled).toMatchObject({ stream_seq: 1 });
  });

  test("an ack that asks for the next one settles, and is answered as a pull is; one whose durable is gone is told", async () => {
    await makeDurable(store, "BOX", "both", { filter_subject: "box.both" });
    for (const text of ["first", "second"]) await put(store, "box.both", text);
    const inbox = await tap(front, "_INBOX.both.*");
    pulls(front, "both", "_INBOX.both.1", { batch: 1, expires: 20e9 });
    await until("the first came", () => inbox.messages.length === 1);
    const body = JSON.stringify({ batch: 1, expires: 20e9 });
    front.publish(inbox.messages[0]?.reply ?? "", `+NXT ${body}`, { reply: "_INBOX.both.2" });
    await until("the second came", () => inbox.messages.length === 2);
    expect(inbox.messages.map((message) => message.string())).toEqual(["first", "second"]);
    const info = await api(store, "CONSUMER.INFO.BOX.both");
    expect([info["num_ack_pending"], info["num_waiting"]]).toEqual([1, 0]);
    await api(store, "CONSUMER.DELETE.BOX.both");
    front.publish(inbox.messages[1]?.reply ?? "", `+NXT ${body}`, { reply: "_INBOX.both.3" });
    await until("it is told", () => inbox.messages.length === 3);
    expect(inbox.messages[2]).toMatchObject({ subject: "_INBOX.both.3", headers: { code: 503 } });
  });

  test("JetStream does not exist in front: the rest of its API answers nobody there", async () => {
    for (const verb of [
      "INFO",
      "STREAM.INFO.CHAT",
      "STREAM.NAMES",
      "STREAM.PURGE.PRECIOUS",
      "CONSUMER.CREATE.CHAT.x",
      "STREAM.MSG.GET.CHAT",
      "DIRECT.GET.KV_presence",
    ]) {
      const answer = await front.request(`$JS.API.${verb}`, "", { timeout: 2000 }).then(
        (message) => message.string(),
        () => "nobody",
      );
      expect([verb, answer.includes('"success":true') || answer.includes('"state"') ? answer : "nothing"]).toEqual([
        verb,
        "nothing",
      ]);
    }
    expect((await streamFacts(store, "PRECIOUS"))?.messages).toBe(1);
  });
});

describe("replies of the broker, aimed from front", () => {
  const TARGETS = [
    "$JS.API.STREAM.PURGE.PRECIOUS",
    "$JS.API.STREAM.DELETE.PRECIOUS",
    "$JS.API.STREAM.MSG.DELETE.PRECIOUS",
    "$JS.API.STREAM.CREATE.PLANTED",
    "$JS.API.STREAM.UPDATE.PRECIOUS",
    "$JS.API.CONSUMER.CREATE.PRECIOUS.planted",
    "$JS.API.CONSUMER.DELETE.BOX.own",
    `${NEXT}.own`,
    "$KV.presence.victim",
    "chat.victim",
    "box.victim",
    "precious.row",
    "$SYS.REQ.SERVER.PING",
  ];

  test("a PubAck, a pull's status and a pulled message land nowhere: no stream, bucket, consumer or import moves", async () => {
    await makeDurable(store, "BOX", "attacker", { max_batch: 1, max_expires: 30e9 });
    for (let n = 0; n < TARGETS.length; n += 1) await put(store, "box.bait", '{"stream_name":"PRECIOUS"}');
    const streams = ["BOX", "KV_presence", "PRECIOUS"];
    const state = async (): Promise<unknown[]> =>
      Promise.all(streams.map(async (name) => [await dump(store, name), (await streamFacts(store, name))?.consumers]));
    const before = await state();
    const chat = await dump(store, "CHAT");
    for (const target of TARGETS) {
      front.publish("chat.attacker", "post", { reply: target });
      pulls(front, "attacker", target);
      pulls(front, "attacker", target, { batch: 5, no_wait: true });
      pulls(front, "attacker", target, { batch: 1, expires: 31e9 });
    }
    await until(
      "every post is stored",
      async () => (await dump(store, "CHAT")).length === chat.length + TARGETS.length,
    );
    // A round trip over each way an answer could still be under way on.
    await put(front, "$KV.presence.last", "done");
    await api(store, "STREAM.INFO.PRECIOUS");
    expect((await dump(store, "CHAT")).slice(chat.length).map(({ subject, data }) => [subject, data])).toEqual(
      TARGETS.map(() => ["chat.attacker", "post"]),
    );
    const [box, presence, precious] = await state();
    expect([box, precious]).toEqual([before[0], before[2]]);
    expect((presence as [{ subject: string }[]])[0].map(({ subject }) => subject)).toEqual(["$KV.presence.last"]);
    expect(await streamFacts(store, "PLANTED")).toBeUndefined();
  });

  test("a publish that asks for its reply on an ack subject is dropped by the broker: nothing is stored or settled", async () => {
    const before = [
      await dump(store, "CHAT"),
      await api(store, "CONSUMER.INFO.BOX.own").then((info) => info["ack_floor"]),
    ];
    front.publish("chat.attacker", "x", { reply: "$JS.ACK.BOX.own.1.2.2.0.0" });
    await front.flush();
    await put(front, "$KV.presence.order", "after it");
    expect([await dump(store, "CHAT"), (await api(store, "CONSUMER.INFO.BOX.own"))["ack_floor"]]).toEqual(before);
  });

  test("what stays is worthless bytes on somebody's live subject in front: a PubAck and an empty status", async () => {
    const victim = await tap(front, "live.victim");
    front.publish("chat.attacker", "post", { reply: "live.victim" });
    pulls(front, "attacker", "live.victim", { batch: 1, expires: 31e9 });
    await until("both arrived", () => victim.messages.length >= 2);
    const texts = victim.messages.map((message) => message.string());
    expect(texts.filter((text) => text !== "" && !text.includes('"stream":"CHAT"'))).toEqual([]);
  });
});

describe("who may import", () => {
  test("an account with another's activation tokens is refused as a whole: its users can't connect", async () => {
    await expect(broker.login(await broker.user("THIEF"))).rejects.toThrow(AuthorizationError);
  });

  test("an account without the imports reaches nothing", async () => {
    const stranger = await broker.login(await broker.user("STRANGER"));
    const before = await dump(store, "CHAT");
    stranger.publish("chat.stolen", "x");
    await expect(stranger.request(`${NEXT}.own`, '{"batch":1,"no_wait":true}', { timeout: 2000 })).rejects.toThrow(
      RequestError,
    );
    await put(front, "chat.after", "order");
    expect((await dump(store, "CHAT")).slice(before.length).map(({ subject }) => subject)).toEqual(["chat.after"]);
  });
});

describe("pulls over an export that answers once", () => {
  test("a pull of more than one message strands the rest: the reason for max_batch 1", async () => {
    await makeDurable(store, "BOX", "wide", { filter_subject: "box.wide" });
    for (let n = 0; n < 3; n += 1) await put(store, "box.wide", `${n}`);
    const inbox = await tap(front, "_INBOX.wide");
    pulls(front, "wide", "_INBOX.wide", { batch: 3, expires: 1e9 });
    await until(
      "all three are handed out",
      async () => (await api(store, "CONSUMER.INFO.BOX.wide"))["num_ack_pending"] === 3,
    );
    await front.flush();
    expect(inbox.messages.map((message) => message.string())).toEqual(["0"]);
  });

  test("a waiting pull ends with its connection, so the next holder is served at once", async () => {
    await makeDurable(store, "BOX", "left", { filter_subject: "box.left", max_expires: 30e9 });
    const waiting = async (): Promise<unknown> => (await api(store, "CONSUMER.INFO.BOX.left"))["num_waiting"];
    const leaver = await broker.login(await broker.user("FRONT"));
    await tap(leaver, "_INBOX.gone");
    pulls(leaver, "left", "_INBOX.gone", { batch: 1, expires: 29e9 });
    await until("the pull waits", async () => (await waiting()) === 1);
    await leaver.close();
    await until("it ended", async () => (await waiting()) === 0);
    await put(store, "box.left", "letter");
    const inbox = await tap(front, "_INBOX.next");
    // It may wait: the store acknowledges a message before the durable has heard of it.
    pulls(front, "left", "_INBOX.next", { batch: 1, expires: 29e9 });
    await until("the next holder has it", () => inbox.messages.length === 1);
    expect(inbox.messages.map((message) => message.string())).toEqual(["letter"]);
  });

  test("a pull whose reply nobody reads ends unserved", async () => {
    await makeDurable(store, "BOX", "unread", { filter_subject: "box.unread", max_expires: 30e9 });
    await put(store, "box.unread", "letter");
    pulls(front, "unread", "_INBOX.nobody", { batch: 1, expires: 29e9 });
    const inbox = await tap(front, "_INBOX.reader");
    pulls(front, "unread", "_INBOX.reader");
    await until("the reader has it", () => inbox.messages.length === 1);
    expect(inbox.messages.map((message) => message.string())).toEqual(["letter"]);
  });

  test("a pull aimed at what somebody else listens to outlives its connection and takes the message: the reason for max_expires", async () => {
    await makeDurable(store, "BOX", "aimed", { filter_subject: "box.aimed", max_expires: 30e9 });
    const facts = async (): Promise<unknown[]> => {
      const { num_waiting, num_ack_pending } = await api(store, "CONSUMER.INFO.BOX.aimed");
      return [num_waiting, num_ack_pending];
    };
    const listener = await tap(front, "live.listener");
    const leaver = await broker.login(await broker.user("FRONT"));
    pulls(leaver, "aimed", "live.listener", { batch: 1, expires: 29e9 });
    await until("the pull waits", async () => (await facts())[0] === 1);
    await leaver.close();
    await put(store, "box.aimed", "letter");
    await until("it is handed out", () => listener.messages.length === 1);
    expect([listener.subjects(), await facts()]).toEqual([["box.aimed"], [0, 1]]);
  });

  test("max_expires does not bound a pull that names no expiry: it waits for as long as somebody listens to its target", async () => {
    await makeDurable(store, "BOX", "endless", { filter_subject: "box.endless", max_expires: 1e9 });
    const facts = async (): Promise<unknown> => (await api(store, "CONSUMER.INFO.BOX.endless"))["num_waiting"];
    const listener = await tap(front, "live.endless");
    const leaver = await broker.login(await broker.user("FRONT"));
    leaver.publish(`${NEXT}.endless`, "", { reply: "live.endless" });
    pulls(leaver, "endless", "live.endless", { batch: 1 });
    pulls(leaver, "endless", "live.endless", { batch: 1, expires: 1e9 });
    await until("all three wait", async () => (await facts()) === 3);
    await leaver.close();
    await until("the bounded one ended", async () => (await facts()) === 2);
    await new Promise((resolve) => setTimeout(resolve, 1500));
    expect(await facts()).toBe(2);
    listener.stop();
    await until("they end with the last listener", async () => (await facts()) === 0);
  });
});

describe("a reply that is a pattern", () => {
  const waitingFor = async (durable: string, reply: string): Promise<Tap> => {
    await makeDurable(store, "BOX", durable, { filter_subject: `box.${durable}`, ack_wait: 1e9, max_expires: 30e9 });
    const inbox = await tap(front, `${reply}.*`);
    pulls(front, durable, `${reply}.1`, { batch: 1, expires: 29e9 });
    await until("the pull waits", async () => (await api(store, `CONSUMER.INFO.BOX.${durable}`))["num_waiting"] === 1);
    return inbox;
  };

  test("takes the way back of every answer that it matches: others' waiting pulls are handed out to nobody", async () => {
    const inbox = await waitingFor("victim", "_INBOX.victim");
    const attacker = await broker.login(await broker.user("FRONT", { pub: { allow: ["chat.attacker"] } }));
    attacker.publish("chat.attacker", "x", { reply: ">" });
    await attacker.flush();
    await until("the post is stored", async () =>
      (await dump(store, "CHAT")).some(({ subject }) => subject === "chat.attacker"),
    );
    await put(store, "box.victim", "letter");
    await until(
      "it is handed out",
      async () => (await api(store, "CONSUMER.INFO.BOX.victim"))["num_ack_pending"] === 1,
    );
    await front.flush();
    expect(inbox.messages).toEqual([]);
    // A delay and no loss: it comes again after its ack wait, to the next pull.
    await until("the next pull has it", async () => {
      pulls(front, "victim", "_INBOX.victim.2");
      await front.flush();
      return inbox.messages.some((message) => message.string() === "letter");
    });
  });

  test("takes nothing that it does not match", async () => {
    const inbox = await waitingFor("spared", "_INBOX.spared");
    await put(front, "chat.a", "x");
    front.publish("chat.a", "x", { reply: "other.>" });
    await put(front, "chat.a", "after it");
    await put(store, "box.spared", "letter");
    await until("it came", () => inbox.messages.length === 1);
    expect(inbox.messages.map((message) => message.string())).toEqual(["letter"]);
  });
});

describe("traces of a message", () => {
  const trace = (nc: NatsConnection, subject: string, to: string): void =>
    nc.publish(subject, "x", publishOptions({ headers: { "Nats-Trace-Dest": to } }));

  test("go where the publisher asks, into the store too; but only where it may publish", async () => {
    const narrow = await broker.login(
      await broker.user("FRONT", { pub: { allow: ["chat.narrow"] }, sub: { allow: ["_INBOX.>"] } }),
    );
    const heard = await tap(front, "live.traced");
    trace(narrow, "chat.narrow", "live.traced");
    trace(narrow, "chat.narrow", "chat.bob");
    await narrow.flush();
    trace(front, "chat.front", "live.traced");
    trace(front, "chat.front", "chat.traced");
    await until("the free one's traces came", () => heard.messages.length > 0);
    await until("and are stored", async () =>
      (await dump(store, "CHAT")).some(({ subject }) => subject === "chat.traced"),
    );
    expect(heard.messages.filter((message) => message.string().includes("chat.narrow"))).toEqual([]);
    expect((await dump(store, "CHAT")).map(({ subject }) => subject)).not.toContain("chat.bob");
  });
});
