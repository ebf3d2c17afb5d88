/** What a lowered limit would remove, told before it is made (§8): the numbers of a dry run are those of the change. */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createStamp } from "../../services/delivery/fanout/limit.ts";
import { previewLimits } from "../../shared/broker/limits-preview.ts";
import { dlvDurable } from "../../shared/protocol/base/names.ts";
import { LimitsPreviewAnswer } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { type DeliveryWorld, startDeliveryWorld } from "../support/delivery-world.ts";
import { failure } from "../support/refusal.ts";
import type { Sessions } from "../support/sessions.ts";
import type { Minted, TestSpace } from "../support/space.ts";
import { backstopOf, copiesOf, markerOf } from "../support/stored-copies.ts";
import { until } from "../support/until.ts";

const HOUR = 3600;

let world: DeliveryWorld;
let space: TestSpace;
let store: NatsConnection;
let sessions: Sessions;
const members: Minted[] = [];

beforeAll(async () => {
  world = await startDeliveryWorld();
  ({ space, sessions } = world);
  store = await space.store();
  const from = await sessions.minted({ actor: "poster", subscribe: [], publish: [">"] });
  for (const actor of ["one", "two", "three"]) {
    const member = await space.mint({ actor, subscribe: ["p.>"], publish: [] });
    members.push(member);
    for (const channel of actor === "one" ? ["p.a"] : ["p.a", "p.b"]) {
      await space.call("durable-join", { channel, cursor: 0 }, { as: member, endpoint: "delivery" });
    }
  }
  let last = 0;
  for (let n = 0; n < 12; n += 1) last = (await from.send("p.a", `a${n}`)).seq;
  for (let n = 0; n < 5; n += 1) last = (await from.send("p.b", `b${n}`)).seq;
  await until("the fan-out has passed it", async () => ((await markerOf(store))?.sequence ?? 0) >= last);
}, 60_000);
afterAll(() => world.stop());

const preview = async (args: object) => LimitsPreviewAnswer.parse(await space.call("limits-preview", args));
const stored = () => Promise.all(members.map(async (member) => (await copiesOf(store, member.view)).length));
const keyOf = ({ view: { principal, uid } }: Minted): string => `${principal.owner}.${principal.actor}.${uid}`;

test("W8.12 a new space starts with no age and 1,000 copies; what is set stays when the space is set up again", async () => {
  const shown = async () => ((await space.call("limits-show", {})) as { delivery: object }).delivery;
  expect(await shown()).toEqual({ maxAgeSeconds: null, maxPerSubject: 1000 });
  await space.call("limits-set", { store: "delivery", maxAgeSeconds: 2 * HOUR, maxPerSubject: 500 });
  await space.provisioner.kill();
  await space.provisioner.restart();
  expect(await shown()).toEqual({ maxAgeSeconds: 2 * HOUR, maxPerSubject: 500 });
  await space.call("limits-set", { store: "delivery", maxAgeSeconds: null });
  expect(await shown()).toEqual({ maxAgeSeconds: null, maxPerSubject: 500 });
}, 30_000);

describe("W8.15 a dry run", () => {
  test.each([
    ["from a larger count", 1000, 4],
    ["from none", null, 3],
    ["to one", null, 1],
  ])(
    "W8.12 W8.15 %s: tells what each member loses, changes nothing, and the change then removes exactly that",
    async (_from, before, maxPerSubject) => {
      await space.call("limits-set", { store: "delivery", maxPerSubject: before });
      const had = await stored();
      const told = await preview({ store: "delivery", maxPerSubject });
      expect(await stored()).toEqual(had);
      expect((await space.call("limits-show", {})) as object).toMatchObject({ delivery: { maxPerSubject: before } });
      const lost = had.map((count) => Math.max(0, count - maxPerSubject));
      expect(told).toMatchObject({ store: "delivery", whole: true, messages: lost.reduce((sum, one) => sum + one, 0) });
      expect(told).toMatchObject({ before: { maxPerSubject: before }, after: { maxAgeSeconds: null, maxPerSubject } });
      const byMember = new Map(told.most.map((one) => [one.of, one.messages]));
      expect(members.map((member) => byMember.get(keyOf(member)) ?? 0)).toEqual(lost);
      await space.call("limits-set", { store: "delivery", maxPerSubject });
      expect(await stored()).toEqual(had.map((count, at) => count - (lost[at] ?? 0)));
      // The group's marker is no copy, and stays.
      expect(await markerOf(store)).toMatchObject({ v: 1 });
      expect(await backstopOf(store, (members[1] as Minted).view)).toMatchObject({ waiting: maxPerSubject });
    },
    30_000,
  );
});

describe("W8.15 by age", () => {
  const dlv = "DLV_main";
  const filter = "cotal.main.dlv.>";
  const later = (): number => Date.now() + 3 * HOUR * 1000;
  const age = { maxAgeSeconds: 2 * HOUR, maxPerSubject: null };

  test("nothing is old enough now; two hours on, everything is, and what lies between is counted by its own time", async () => {
    const had = await stored();
    expect(await preview({ store: "delivery", maxAgeSeconds: 2 * HOUR })).toMatchObject({ messages: 0, whole: true });
    const told = await previewLimits(store, dlv, age, { filter, nowMs: later() });
    expect(told.subjects.map(({ messages, kept }) => [messages, kept])).toEqual(had.map((count) => [count, 0]));
    // Direct gets count the same way as a consumer does.
    const chat = await previewLimits(store, "CHAT_main", age, {
      filter: "cotal.main.chat.>",
      nowMs: later(),
    });
    expect(chat.subjects.map(({ messages }) => messages)).toEqual([12, 5]);
  });

  test("of two messages a moment apart it takes the one that is older than the limit", async () => {
    await space.call("limits-set", { store: "delivery", maxPerSubject: null });
    const subject = "cotal.main.dlv.x.y.z";
    await store.request(subject, "first");
    await new Promise((resolve) => setTimeout(resolve, 50));
    await store.request(subject, "second");
    const answer = await store.request(`$JS.API.STREAM.MSG.GET.${dlv}`, JSON.stringify({ last_by_subj: subject }));
    const { message } = answer.json() as { message: { time: string } };
    // The limit falls right before the second.
    const nowMs = Date.parse(message.time) + 2 * HOUR * 1000;
    const told = await previewLimits(store, dlv, age, { filter: subject, nowMs });
    expect(told.subjects).toEqual([{ subject, messages: 1, kept: 1 }]);
  });

  test("where there are more subjects than are asked about, it says so", async () => {
    const told = await previewLimits(store, dlv, age, { filter, nowMs: later(), mostAged: 2 });
    expect(told.whole).toBe(false);
    expect(told.subjects).toHaveLength(2);
  });

  test("what it leaves behind in the broker goes by itself", async () => {
    const [first] = members as [Minted];
    await previewLimits(store, dlv, age, { filter, nowMs: later() });
    const names = async () =>
      (await store.request(`$JS.API.CONSUMER.NAMES.${dlv}`, "")).json() as { consumers: string[] };
    await until("no counting consumer is left", async () => {
      return (await names()).consumers.every((name) => name.startsWith("dlv_"));
    });
    expect((await names()).consumers).toContain(dlvDurable(first.view.principal, first.view.uid));
  });
});

test("W8.13 the stamp is the count of five seconds ago at most; a change that was cut short on its way reads as none", async () => {
  let now = 0;
  const stamp = createStamp(store, "main", () => now);
  await space.call("limits-set", { store: "delivery", maxPerSubject: 500 });
  expect(await stamp()).toBe("500");
  await space.call("limits-set", { store: "delivery", maxPerSubject: 400 });
  now = 2499;
  expect(await stamp()).toBe("500");
  now = 2500;
  expect(await stamp()).toBe("400");
  const info = (await store.request("$JS.API.STREAM.INFO.DLV_main", "")).json() as { config: object };
  const cutShort = { ...info.config, max_msgs_per_subject: Number.MAX_SAFE_INTEGER };
  await store.request("$JS.API.STREAM.UPDATE.DLV_main", JSON.stringify(cutShort));
  now = 5000;
  expect(await stamp()).toBe("none");
  await space.call("limits-set", { store: "delivery", maxPerSubject: 1000 });
});

test.each([
  [{ store: "delivery", maxAgeSeconds: HOUR }, "3600 seconds"],
  [{ store: "delivery", maxAgeSeconds: 7199 }, "7199 seconds"],
  [{ store: "delivery", maxPerSubject: 0 }, "count of 0"],
  [{ store: "delivery" }, "nothing to set"],
])("W8.12 %j is refused by name, by the change and by its dry run", async (args, words) => {
  const before = await space.call("limits-show", {});
  for (const command of ["limits-set", "limits-preview"]) {
    const error = await failure(space.call(command, args));
    expect(error).toMatchObject({ code: "bad-request" });
    expect(error.message).toContain(words);
  }
  expect(await space.call("limits-show", {})).toEqual(before);
});
