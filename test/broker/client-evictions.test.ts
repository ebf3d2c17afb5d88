/** What a member is told of copies that the limit may have removed (§8): by the stamp of the copy, and by nothing else. */
import { type NatsConnection, headers } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type DeliveryWorld, startDeliveryWorld } from "../support/delivery-world.ts";
import { type TestSession, take } from "../support/sessions.ts";
import type { Minted } from "../support/space.ts";
import { copiesOf, markerOf } from "../support/stored-copies.ts";
import { until } from "../support/until.ts";

let world: DeliveryWorld;
let store: NatsConnection;
let speaker: TestSession;

beforeAll(async () => {
  world = await startDeliveryWorld();
  store = await world.space.store();
  speaker = await world.sessions.minted({ actor: "speaker", subscribe: [">"], publish: [">"] });
}, 60_000);
afterAll(() => world.stop());

const again = (member: Minted): Promise<TestSession> =>
  world.sessions.own({ credentials: { kind: "static", text: member.text }, limits: { pullExpiresMs: 500 } });

/** A member of the channel that is away. */
async function away(actor: string, channel: string): Promise<Minted> {
  const member = await world.space.mint({ actor, subscribe: [">"], publish: [] });
  const session = await again(member);
  expect(await session.join(channel)).toMatchObject({ state: "joined durable" });
  await session.drain();
  return member;
}

/** CHAT keeps 1,000 of a sender's posts on a channel: what is further ahead of the copies than that is lost to them. */
const AHEAD = 500;

async function post(channel: string, count: number): Promise<void> {
  for (let from = 0; from < count; from += AHEAD) {
    const numbers = Array.from({ length: Math.min(AHEAD, count - from) }, (_, n) => from + n);
    const sent = await Promise.all(numbers.map((n) => speaker.send(channel, `n${n}`)));
    const last = Math.max(...sent.map(({ seq }) => seq));
    await until("the fan-out has passed it", async () => {
      const { sequence = 0 } = (await markerOf(store)) ?? {};
      return sequence >= last || `${sequence} of ${last}`;
    });
  }
}

/** Posts one by one until the newest copy has the stamp of the changed limit. */
async function stamped(member: Minted, channel: string, stamp: string): Promise<void> {
  await until(`copies are stamped ${stamp}`, async () => {
    await post(channel, 1);
    return (await copiesOf(store, member.view)).at(-1)?.limit === stamp;
  });
}

/** What it is told of after it has read one copy. */
async function toldBy(member: Minted, channel: string): Promise<string[]> {
  const session = await again(member);
  await session.join(channel, { replay: false });
  await take(session, 1);
  const told = session.told.flatMap((event) => (event.type === "shortfall" ? [event.message] : []));
  await session.drain();
  return told;
}

const limit = (maxPerSubject: number | null) => world.space.call("limits-set", { store: "delivery", maxPerSubject });

describe("W8.14 more copies waited than are kept", () => {
  test("W8.13 W8.14 a new space keeps 1,000 for each member: 1,100 while away are told of, once", async () => {
    const member = await away("thousand", "e1");
    await post("e1", 1100);
    const copies = await copiesOf(store, member.view);
    expect(copies).toHaveLength(1000);
    expect(new Set(copies.map((copy) => copy.limit))).toEqual(new Set(["1000"]));
    expect(await toldBy(member, "e1")).toEqual([expect.stringContaining("earlier ones may have been dropped")]);
  }, 60_000);

  test("W8.14 998 behind the first are not", async () => {
    const member = await away("fewer", "e2");
    await post("e2", 999);
    expect(await toldBy(member, "e2")).toEqual([]);
  }, 60_000);

  test("W8.13 W8.14 without a limit the stamp is none, and however many wait, nothing is told", async () => {
    const member = await away("unlimited", "e3");
    await limit(null);
    await stamped(member, "e3", "none");
    // What was written before the change goes: the first that is read is one of the others.
    for (const { limit: stamp, seq } of await copiesOf(store, member.view)) {
      if (stamp !== "none") await store.request("$JS.API.STREAM.MSG.DELETE.DLV_main", JSON.stringify({ seq }));
    }
    await post("e3", 1100);
    expect((await copiesOf(store, member.view)).length).toBeGreaterThan(1100);
    expect(await toldBy(member, "e3")).toEqual([]);
    await limit(1000);
    await stamped(member, "e3", "1000");
  }, 90_000);

  test("W8.13 W8.14 a copy without a stamp was written under 1,000", async () => {
    const member = await away("unstamped", "e4");
    const { principal, uid } = member.view;
    const subject = `cotal.main.dlv.${principal.owner}.${principal.actor}.${uid}`;
    const from = { id: speaker.me.id, name: "speaker" };
    const { owner, actor } = speaker.me.principal;
    for (let n = 0; n < 1000; n += 1) {
      const head = headers();
      head.set("Cotal-Source-Subject", `cotal.main.chat.${owner}.${actor}.e4`);
      head.set("Cotal-Source-Sequence", String(n + 1));
      const message = { id: `old${n}`, ts: 1, space: "main", from, channel: "e4", parts: [] };
      store.publish(subject, JSON.stringify(message), { headers: head });
    }
    await store.flush();
    await until("all are stored", async () => (await copiesOf(store, member.view)).length === 1000);
    expect(await toldBy(member, "e4")).toEqual([expect.stringContaining("may have been dropped")]);
  }, 60_000);
});
