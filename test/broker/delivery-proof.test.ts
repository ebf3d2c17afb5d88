/**
 * Proof of delivery with a real broker, provisioner and delivery service: what waits for whom, and where a message
 * of one's own is (§4, §8, §8.1).
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { proofOf } from "../../services/delivery/proof/proof.ts";
import { DEFAULT_LIMITS } from "../../shared/client/index.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { PendingAnswer, ProofAnswer } from "../../shared/protocol/endpoint/proof-shapes.ts";
import { cli } from "../support/cli.ts";
import { type DeliveryService } from "../support/delivery-service.ts";
import { type DeliveryWorld, startDeliveryWorld } from "../support/delivery-world.ts";
import { api } from "../support/raw-jetstream.ts";
import { failure } from "../support/refusal.ts";
import { type Sessions, type TestSession, take } from "../support/sessions.ts";
import type { Minted, TestSpace } from "../support/space.ts";
import { until } from "../support/until.ts";

let world: DeliveryWorld;
let space: TestSpace;
let delivery: DeliveryService;
let sessions: Sessions;

beforeAll(async () => {
  world = await startDeliveryWorld();
  ({ space, delivery, sessions } = world);
  at = ["--state", space.state, "--server", space.url];
}, 60_000);
afterAll(() => world.stop());

/** The operator's command line on this space. */
let at: readonly string[];
const all = { subscribe: [">"], publish: [">"] };
const endpoint = EndpointName.Delivery;
const again = (credential: Minted): Promise<TestSession> =>
  // Short pulls: one that outlives its session takes what comes next, and it counts as handed out.
  sessions.own({ credentials: { kind: "static", text: credential.text }, limits: { pullExpiresMs: 500 } });
const idOf = ({ view: { principal } }: Minted): string => `${principal.owner}.${principal.actor}`;

/** The whole end of a lifecycle (§13.1). */
async function end({ view: { principal } }: Minted): Promise<void> {
  const begun = (await space.call("deprovision", principal)) as { uid: string; opId: string };
  await space.call("deprovision-complete", { ...principal, uid: begun.uid, opId: begun.opId });
}

/** Roles that a request is stored for, as the broker has them. */
async function storedRoles(): Promise<ReadonlySet<string>> {
  const info = await api(await space.store(), "STREAM.INFO.TASK_main", { subjects_filter: ">" });
  const { subjects } = info["state"] as { subjects: Record<string, number> };
  return new Set(Object.keys(subjects).flatMap((subject) => /^cotal\.main\.svc\.([^.]+)\./.exec(subject)?.[1] ?? []));
}

/** As the operator. */
const pending = async (args: object = {}) => PendingAnswer.parse(await space.call("pending", args, { endpoint }));
const pendingOf = async (who: Minted) => (await pending({ of: who.view.principal })).members[0];
const proof = async (as: Minted, args: object) => ProofAnswer.parse(await space.call("proof", args, { endpoint, as }));
const inboxOf = async (as: Minted) => {
  const answer = await proof(as, { about: "inbox" });
  return answer.about === "inbox" ? answer.member : undefined;
};
type Found = Extract<ProofAnswer, { about: "message" }>["found"];
const trace = async (as: Minted, args: object): Promise<Found> => {
  const answer = await proof(as, { about: "message", ...args });
  return answer.about === "message" ? answer.found : [];
};
/** State of each recipient, by the actor. */
function states(found: Found[number] | undefined): Record<string, string> {
  const list =
    found?.kind === "dm"
      ? found.recipients
      : found?.kind === "chat" && found.recipients.shown
        ? found.recipients.list
        : [];
  return Object.fromEntries(list.map(({ lifecycle, state }) => [lifecycle.split(".")[1] ?? "", state]));
}
const statesOf = async (as: Minted, args: object) => states((await trace(as, args))[0]);

test("an id is looked for in a space where nothing was ever sent, and it is all looked through", async () => {
  const answer = await proof(await space.mint({ actor: "t0", ...all }), { about: "message", id: "none" });
  expect(answer).toMatchObject({ found: [], looked: [{ whole: true }, { whole: true }, { whole: true }] });
});

describe("§8 what waits for whom", () => {
  test("of a member that is away, by tier: how many, since when, and when it last got one", async () => {
    const bob = await space.mint({ actor: "bob", ...all, role: "builder" });
    const from = await sessions.minted({ actor: "alice", ...all });
    const first = await again(bob);
    await first.join("p1");
    await from.dm(idOf(bob), "hello");
    await take(first, 1);
    await first.drain();
    // Its last pulls may outlive it by their expiry, and would be handed what comes next.
    await new Promise((resolve) => setTimeout(resolve, DEFAULT_LIMITS.pullExpiresMs + 100));
    const before = Date.now();
    for (let n = 0; n < 3; n += 1) await from.dm(idOf(bob), `dm ${n}`);
    for (let n = 0; n < 2; n += 1) await from.send("p1", `post ${n}`);
    await from.ask("builder", "build it");
    await until("the copies are written", async () => {
      return (await pendingOf(bob))?.tiers.find(({ tier }) => tier === "durable")?.["waiting"] === 2;
    });
    const answer = await pending({ of: bob.view.principal });
    const [member] = answer.members;
    expect(member).toMatchObject({ actor: "bob", name: "bob", uid: bob.view.uid });
    expect(member?.tiers).toMatchObject([
      { tier: "dm", state: "known", waiting: 3, handed: 0 },
      { tier: "durable", state: "known", waiting: 2, handed: 0 },
      { tier: "role", role: "builder", state: "known", waiting: 1, handed: 0 },
    ]);
    const [dm, durable] = member?.tiers ?? [];
    // One machine, one clock: the oldest was stored after the first hand-over.
    expect(dm?.["oldestAt"]).toBeGreaterThanOrEqual(before);
    expect(dm?.["deliveredAt"]).toBeLessThanOrEqual(Number(dm?.["oldestAt"]));
    expect(durable).not.toHaveProperty("deliveredAt");
    expect(answer.asOf).toBeGreaterThanOrEqual(Number(dm?.["oldestAt"]));
    expect(await inboxOf(bob)).toEqual(member);
    expect(JSON.stringify(answer)).not.toContain("post 0");
  }, 30_000);

  test("handed out and not confirmed is not waiting, and a second hand-over is counted", async () => {
    const carl = await space.mint({ actor: "carl", ...all });
    const from = await sessions.minted({ actor: "alice2", ...all });
    await from.dm(idOf(carl), "one");
    const to = await again(carl);
    const inbox = to.inbox();
    const item = await inbox.next();
    expect((await inboxOf(carl))?.tiers[0]).toMatchObject({ waiting: 0, handed: 1, redelivered: 0 });
    item.value?.nak(0);
    const second = await inbox.next();
    expect((await inboxOf(carl))?.tiers[0]).toMatchObject({ waiting: 0, handed: 1, redelivered: 1 });
    second.value?.ack();
    await until("it is confirmed", async () => (await inboxOf(carl))?.tiers[0]?.["handed"] === 0);
    expect((await inboxOf(carl))?.tiers[0]).not.toHaveProperty("oldestAt");
    await inbox.return?.();
    await to.close();
  }, 30_000);

  test("a member asks for itself alone: what is anybody's is the operator's, and an operator has no inbox", async () => {
    const dora = await space.mint({ actor: "dora", ...all });
    const refused = failure(space.call("pending", {}, { endpoint, as: dora }));
    expect(await refused).toMatchObject({ code: "permission-denied" });
    expect(await failure(proof(dora, { about: "inbox", of: "bob" }))).toMatchObject({ code: "bad-request" });
    expect(await failure(space.call("proof", { about: "inbox" }, { endpoint }))).toMatchObject({
      code: "permission-denied",
    });
  });

  test("everybody's is told in pages, each lifecycle with an inbox once; one that ended is in none", async () => {
    const minted: Minted[] = [];
    for (let at = 0; at < 70; at += 1) minted.push(await space.mint({ actor: `many_${at}`, ...all }));
    const [gone] = minted;
    if (gone !== undefined) await end(gone);
    const seen: string[] = [];
    let cursor: number | undefined;
    let pages = 0;
    do {
      const page = await pending(cursor === undefined ? {} : { cursor });
      seen.push(...page.members.map(({ uid }) => uid));
      ({ cursor } = page);
      pages += 1;
    } while (cursor !== undefined);
    expect(pages).toBeGreaterThan(1);
    expect(new Set(seen).size).toBe(seen.length);
    const uids = minted.map(({ view }) => view.uid);
    expect(uids.filter((uid) => !seen.includes(uid))).toEqual([gone?.view.uid]);
  }, 60_000);
});

describe("§4 where a message of one's own is", () => {
  test("a post: stored at, copied for each member, waiting for one and confirmed by another; nothing of a member that left", async () => {
    const [poster, here, away, left] = await mintAll("t1_poster", "t1_here", "t1_away", "t1_left");
    const from = await again(poster);
    const [first, second, third] = [await again(here), await again(away), await again(left)];
    for (const member of [first, second, third]) await member.join("t1");
    await third.leave("t1");
    await second.drain();
    const sent = await from.send("t1", "did you get it?");
    await take(first, 1);
    await until(
      "one has confirmed it",
      async () => (await statesOf(poster, { id: sent.id }))["t1_here"] === "confirmed",
    );
    const [found, ...more] = await trace(poster, { id: sent.id });
    expect(more).toEqual([]);
    expect(found).toMatchObject({ kind: "chat", seq: sent.seq, stream: sent.stream, channel: "t1" });
    expect(found).toMatchObject({ deliveryClass: "durable", recipients: { shown: true, whole: true } });
    expect(states(found)).toEqual({ t1_here: "confirmed", t1_away: "waiting" });
    // With its place, the same is read there.
    expect(await statesOf(poster, { id: sent.id, kind: "chat", seq: sent.seq })).toEqual(states(found));
    const back = await again(away);
    await back.join("t1", { replay: false });
    const inbox = back.inbox();
    const item = await inbox.next();
    expect((await statesOf(poster, { id: sent.id }))["t1_away"]).toBe("handed");
    item.value?.ack();
    await until("both have", async () => (await statesOf(poster, { id: sent.id }))["t1_away"] === "confirmed");
    await inbox.return?.();
  }, 40_000);

  test("only one's own: another's message is found under no id and at no place", async () => {
    const [poster, other] = await mintAll("t2_poster", "t2_other");
    const from = await again(poster);
    const sent = await from.send("t2", "mine");
    const dm = await from.dm(idOf(other), "for you");
    for (const args of [
      { id: sent.id },
      { id: sent.id, kind: "chat", seq: sent.seq },
      { id: dm.id },
      { id: dm.id, kind: "dm", seq: dm.seq },
    ]) {
      expect(await trace(other, args)).toEqual([]);
      expect(await trace(poster, args)).toHaveLength(1);
    }
    expect(await trace(poster, { id: sent.id, kind: "chat", seq: sent.seq + 1 })).toEqual([]);
  }, 30_000);

  test("who may post and not read is told how many, and not who", async () => {
    const member = await space.mint({ actor: "t3_member", ...all });
    const mute = await space.mint({ actor: "t3_mute", subscribe: ["elsewhere"], publish: ["t3"] });
    await (await again(member)).join("t3");
    const sent = await (await again(mute)).send("t3", "from outside");
    const [found] = await trace(mute, { id: sent.id });
    expect(found).toMatchObject({ kind: "chat", recipients: { shown: false, count: 1 } });
    expect(JSON.stringify(found)).not.toContain("t3_member");
  }, 30_000);

  test("a direct message: waiting, handed, confirmed; a successor never gets it, and nobody under an ended name does", async () => {
    const [poster, to] = await mintAll("t4_poster", "t4_to");
    const from = await again(poster);
    const sent = await from.dm(idOf(to), "read me");
    const early = await from.dm(idOf(to), "not read");
    expect(await statesOf(poster, { id: sent.id })).toEqual({ t4_to: "waiting" });
    const session = await again(to);
    const inbox = session.inbox();
    const item = await inbox.next();
    expect(await statesOf(poster, { id: sent.id })).toEqual({ t4_to: "handed" });
    item.value?.ack();
    await until("it is confirmed", async () => (await statesOf(poster, { id: sent.id }))["t4_to"] === "confirmed");
    await inbox.return?.();
    await session.drain();
    await end(to);
    expect(await trace(poster, { id: early.id })).toMatchObject([{ kind: "dm", to: idOf(to), recipients: [] }]);
    await space.mint({ actor: "t4_to", ...all });
    expect(await statesOf(poster, { id: early.id })).toEqual({ t4_to: "later" });
  }, 40_000);

  test("a post to a member whose lifecycle ended says so", async () => {
    const [poster, to] = await mintAll("t5_poster", "t5_to");
    await (await again(to)).join("t5");
    const sent = await (await again(poster)).send("t5", "too late");
    await until("it is copied", async () => (await statesOf(poster, { id: sent.id }))["t5_to"] !== "copying");
    await end(to);
    expect(await statesOf(poster, { id: sent.id })).toEqual({ t5_to: "ended" });
  }, 30_000);

  test("what was settled behind an open one is not called confirmed where the counts do not say it", async () => {
    const [poster, to] = await mintAll("t6_poster", "t6_to");
    const from = await again(poster);
    const sent = [await from.dm(idOf(to), "a"), await from.dm(idOf(to), "b"), await from.dm(idOf(to), "c")];
    const session = await again(to);
    const settle = new Map<string, () => void>();
    const held = (item: { readonly text: string }): Promise<void> =>
      new Promise((resolve) => void settle.set(item.text, resolve));
    const handling = session.onItem(held, { concurrency: 3 });
    const tier = async () => (await inboxOf(to))?.tiers[0];
    await until("all three are in hand", () => settle.size === 3);
    settle.get("b")?.();
    await until("one of three is settled", async () => (await tier())?.["handed"] === 2);
    const told = await Promise.all(sent.map(({ id }) => statesOf(poster, { id })));
    expect(told.map((one) => one["t6_to"])).toEqual(["handed", "unsettled", "unsettled"]);
    settle.get("a")?.();
    await until(
      "the floor has moved",
      async () => (await statesOf(poster, { id: sent[1]?.id }))["t6_to"] === "confirmed",
    );
    expect(await statesOf(poster, { id: sent[2]?.id })).toEqual({ t6_to: "handed" });
    settle.get("c")?.();
    await handling.stop();
  }, 30_000);

  test("a copy that the limit removed is gone, whoever has read it; a post that CHAT has let go is not found, and that is said", async () => {
    const [poster, to] = await mintAll("t7_poster", "t7_to");
    const first = await again(to);
    await first.join("t7");
    await first.drain();
    const from = await again(poster);
    const old = await from.send("t7", "pushed out");
    const before = await space.call("limits-show", {});
    await space.call("limits-set", { store: "delivery", maxPerSubject: 2 });
    for (let n = 0; n < 3; n += 1) await from.send("t7", `n${n}`);
    await until("its copy is gone", async () => (await statesOf(poster, { id: old.id }))["t7_to"] === "gone");
    await space.call("limits-set", { store: "delivery", maxPerSubject: 1000 });
    await space.call("limits-set", { store: "chat", maxPerSubject: 2 });
    const answer = await proof(poster, { about: "message", id: old.id });
    expect(answer).toMatchObject({
      found: [],
      looked: [
        { kind: "chat", messages: 2, whole: true },
        { kind: "dm", messages: 0, whole: true },
        { kind: "ask", messages: 0, whole: true },
      ],
    });
    expect(await trace(poster, { id: old.id, kind: "chat", seq: old.seq })).toEqual([]);
    await space.call("limits-set", { store: "chat", maxPerSubject: 1000 });
    expect(await space.call("limits-show", {})).toEqual(before);
  }, 40_000);

  test("an id that a sender used twice stands for both", async () => {
    const [poster, to] = await mintAll("t8_poster", "t8_to");
    const nc = await space.connect(poster);
    const { chat, inst } = spaceSubjects("main");
    const me = poster.view.principal;
    const base = { id: "twice", ts: 1, space: "main", from: { id: idOf(poster), name: "p" }, parts: [] };
    await nc.request(chat(me, "t8"), JSON.stringify({ ...base, channel: "t8" }));
    await nc.request(chat(me, "t8.other"), JSON.stringify({ ...base, channel: "t8.other" }));
    await nc.request(inst(to.view.principal, me), JSON.stringify({ ...base, to: idOf(to) }));
    const found = await trace(poster, { id: "twice" });
    expect(found.map((one) => [one.kind, one["channel"] ?? one["to"]])).toEqual([
      ["chat", "t8.other"],
      ["chat", "t8"],
      ["dm", idOf(to)],
    ]);
    await nc.close();
  }, 30_000);

  test("a mention on a live channel: whoever got a copy, and who was named and got none", async () => {
    await space.call("channel-set", { channel: "t9", change: { deliveryClass: "live" } });
    const [poster, named, member] = await mintAll("t9_poster", "t9_named", "t9_member");
    await space.mint({ actor: "t9_deaf", subscribe: ["elsewhere"], publish: [] });
    await (await again(member)).join("t9");
    const sent = await (await again(poster)).send("t9", "look", { mentions: ["t9_named", "t9_deaf", "t9_nobody"] });
    await until("it is copied", async () => (await statesOf(poster, { id: sent.id }))["t9_named"] === "waiting");
    const [found] = await trace(poster, { id: sent.id });
    expect(found).toMatchObject({ deliveryClass: "live" });
    // A live reader leaves no trace, and a name outside the read list gets nothing.
    expect(states(found)).toEqual({ t9_named: "waiting" });
    expect(found).toMatchObject({ recipients: { list: [{ why: "mention", name: named.view.name ?? "t9_named" }] } });
  }, 30_000);

  test("a channel that was made live owes its members nothing more, and they are not called short of it", async () => {
    const [poster, member] = await mintAll("t12_poster", "t12_member");
    await (await again(member)).join("t12");
    const from = await again(poster);
    const kept = await from.send("t12", "while durable");
    await until("it is copied", async () => (await statesOf(poster, { id: kept.id }))["t12_member"] !== "copying");
    await space.call("channel-set", { channel: "t12", change: { deliveryClass: "live" } });
    const sent = await from.send("t12", "while live");
    await until("the fan-out has passed it", async () => (await pending()).fanout.copied >= sent.seq);
    expect(await statesOf(poster, { id: sent.id })).toEqual({});
    expect(Object.keys(await statesOf(poster, { id: kept.id }))).toEqual(["t12_member"]);
  }, 30_000);

  test("a search reads so many messages and says how far it came; an older one is found at its place", async () => {
    const [poster, to] = await mintAll("t13_poster", "t13_to");
    const from = await again(poster);
    const oldest = await from.dm(idOf(to), "the oldest");
    const more = await Promise.all(Array.from({ length: 1500 }, (_, n) => from.dm(idOf(to), `dm ${n}`)));
    const answer = await proof(poster, { about: "message", id: oldest.id });
    expect(answer).toMatchObject({
      found: [],
      looked: [{ whole: true }, { kind: "dm", whole: false }, { whole: true }],
    });
    const looked = answer.about === "message" ? answer.looked[1] : undefined;
    expect(looked?.messages).toBe(1000);
    expect(looked?.fromSeq).toBeGreaterThan(oldest.seq);
    // Whatever lies at or above what it names was looked at.
    const lowest = more.find(({ seq }) => seq === looked?.fromSeq);
    expect(await trace(poster, { id: lowest?.id })).toHaveLength(1);
    expect(await trace(poster, { id: oldest.id, kind: "dm", seq: oldest.seq })).toHaveLength(1);
  }, 60_000);

  test("copies that a join was owed are found, though they stand behind newer ones", async () => {
    const [poster, to] = await mintAll("t10_poster", "t10_to");
    const from = await again(poster);
    const session = await again(to);
    await session.join("t10.a");
    await session.drain();
    const { frontier } = (await space.call("frontier", { channel: "t10.b" }, { as: to })) as { frontier: number };
    const owed = await from.send("t10.b", "before the join");
    const newer = [await from.send("t10.a", "n1"), await from.send("t10.a", "n2"), await from.send("t10.a", "n3")];
    for (const { id } of newer) {
      await until("it is copied", async () => (await statesOf(poster, { id }))["t10_to"] === "waiting");
    }
    expect(await statesOf(poster, { id: owed.id })).toEqual({});
    await space.call("durable-join", { channel: "t10.b", cursor: frontier }, { endpoint, as: to });
    expect(await statesOf(poster, { id: owed.id })).toEqual({ t10_to: "waiting" });
    const last = await from.send("t10.b", "after");
    await until("it is copied", async () => (await statesOf(poster, { id: last.id }))["t10_to"] === "waiting");
    expect(await statesOf(poster, { id: owed.id })).toEqual({ t10_to: "waiting" });
  }, 30_000);

  test("more recipients than one answer tells go on behind the last one", async () => {
    const poster = await space.mint({ actor: "t11_poster", ...all });
    for (let at = 0; at < 70; at += 1) {
      const one = await space.mint({ actor: `t11_${at}`, ...all });
      await space.call("durable-join", { channel: "t11", cursor: 0 }, { endpoint, as: one });
    }
    const sent = await (await again(poster)).send("t11", "to all");
    const seen: string[] = [];
    const place = { id: sent.id, kind: "chat", seq: sent.seq };
    let after: string | undefined;
    let pages = 0;
    do {
      const [found] = await trace(poster, after === undefined ? place : { ...place, after });
      seen.push(...Object.keys(states(found)));
      after = found?.kind === "chat" && found.recipients.shown ? found.recipients.after : undefined;
      pages += 1;
    } while (after !== undefined);
    expect(pages).toBe(2);
    expect(new Set(seen).size).toBe(70);
  }, 60_000);
});

describe("§8.1 where a request to a role is", () => {
  test("it waits; a holder has taken it, by its record; it is off the queue, and the record still says by whom", async () => {
    const asker = await space.mint({ actor: "t20_asker", ...all });
    const holder = await space.mint({ actor: "t20_holder", ...all, role: "smith" });
    const sent = await (await again(asker)).ask("smith", "forge it");
    expect(await trace(asker, { id: sent.id })).toMatchObject([
      { kind: "ask", seq: sent.seq, role: "smith", queue: "waiting", request: { state: "waiting" } },
    ]);
    const session = await again(holder);
    const inbox = session.inbox();
    const item = await inbox.next();
    expect(item.value?.text).toBe("forge it");
    const taken = { state: "taken", taker: { id: idOf(holder) } };
    expect(await trace(asker, { id: sent.id })).toMatchObject([{ queue: "handed", request: taken }]);
    item.value?.ack();
    const queue = async () => (await trace(asker, { id: sent.id }))[0]?.["queue"];
    await until("it is off the queue", async () => (await queue()) === "off");
    const off = [{ kind: "ask", seq: sent.seq, role: "smith", queue: "off", request: taken }];
    expect(await trace(asker, { id: sent.id })).toMatchObject(off);
    expect(await trace(asker, { id: sent.id, kind: "ask", seq: sent.seq })).toMatchObject(off);
    expect(await trace(holder, { id: sent.id })).toEqual([]);
    await inbox.return?.();
  }, 30_000);

  test("a role that nobody was ever given has no queue, and so nobody can fetch it", async () => {
    const asker = await space.mint({ actor: "t21_asker", ...all });
    const sent = await (await again(asker)).ask("nobodys", "hello?");
    const { queues, rolesLeft } = await pending();
    expect(rolesLeft).toEqual({ roles: 0, whole: true });
    expect((await cli(["pending", ...at])).out).not.toContain("more roles");
    expect(queues).toContainEqual({ tier: "role", role: "nobodys", state: "missing", stored: 1 });
    expect(await trace(asker, { id: sent.id })).toMatchObject([{ queue: "missing", request: { state: "waiting" } }]);
  }, 30_000);

  test("requests to names that somebody made up hide no role that there is, and how many roles are not shown is told", async () => {
    const asker = await again(await space.mint({ actor: "t22_asker", ...all }));
    await space.mint({ actor: "t22_holder", ...all, role: "t22_real" });
    await asker.ask("t22_real", "one");
    const madeUp = Array.from({ length: 130 }, (_, n) => `t22_made_up${n}`);
    await Promise.all(madeUp.flatMap((role) => [asker.ask(role, "a"), asker.ask(role, "b")]));
    const { queues = [], rolesLeft } = await pending();
    expect(queues.filter(({ role }) => role === "t22_real")).toMatchObject([{ state: "known", waiting: 1 }]);
    expect(queues).toHaveLength(128);
    // What had no room is said: those of other tests are among the roles.
    const stored = await storedRoles();
    expect(stored.size).toBeGreaterThan(130);
    const left = stored.size - 128;
    expect(rolesLeft).toEqual({ roles: left, whole: true });
    const [shown, items] = await Promise.all([[], ["--json"]].map((how) => cli(["pending", ...at, ...how])));
    expect(shown?.out).toContain(`requests wait for ${left} more roles than one look takes in`);
    expect(items?.items().at(-1)).toMatchObject({ kind: "pending-as-of", rolesLeft: { roles: left, whole: true } });
  }, 30_000);
});

test("§4 while nobody writes copies a post is stored and not copied, and how far behind that is is told", async () => {
  const [poster, to] = await mintAll("t30_poster", "t30_to");
  await (await again(to)).join("t30");
  const from = await again(poster);
  await until("nothing is behind", async () => {
    const { fanout } = await pending();
    return fanout.copied === fanout.stored;
  });
  await delivery.kill();
  const sent = await from.send("t30", "later");
  // A daemon that answers and writes nothing: another one writes the group, or nobody does.
  const parts = {
    store: await space.store(),
    space: "main",
    setting: () => Promise.resolve(1),
    statusOf: () => Promise.reject(new Error()),
  };
  const place = { about: "message", id: sent.id, kind: "chat", seq: sent.seq } as const;
  const told = await proofOf(parts, poster.view, place, new AbortController().signal);
  const [found] = told.about === "message" ? told.found : [];
  expect(states(found)).toEqual({ t30_to: "copying" });
  expect(found).toMatchObject({ fanout: { stored: sent.seq, copied: sent.seq - 1 } });
  delivery.restart();
  await delivery.ready();
  await until("it is copied", async () => (await statesOf(poster, { id: sent.id }))["t30_to"] === "waiting", 40_000);
}, 60_000);

async function mintAll<const Actors extends readonly string[]>(...actors: Actors) {
  const minted: Minted[] = [];
  for (const actor of actors) minted.push(await space.mint({ actor, ...all }));
  return minted as unknown as { readonly [At in keyof Actors]: Minted };
}
