/**
 * The membership feed with a real broker, provisioner and delivery service (§8): who hears a channel, live or
 * durably, as those see it who may look, and what hostile clients can make of it.
 */
import { encodeUser } from "@nats-io/jwt";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readMembers } from "../../services/delivery/feed/members.ts";
import { allRows } from "../../shared/broker/reads.ts";
import type { BuiltProfile } from "../../shared/grants/matrix.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { type FeedMember, MembersAnswer } from "../../shared/protocol/endpoint/delivery-shapes.ts";
import type { Credential } from "../../shared/trust/creds.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { type DeliveryService, startDeliveryService } from "../support/delivery-service.ts";
import { accountKeys, daemonCredential, freshHolder } from "../support/holders.ts";
import { failure } from "../support/refusal.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { copiesOf, markerOf } from "../support/stored-copies.ts";
import { until as untilWithin } from "../support/until.ts";

const BUCKET = "cotal_membership_main";

let space: TestSpace;
let delivery: DeliveryService;
let store: NatsConnection;
let watcher: Minted;

beforeAll(async () => {
  space = await startSpace({ delivery: false });
  delivery = startDeliveryService(space, () => ({ COTAL_DELIVERY_MEMBERSHIP_SECONDS: "1" }));
  await delivery.ready();
  store = await space.store();
  watcher = await space.mint({ actor: "watcher", profile: "observer" });
}, 180_000);
afterAll(async () => {
  await delivery.kill("SIGTERM");
  await space.stop();
});

/** A look is taken every few seconds, and less often on a busy machine. */
const until = (what: string, holds: () => Promise<boolean>) => untilWithin(what, holds, 45_000);
const idOf = ({ view }: Credential): string => dotForm(view.principal);
const asked = async (channel: string, as: Credential = watcher, cursor?: number): Promise<MembersAnswer> => {
  const args = cursor === undefined ? { channel } : { channel, cursor };
  return MembersAnswer.parse(await space.call("members", args, { as, endpoint: EndpointName.Delivery }));
};

/** Who hears it, of one whole walk. */
async function members(channel: string, as: Credential = watcher): Promise<Map<string, FeedMember>> {
  const found = new Map<string, FeedMember>();
  for (let cursor: number | undefined; ;) {
    const page = await asked(channel, as, cursor);
    for (const member of page.members) found.set(member.id, member);
    if (page.cursor === undefined) return found;
    ({ cursor } = page);
  }
}
const seen = (what: string, channel: string, who: Credential, is: (member: FeedMember | undefined) => boolean) =>
  until(what, async () => is((await members(channel)).get(idOf(who))));
/** A look that began after now was written. */
async function lookedAgain(): Promise<void> {
  const at = async () => (JSON.parse((await stored()).get("=view") ?? '{"at":0}') as { at: number }).at;
  const before = await at();
  await until("two more looks", async () => (await at()) > before);
  const next = await at();
  await until("two more looks", async () => (await at()) > next);
}
async function stored(): Promise<Map<string, string>> {
  const rows = new Map<string, string>();
  for await (const { key, kind, data } of allRows(store, BUCKET, { limit: 500 })) {
    rows.set(key, kind === "marker" ? "(marker)" : new TextDecoder().decode(data));
  }
  return rows;
}
const forge = (key: string, value: unknown): Promise<unknown> =>
  store.request(`$KV.${BUCKET}.${key}`, typeof value === "string" ? value : JSON.stringify(value));

const minted = (actor: string, subscribe: string[]) => space.mint({ actor, subscribe, publish: [">"] });
const hears = (nc: NatsConnection, pattern: string) => nc.subscribe(`cotal.main.chat.*.*.${pattern}`);
async function joins(who: Minted, channel: string): Promise<void> {
  const { frontier } = (await space.call("frontier", { channel }, { as: who })) as { frontier: number };
  await space.call("durable-join", { channel, cursor: frontier }, { as: who, endpoint: EndpointName.Delivery });
}

describe("W8.19 what is seen", () => {
  test("a silent reader appears with the pattern it has subscribed to, and disappears with its subscription", async () => {
    const alice = await minted("alice", ["team.>"]);
    const nc = await space.connect(alice);
    const wide = hears(nc, "team.>");
    const one = hears(nc, "team.a");
    await nc.flush();
    await seen("both patterns", "team.a", alice, (member) => member?.live.join() === "team.>,team.a");
    expect((await members("team.b")).get(idOf(alice))).toMatchObject({ live: ["team.>"], durable: [], omitted: 0 });
    expect((await members("team")).has(idOf(alice))).toBe(false);
    wide.unsubscribe();
    one.unsubscribe();
    await seen("it is gone", "team.a", alice, (member) => member === undefined);
    // Without a trace: what once was leaves nothing behind.
    expect((await stored()).has(idOf(alice))).toBe(false);
  }, 120_000);

  test("a durable member appears while it is away, live beside it while it is here; two connections are one principal", async () => {
    const bob = await minted("bob", ["fam.>"]);
    await joins(bob, "fam.>");
    await joins(bob, "fam.x");
    await seen("its memberships", "fam.x", bob, (member) => member?.durable.join() === "fam.>,fam.x");
    expect((await members("fam.y")).get(idOf(bob))).toMatchObject({ live: [], durable: ["fam.>"] });
    const [here, there] = [await space.open(bob), await space.open(bob)];
    hears(here.nc, "fam.x");
    hears(there.nc, "fam.y");
    await Promise.all([here.nc.flush(), there.nc.flush()]);
    await seen("one connection", "fam.x", bob, (member) => member?.live.join() === "fam.x");
    await seen("the other", "fam.y", bob, (member) => member?.live.join() === "fam.y");
    await here.close();
    await there.close();
    await seen("away again", "fam.x", bob, (member) => member?.live.length === 0 && member.durable.length === 2);
    await space.call("durable-leave", { channel: "fam.>" }, { as: bob, endpoint: EndpointName.Delivery });
    await seen("one left", "fam.x", bob, (member) => member?.durable.join() === "fam.x");
  }, 120_000);

  test("who was deprovisioned is no member, whatever rows are left", async () => {
    const gone = await minted("gone", ["gone"]);
    await joins(gone, "gone");
    await seen("it is a member", "gone", gone, (member) => member?.durable.join() === "gone");
    const { owner, actor } = gone.view.principal;
    const { uid, opId } = (await space.call("deprovision", { owner, actor })) as { uid: string; opId: string };
    await space.call("deprovision-complete", { owner, actor, uid, opId });
    await seen("it is none", "gone", gone, (member) => member === undefined);
    expect((await stored()).has(idOf(gone))).toBe(false);
  }, 120_000);

  test("nothing is written while nothing changes but that it was looked, and the age of the view is told", async () => {
    await lookedAgain();
    const before = await stored();
    await lookedAgain();
    const after = await stored();
    expect(before.delete("=view") && after.delete("=view")).toBe(true);
    expect(after).toEqual(before);
    const { view } = await asked("general");
    expect(view).toMatchObject({ state: "seen", gap: null });
  }, 120_000);

  test("a dead daemon's feed stands and says its age; the next one goes on from it", async () => {
    await lookedAgain();
    await delivery.kill("SIGKILL");
    const before = await readMembers(store, "main", { channel: ">" });
    expect(before.members.length).toBeGreaterThan(0);
    await until("it is older than a living one ever is", async () => {
      const { view } = await readMembers(store, "main", { channel: ">" });
      return view.state === "seen" && view.ageMs > 8000;
    });
    expect((await readMembers(store, "main", { channel: ">" })).members).toEqual(before.members);
    delivery.restart();
    await delivery.ready();
    await until("it is young again", async () => {
      const { view } = await asked("general");
      return view.state === "seen" && view.ageMs < 8000;
    });
  }, 180_000);
});

describe("W8.19 W9.07 who may look", () => {
  test.each(["observer", "admin"] as const)("%s may", async (profile) => {
    const as = await space.mint({ actor: `looks_${profile}`, profile });
    expect((await asked("general", as)).view.state).toBe("seen");
  });

  test("deployer may", async () => {
    const scope = { ...freshHolder(`u_${"d".repeat(26)}`, "deployer"), space: "main" };
    const as = await daemonCredential(space, "deployer", "front", scope);
    expect((await asked("general", as)).view.state).toBe("seen");
  });

  test.each(["agent", "operator", "probe", "channel-writer"] as const)("%s is refused", async (profile) => {
    const as = profile === "operator" ? space.operator() : await space.mint({ actor: actorOf(profile), profile });
    expect((await failure(asked("general", as))).code).toBe("permission-denied");
  });
});
const actorOf = (profile: BuiltProfile): string => `no_${profile.replace("-", "_")}`;

describe("W8.19 what hostile clients make of it", () => {
  /** An agent's credential with no limit of its own. */
  const unlimited = (actor: string) =>
    daemonCredential(space, "agent", "front", {
      ...freshHolder(`u_${"h".repeat(26)}`, actor),
      space: "main",
      allowSubscribe: [">"],
      allowPublish: [],
      commands: [],
      serves: false,
    });

  test("10,000 subscriptions on one connection are counted and not read, and their neighbours are seen", async () => {
    const [crowd, quiet] = [await unlimited("crowd"), await unlimited("quiet")];
    const many = await space.connect(crowd);
    for (let at = 0; at < 10_000; at += 1) hears(many, `many.c${at}`);
    const few = await space.connect(quiet);
    hears(few, "many.c7");
    await Promise.all([many.flush(), few.flush()]);
    await seen("it is told as too many", "many.c7", crowd, (member) => (member?.omitted ?? 0) >= 10_000);
    expect((await members("many.c7")).get(idOf(crowd))?.live).toEqual([]);
    await seen("its neighbour", "many.c7", quiet, (member) => member?.live.join() === "many.c7");
    await many.close();
    await seen("it is gone", "many.c7", crowd, (member) => member === undefined);
  }, 120_000);

  test("what does not fit into a value is counted, and a page stays one message", async () => {
    const long = await unlimited("long");
    const nc = await space.connect(long);
    const name = (at: number) => `long.${String(at).padStart(4, "0")}.${"x".repeat(3800)}`;
    for (let at = 0; at < 200; at += 1) hears(nc, name(at));
    hears(nc, "long.>");
    await nc.flush();
    await seen("as much as fits", "long.>", long, (member) => (member?.omitted ?? 0) > 100);
    const row = (await stored()).get(idOf(long)) ?? "";
    expect(row.length).toBeLessThanOrEqual(262_144);
    const { live, omitted } = JSON.parse(row) as { live: string[]; omitted: number };
    expect(live.length + omitted).toBe(201);
    expect((await members("long.>")).get(idOf(long))?.live).toHaveLength(4);
    await nc.close();
  }, 120_000);

  test("a connection without a principal's name is a gap that is told, and garbage that it subscribes to is nothing", async () => {
    const user = newKey("user");
    const { accountKey, signer } = accountKeys(space, "main", "front");
    const jwt = await encodeUser('{"=view":1}\u0000', user.publicKey, signer.pair, { issuer_account: accountKey });
    const { holder, inboxNonce } = freshHolder(`u_${"r".repeat(26)}`, "root");
    const view = { ...holder, inboxNonce } as unknown as Credential["view"];
    const nameless = await space.connect({ view, jwt, sign: user.sign });
    hears(nameless, "general");
    const mallory = await unlimited("mallory");
    const nc = await space.connect(mallory);
    for (const pattern of ["gar\u0001bage", "ü.x", "$KV.x", `${"y".repeat(5000)}`, "a.b*", "ok.one"])
      hears(nc, pattern);
    nc.subscribe("cotal.main.chat.*.*.>");
    await Promise.all([nameless.flush(), nc.flush()]);
    await seen("what is lawful", "ok.one", mallory, (member) => member?.live.join() === ">,ok.one");
    const row = JSON.parse((await stored()).get(idOf(mallory)) ?? "{}") as { live: string[] };
    expect(row.live).toEqual([">", "ok.one"]);
    await until("the gap is told", async () => {
      const { view: age } = await asked("general");
      return age.state === "seen" && /1 connections bear no principal's name/.test(age.gap ?? "");
    });
    expect([...(await stored()).keys()].filter((key) => !/^(=view|[A-Za-z0-9_]+\.[A-Za-z0-9_]+)$/.test(key))).toEqual(
      [],
    );
    await Promise.all([nameless.close(), nc.close()]);
    await until("it is complete again", async () => {
      const { view: age } = await asked("general");
      return age.state === "seen" && age.gap === null;
    });
  }, 120_000);

  test("a forged feed gives nothing and takes nothing, and is put right by the next look", async () => {
    const [eve, fred] = [await minted("eve", ["public"]), await minted("fred", ["public", "secret"])];
    await joins(fred, "secret");
    await seen("fred", "secret", fred, (member) => member?.durable.join() === "secret");
    // Eve is said to be a member of what she may not read, and Fred of nothing.
    await forge(idOf(eve), { live: ["secret"], durable: ["secret", ">"], observedAt: 1 });
    await forge(idOf(fred), { live: [], durable: [], observedAt: 1 });
    await forge("u_x.nobody", "not JSON");
    await forge("=view", { v: 1, at: 1, gap: null, by: "me" });
    const nc = await space.connect(fred);
    const from = { id: idOf(fred), name: "fred" };
    const body = { id: "m1", ts: 1, space: "main", from, channel: "secret", parts: [{ kind: "text", text: "kept" }] };
    const answer = await nc.request(spaceSubjects("main").chat(fred.view.principal, "secret"), JSON.stringify(body));
    const { seq } = answer.json() as { seq: number };
    await until("the fan-out has passed it", async () => ((await markerOf(store))?.sequence ?? 0) >= seq);
    expect((await copiesOf(store, fred.view)).map(({ text }) => text)).toEqual(["kept"]);
    expect(await copiesOf(store, eve.view)).toEqual([]);
    const history = space.call("history", { channel: "secret" }, { as: eve });
    expect((await failure(history)).code).toBe("permission-denied");
    await seen("fred is back", "secret", fred, (member) => member?.durable.join() === "secret");
    await seen("eve is not there", "secret", eve, (member) => member === undefined);
    await until("nobody is not there", async () => !(await stored()).has("u_x.nobody"));
  }, 120_000);
});
