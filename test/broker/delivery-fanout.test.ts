/**
 * Durable membership and its copies, with a real broker, provisioner and delivery service (§4, §7, §8): what is
 * stored is counted from the stream.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { type DeliveryWorld, startDeliveryWorld } from "../support/delivery-world.ts";
import { failure } from "../support/refusal.ts";
import type { Minted, TestSpace } from "../support/space.ts";
import { copiesOf, markerOf, rowsOf } from "../support/stored-copies.ts";
import { until } from "../support/until.ts";

let world: DeliveryWorld;
let space: TestSpace;
let store: NatsConnection;

beforeAll(async () => {
  world = await startDeliveryWorld();
  ({ space } = world);
  store = await space.store();
}, 60_000);
afterAll(() => world.stop());

const ask = (who: Minted, command: string, args: object) =>
  space.call(command, args, { as: who, endpoint: EndpointName.Delivery });
const frontier = async (who: Minted, channel: string): Promise<number> =>
  ((await space.call("frontier", { channel }, { as: who })) as { frontier: number }).frontier;
const join = async (who: Minted, channel: string) =>
  ask(who, "durable-join", { channel, cursor: await frontier(who, channel) });
const leave = (who: Minted, channel: string) => ask(who, "durable-leave", { channel });

let ids = 0;
/** Publishes as an agent does; returns the post's sequence. */
async function post(who: Minted, channel: string, words: string, more: object = {}): Promise<number> {
  const nc = await connectionOf(who);
  ids += 1;
  const id = `m${ids}`;
  const from = { id: `${who.view.principal.owner}.${who.view.principal.actor}`, name: "poster" };
  const body = { id, ts: 1, space: "main", from, channel, parts: [{ kind: "text", text: words }], ...more };
  const answer = await nc.request(spaceSubjects("main").chat(who.view.principal, channel), JSON.stringify(body));
  return (answer.json() as { seq: number }).seq;
}
const connections = new Map<string, Promise<NatsConnection>>();
const connectionOf = (who: Minted): Promise<NatsConnection> => {
  const there = connections.get(who.jwt) ?? space.connect(who);
  connections.set(who.jwt, there);
  return there;
};
const passed = (seq: number) =>
  until("the fan-out has passed it", async () => ((await markerOf(store))?.sequence ?? 0) >= seq);
const copies = async (who: Minted): Promise<string[]> => (await copiesOf(store, who.view)).map(({ text }) => text);

const minted = (actor: string, subscribe: string[], more: Partial<Parameters<TestSpace["mint"]>[0]> = {}) =>
  space.mint({ actor, subscribe, publish: [">"], ...more });

describe("W8.11 copies of a durable channel", () => {
  test("W7.10 W7.11 W7.16 a member gets what is posted after its join and before its leave, and a rejoin brings no gap", async () => {
    const [alice, bob] = [await minted("alice", ["team.>"]), await minted("bob", ["team.>"])];
    await post(bob, "team.a", "before");
    expect(await join(alice, "team.a")).toMatchObject({ channel: "team.a", state: "joined" });
    await post(bob, "team.a", "one");
    await post(bob, "team.b", "elsewhere");
    await passed(await post(bob, "team.a", "two"));
    const left = (await leave(alice, "team.a")) as { membership: { leave: number } };
    expect(left.membership).toMatchObject({ state: "left" });
    await post(bob, "team.a", "gap");
    await join(alice, "team.a");
    await passed(await post(bob, "team.a", "three"));
    expect(await copies(alice)).toEqual(["one", "two", "three"]);
    const [first] = await copiesOf(store, alice.view);
    expect(first).toMatchObject({ channel: "team.a", kind: "durable", limit: "1000" });
    expect(first?.headers.filter((name) => name.startsWith("Cotal-"))).toHaveLength(4);
    expect(first?.headers).not.toContain("Nats-Msg-Id");
    expect(await copies(bob)).toEqual([]);
  });

  test("W7.14 a family and a channel of it bring one copy; the prefix itself is not of it", async () => {
    const [carol, dan] = [await minted("carol", ["fam.>", "fam"]), await minted("dan", ["fam.>", "fam"])];
    await join(carol, "fam.>");
    await join(carol, "fam.x");
    await post(dan, "fam.x", "x");
    await post(dan, "fam", "the prefix");
    await passed(await post(dan, "fam.y.z", "deep"));
    expect(await copies(carol)).toEqual(["x", "deep"]);
    await leave(carol, "fam.>");
    await post(dan, "fam.y", "no more");
    await passed(await post(dan, "fam.x", "still"));
    expect(await copies(carol)).toEqual(["x", "deep", "still"]);
    expect((await rowsOf(store, carol.view)).map(({ pattern, state }) => `${pattern} ${state}`)).toEqual([
      "fam.> left",
      "fam.x joined",
    ]);
  });

  test("W7.14 what a read list does not hold in one entry, and patterns that are no membership, are refused", async () => {
    const eve = await minted("eve", ["zone.a", "zone.b.*", "zone.c.>"]);
    expect(await join(eve, "zone.c.>")).toMatchObject({ state: "joined" });
    const refused = (channel: string) => failure(ask(eve, "durable-join", { channel, cursor: 0 }));
    expect(await refused("zone.>")).toMatchObject({ code: "permission-denied" });
    expect(await refused("zone.b.>")).toMatchObject({ code: "permission-denied" });
    expect(await refused("other")).toMatchObject({ code: "permission-denied" });
    expect(await refused(">")).toMatchObject({ code: "bad-request" });
    expect(await refused("zone.*")).toMatchObject({ code: "bad-request" });
    expect(await failure(ask(eve, "durable-join", { channel: "zone.a", cursor: 1e9 }))).toMatchObject({
      code: "bad-request",
    });
  });
});
