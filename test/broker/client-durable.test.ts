/** A durable channel through the SDK: joined durable or live, copies for who was away, one showing, leave (§4, §7, §8). */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { InboxItem } from "../../shared/client/index.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { type DeliveryWorld, startDeliveryWorld } from "../support/delivery-world.ts";
import { failure } from "../support/refusal.ts";
import { type TestSession, take, texts } from "../support/sessions.ts";
import { backstopOf, copiesOf, markerOf, rowsOf } from "../support/stored-copies.ts";
import { until } from "../support/until.ts";

let world: DeliveryWorld;
let store: NatsConnection;

beforeAll(async () => {
  world = await startDeliveryWorld();
  store = await world.space.store();
}, 60_000);
afterAll(() => world.stop());

const passed = (seq: number) =>
  until("the fan-out has passed it", async () => ((await markerOf(store))?.sequence ?? 0) >= seq);
const again = async (credential: { readonly text: string }): Promise<TestSession> =>
  world.sessions.own({ credentials: { kind: "static", text: credential.text } });
const all = { subscribe: [">"], publish: [">"] };
let speaking: Promise<TestSession> | undefined;
const speaker = () => (speaking ??= world.sessions.minted({ actor: "speaker", ...all }));
const settled = (who: TestSession) =>
  until("every copy is acknowledged", async () => {
    const { waiting, unacknowledged } = await backstopOf(store, who.me);
    return waiting === 0 && unacknowledged === 0;
  });
const chat = (items: readonly InboxItem[]) => items.filter(({ kind }) => kind === "chat");

describe("W4.04 a durable channel", () => {
  test("W7.13 is joined durable once both stand; who was away gets what was posted meanwhile, in order and once", async () => {
    const credential = await world.space.mint({ actor: "away", ...all });
    const from = await speaker();
    const first = await again(credential);
    expect(await first.join("d1")).toMatchObject({ state: "joined durable", class: "durable" });
    await passed((await from.send("d1", "while here")).seq);
    expect(texts(await take(first, 1))).toEqual(["while here"]);
    await settled(first);
    await first.close();
    for (const words of ["one", "two", "three"]) await passed((await from.send("d1", words)).seq);
    const second = await again(credential);
    await second.join("d1", { replay: false });
    expect(texts(await take(second, 3))).toEqual(["one", "two", "three"]);
    await settled(second);
    expect(texts(chat(await second.history("d1")))).toHaveLength(4);
    await second.close();
  }, 30_000);

  test("W4.09 one message on three paths is shown once, and its copy is acknowledged after it was handled", async () => {
    const from = await speaker();
    const to = await world.sessions.minted({ actor: "thrice", ...all });
    await to.join("d2");
    const inbox = to.inbox();
    const sent = await from.send("d2", "once");
    await passed(sent.seq);
    const item = await inbox.next();
    expect(item.value?.text).toBe("once");
    await until("its copy is delivered too", async () => (await backstopOf(store, to.me)).waiting === 0);
    // In hand, not handled: no copy may be acknowledged.
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect((await backstopOf(store, to.me)).unacknowledged).toBe(1);
    item.value?.ack();
    await settled(to);
    await inbox.return?.();
    await to.close();
  }, 30_000);

  test("W4.04 what a handler failed to handle comes again as its copy", async () => {
    const from = await speaker();
    const to = await world.sessions.minted({ actor: "failing", ...all });
    await to.join("d3");
    let seen = 0;
    const handling = to.onItem(() => {
      seen += 1;
      if (seen === 1) throw new Error("not now");
    });
    await passed((await from.send("d3", "twice")).seq);
    await until("it came again", () => seen === 2);
    await settled(to);
    expect(seen).toBe(2);
    await handling.stop();
    await to.close();
  }, 30_000);

  test("W7.12 after a leave nothing new comes; what was stored before it does", async () => {
    const credential = await world.space.mint({ actor: "leaving", ...all });
    const from = await speaker();
    const first = await again(credential);
    await first.join("d4");
    await passed((await from.send("d4", "before")).seq);
    expect(await first.leave("d4")).toBe(true);
    await passed((await from.send("d4", "after")).seq);
    await first.close();
    const second = await again(credential);
    await second.join("d4.other");
    await passed((await from.send("d4.other", "elsewhere")).seq);
    expect(texts(await take(second, 2)).toSorted()).toEqual(["before", "elsewhere"]);
    await settled(second);
    expect((await rowsOf(store, second.me)).map(({ pattern, state }) => [pattern, state])).toEqual([
      ["d4", "left"],
      ["d4.other", "joined"],
    ]);
    await second.close();
  }, 30_000);

  test("W7.14 W7.15 a family is joined durable; a wildcard and the root say that they are live only", async () => {
    const to = await world.sessions.minted({ actor: "wide", ...all });
    expect(await to.join("fam.>")).toMatchObject({ state: "joined durable" });
    for (const wide of ["fam.*", ">"]) {
      const joined = await to.join(wide);
      expect(joined.state).toBe("joined live");
      expect(joined.shortfall).toContain("joined live only");
    }
    await to.close();
  });

  test("W7.03 a live channel takes no membership", async () => {
    await world.space.call("channel-set", { channel: "livechan", change: { deliveryClass: "live" } });
    const to = await world.sessions.minted({ actor: "livejoin", ...all });
    expect(await to.join("livechan")).toMatchObject({ state: "joined live", class: "live" });
    expect(await rowsOf(store, to.me)).toEqual([]);
    await to.close();
  });

  test("W4.08 W4.06 what is joined is told from what a mention alone reaches, and the mention comes without a join", async () => {
    for (const channel of ["w408.in", "w408.out", "w408.no"]) {
      await world.space.call("channel-set", { channel, change: { deliveryClass: "live" } });
    }
    const to = await world.sessions.minted({ actor: "reached", subscribe: ["w408.in", "w408.out"], publish: [">"] });
    await to.join("w408.in");
    const reach = async () =>
      (await to.channels()).channels
        .filter(({ channel }) => channel.startsWith("w408."))
        .map((entry) => `${entry.channel} ${entry.reach}`);
    expect(await reach()).toEqual(["w408.in joined", "w408.out mention-reachable"]);
    const from = await speaker();
    for (const [channel, mentions] of [
      ["w408.no", ["reached"]],
      ["w408.out", []],
      ["w408.out", ["reached"]],
    ] as const) {
      await passed((await from.send(channel, `${channel} ${mentions.length}`, { mentions })).seq);
    }
    // It has joined nothing that is durable.
    expect(texts(await take(to, 1))).toEqual(["w408.out 1"]);
    await settled(to);
    await to.leave("w408.in");
    expect(await reach()).toEqual(["w408.in mention-reachable", "w408.out mention-reachable"]);
    await to.close();
  }, 30_000);

  test("W8.13 W8.14 copies that the limit may have removed are told", async () => {
    await world.space.call("limits-set", { store: "delivery", maxPerSubject: 5 });
    const credential = await world.space.mint({ actor: "late", ...all });
    const from = await speaker();
    const first = await again(credential);
    await first.join("d5");
    await first.close();
    await new Promise((resolve) => setTimeout(resolve, 3000));
    let last = 0;
    for (let n = 0; n < 8; n += 1) last = (await from.send("d5", `n${n}`)).seq;
    await passed(last);
    const second = await again(credential);
    await second.join("d5", { replay: false });
    expect(texts(await take(second, 5))).toEqual(["n3", "n4", "n5", "n6", "n7"]);
    expect(second.told.filter((event) => event.type === "shortfall")).toMatchObject([
      { message: expect.stringContaining("may have been dropped") as string },
    ]);
    expect((await copiesOf(store, second.me)).every(({ limit }) => limit === "5")).toBe(true);
    await second.close();
    await world.space.call("limits-set", { store: "delivery", maxPerSubject: 1000 });
  }, 30_000);

  test("W7.13 without its daemon it is joined live and says so; with it, it becomes durable by itself", async () => {
    await world.delivery.kill();
    const from = await speaker();
    const to = await world.sessions.minted({ actor: "early", ...all });
    const joined = await to.join("d6");
    expect(joined.state).toBe("joined live");
    expect(joined.shortfall).toContain("durable backstop unavailable");
    await from.send("d6", "live all the same");
    expect(texts(await take(to, 1))).toEqual(["live all the same"]);
    expect(await failure(to.call("delivery", "durable-list", {}))).toMatchObject({ code: "unavailable" });
    world.delivery.restart();
    await world.delivery.ready();
    await until("it is durable", () => to.joined()[0]?.state === "joined durable", 40_000);
    expect(to.told).toContainEqual({ type: "joined-durable", channel: "d6" });
    await to.close();
  }, 60_000);
});

test("W4.04 the daemon is killed, the broker is killed: who was away has every post once, in order", async () => {
  const credential = await world.space.mint({ actor: "patient", ...all });
  const from = await speaker();
  const first = await again(credential);
  expect(await first.join("d7")).toMatchObject({ state: "joined durable" });
  await first.close();
  const sent: string[] = [];
  const say = async (count: number): Promise<void> => {
    for (let n = 0; n < count; n += 1) {
      const words = `w${sent.length}`;
      await from.send("d7", words);
      sent.push(words);
    }
  };
  await say(5);
  await world.delivery.kill();
  await say(5);
  world.delivery.restart();
  await world.delivery.ready();
  await say(5);
  await world.space.broker.kill();
  await world.space.broker.restart();
  await until("sends go through again", async () => (await failureOf(say(1))) === undefined);
  const last = (await from.send("d7", "last")).seq;
  sent.push("last");
  await until(
    "the fan-out has passed it",
    async () => {
      const marker = await markerOf(store).catch(() => undefined);
      return (marker?.sequence ?? 0) >= last;
    },
    40_000,
  );
  const second = await again(credential);
  await second.join("d7", { replay: false });
  // A send that nobody confirmed may be stored all the same: the stream says what was posted.
  const stored = texts(await from.history("d7"));
  const got = texts(await take(second, stored.length));
  expect([...new Set(got)]).toEqual(got);
  expect(got).toEqual(stored);
  expect(stored).toEqual(expect.arrayContaining(sent));
  await settled(second);
}, 90_000);

async function failureOf(pending: Promise<unknown>): Promise<unknown> {
  try {
    await pending;
    return undefined;
  } catch (thrown) {
    return thrown;
  }
}

test("W4.11 W5.10 what nobody could show at the head of the backstop is terminated, and what follows surfaces", async () => {
  const credential = await world.space.mint({ actor: "poisoned", ...all });
  const from = await speaker();
  const first = await again(credential);
  await first.join("d8");
  await first.close();
  const subject = spaceSubjects("main").dlv(credential.view.principal, credential.view.uid);
  const whole = JSON.stringify({
    id: "forged",
    ts: 1,
    space: "main",
    from: { id: from.me.id, name: "speaker" },
    channel: "d8",
    parts: [{ kind: "text", text: "forged" }],
  });
  // No JSON, no id, and a whole message that says nowhere which post it is a copy of.
  for (const bytes of ["", "{", JSON.stringify({ channel: "d8" }), whole]) await store.request(subject, bytes);
  await passed((await from.send("d8", "behind it")).seq);
  const second = await again(credential);
  await second.join("d8", { replay: false });
  expect(texts(await take(second, 1))).toEqual(["behind it"]);
  await settled(second);
  await second.close();
}, 60_000);

test("W8.10 nobody else reads a member's copies, and nobody in front writes one", async () => {
  const victim = await world.space.mint({ actor: "victim", ...all });
  const thief = await world.space.connect(await world.space.mint({ actor: "thief", ...all }));
  const { principal, uid } = victim.view;
  const subject = spaceSubjects("main").dlv(principal, uid);
  const denied = thief.closed();
  thief.publish(subject, "forged");
  thief.publish(spaceSubjects("main").dlvMarker(0), "forged");
  await thief.flush();
  expect(await copiesOf(store, victim.view)).toEqual([]);
  expect(await markerOf(store)).toMatchObject({ v: 1 });
  await thief.close();
  await denied;
});

test("a row of a membership that is no JSON is passed over, and the others are listed", async () => {
  const member = await world.sessions.minted({ actor: "damaged", ...all });
  expect(await member.join("d9")).toMatchObject({ state: "joined durable" });
  const { principal, uid } = member.me;
  const key = `${principal.owner}.${principal.actor}.${uid}.${"f".repeat(64)}`;
  expect((await store.request(`$KV.cotal_members_main.${key}`, "{")).json()).toHaveProperty("seq");
  const { data } = await member.call("delivery", "durable-list", {});
  expect(data).toMatchObject({ memberships: [{ channel: "d9", state: "joined" }] });
  await member.close();
});
