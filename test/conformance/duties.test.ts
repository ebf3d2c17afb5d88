/** The fourteen duties of a client (§12), each with the test that would miss it. */
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { NatsConnection } from "@nats-io/transport-node";
import { streamState } from "../../shared/broker/ensure.ts";
import { type StoredEntry, leaderGet, leaderNext } from "../../shared/broker/reads.ts";
import { jsApi, kvAll, kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, dmDurable, spaceNames } from "../../shared/protocol/base/names.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { failure } from "../support/refusal.ts";
import { type Sessions, type TestSession, sessionsOf, take } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

const names = spaceNames("main");
const subjects = spaceSubjects("main");
const RAW_NKEY = "UAQGWOEVJKMIO4WXSYOTLARXYOZTCXFK67JASEH6AFFFYK6FOPSKQCAD";

let space: TestSpace;
let sessions: Sessions;
let store: NatsConnection;
let alice: TestSession;
let bob: TestSession;
let turn = 0;

beforeAll(async () => {
  space = await startSpace();
  sessions = sessionsOf(space);
  store = await space.store();
});
afterAll(async () => {
  await sessions.closeAll();
  await space.stop();
});
beforeEach(async () => {
  turn += 1;
  const lists = { subscribe: ["team.>"], publish: ["team.>"] };
  alice = await sessions.minted({ actor: `alice_${turn}`, ...lists });
  bob = await sessions.minted({ actor: `bob_${turn}`, owner: "other", ...lists });
});

const body = (entry: StoredEntry | undefined): Record<string, unknown> =>
  JSON.parse(new TextDecoder().decode(entry?.data)) as Record<string, unknown>;

/** What a bare client of the same credential would send: this project's own shape, then changed. */
const message = (from: TestSession, over: object): string =>
  JSON.stringify({
    id: `raw-${turn}-${Math.random()}`,
    ts: Date.now(),
    space: "main",
    from: { id: from.me.id, name: from.me.name },
    to: bob.me.id,
    parts: [{ kind: "text", text: "raw" }],
    ...over,
  });

async function consumer(of: TestSession): Promise<{ num_ack_pending: number; num_pending: number }> {
  const info = await store.request(jsApi.consumerInfo(names.dm, dmDurable(of.me.principal, of.me.uid)));
  return info.json();
}

test("W12.01 duty 1: one principal is sender, from.id, presence key and the name of the durable", async () => {
  const sent = await alice.dm(bob.me.id, "hello");
  const stored = await leaderGet(store, sent.stream, sent.seq);
  expect(stored?.subject).toBe(subjects.inst(bob.me.principal, alice.me.principal));
  expect(body(stored)["from"]).toMatchObject({ id: alice.me.id });
  const key = kvKey(names.bucket.presence, dotForm(alice.me.principal));
  await expect
    .poll(async () => body(await leaderNext(store, bucketStream(names.bucket.presence), key, 1))["card"])
    .toMatchObject({
      id: alice.me.id,
    });
  const consumers = await store.request(jsApi.consumerInfo(names.dm, dmDurable(alice.me.principal, alice.me.uid)));
  expect(consumers.json()).toMatchObject({ stream_name: names.dm });
});

test("W12.01 duty 2: everything it publishes carries its own sender tokens", async () => {
  const before = (await streamState(store, names.chat)).lastSeq;
  await alice.send("team.backend", "one");
  await alice.ask("reviewer", "two");
  const chat = await leaderGet(store, names.chat, before + 1);
  expect(chat?.subject).toBe(subjects.chat(alice.me.principal, "team.backend"));
  const task = await streamState(store, names.task);
  expect((await leaderGet(store, names.task, task.lastSeq))?.subject).toBe(
    subjects.svc("reviewer", alice.me.principal),
  );
});

test("W12.01 duty 3: a message is UTF-8 JSON, stored under its id", async () => {
  const sent = await alice.send("team.backend", "grüße, 你好");
  const stored = await leaderGet(store, sent.stream, sent.seq);
  expect(stored?.headers?.get("Nats-Msg-Id")).toBe(sent.id);
  expect(body(stored)).toMatchObject({ id: sent.id, parts: [{ kind: "text", text: "grüße, 你好" }] });
});

test("W12.01 duty 4: each message has exactly one target", async () => {
  const sent = [await alice.send("team.a", "x"), await alice.dm(bob.me.id, "x"), await alice.ask("reviewer", "x")];
  for (const { stream, seq } of sent) {
    const stored = body(await leaderGet(store, stream, seq));
    expect(["channel", "to", "toService"].filter((field) => stored[field] !== undefined)).toHaveLength(1);
  }
});

test("W12.01 duty 5: a forged from.id and an owner that is none are never shown", async () => {
  await bob.listen();
  const forger = await sessions.minted({ actor: `honest_${turn}` });
  const raw = await space.mint({ actor: `raw_${turn}` });
  const own = await space.connect(raw);
  await own.request(subjects.inst(bob.me.principal, raw.view.principal), message(alice, {}));
  store.publish(`${subjects.prefix}.inst.${bob.me.id}.${RAW_NKEY}.team`, message(alice, {}));
  await forger.dm(bob.me.id, "the honest one");
  const [item] = await take(bob, 1);
  expect(item?.text).toBe("the honest one");
  await expect.poll(() => bob.stats().rejected["sender-mismatch"]).toBe(1);
});

test("W12.01 duty 6: a direct message that calls itself a channel post is a direct message", async () => {
  const raw = await space.mint({ actor: `kind_${turn}` });
  const nc = await space.connect(raw);
  const claim = { from: { id: dotForm(raw.view.principal), name: "k" }, to: undefined, channel: "team.backend" };
  await nc.request(subjects.inst(bob.me.principal, raw.view.principal), message(alice, claim));
  const [item] = await take(bob, 1);
  expect(item?.kind).toBe("dm");
});

test("W12.01 duty 7: acknowledged once handled; a permanent anomaly is terminated", async () => {
  const raw = await space.mint({ actor: `poison_${turn}` });
  const nc = await space.connect(raw);
  await nc.request(subjects.inst(bob.me.principal, raw.view.principal), "{ not json");
  await alice.dm(bob.me.id, "held");
  const inbox = bob.inbox();
  const { value } = await inbox.next();
  expect(value?.text).toBe("held");
  await expect.poll(() => consumer(bob)).toMatchObject({ num_ack_pending: 1, num_pending: 0 });
  value?.ack();
  await expect.poll(() => consumer(bob)).toMatchObject({ num_ack_pending: 0 });
  await inbox.return?.();
});

test("W12.01 duty 8: it writes its own presence key, and no other", async () => {
  const written: string[] = [];
  const watch = store.subscribe(kvAll(names.bucket.presence), { callback: () => undefined });
  const watcher = await space.connect(await space.mint({ actor: `watch_${turn}`, profile: "observer" }));
  watcher.subscribe(kvAll(names.bucket.presence), { callback: (_, { subject }) => void written.push(subject) });
  await watcher.flush();
  const carol = await sessions.minted({ actor: `carol_${turn}` });
  carol.setPresence({ status: "working" });
  const own = kvKey(names.bucket.presence, carol.me.id);
  await expect.poll(() => written.filter((subject) => subject === own).length).toBeGreaterThanOrEqual(2);
  const known = [alice, bob, carol].map(({ me }) => kvKey(names.bucket.presence, me.id));
  expect(written.filter((subject) => subject.includes(`_${turn}`) && !known.includes(subject))).toEqual([]);
  watch.unsubscribe();
});

test("W12.01 duty 9: replies come to the inbox of its own lifecycle and connection", () => {
  expect(alice.me.inboxPrefix).toMatch(new RegExp(`^_INBOX_${alice.me.uid}_[A-Za-z0-9]{22,64}$`));
});

test("W12.01 duty 10: unknown fields are ignored, at every level", async () => {
  const raw = await space.mint({ actor: `later_${turn}` });
  const nc = await space.connect(raw);
  const from = { id: dotForm(raw.view.principal), name: "later", mood: "fine" };
  const parts = [
    { kind: "text", text: "from later", weight: 3 },
    { kind: "ai.example.new", x: 1 },
  ];
  await nc.request(
    subjects.inst(bob.me.principal, raw.view.principal),
    message(alice, { from, parts, later: { a: 1 } }),
  );
  expect((await take(bob, 1))[0]?.text).toBe("from later");
});

test("W12.01 duty 11: the class of a channel is what its settings say", async () => {
  const change = { deliveryClass: "live", replayWindow: null, description: null, instructions: null };
  await space.call("channel-set", { channel: "team.live", change });
  expect(await bob.join("team.live")).toMatchObject({ class: "live" });
  expect(await bob.join("team.other")).toMatchObject({ class: "durable" });
});

test("W12.01 duty 12: copies fold by sender and id, and an empty id never", async () => {
  const raw = await space.mint({ actor: `copies_${turn}` });
  const nc = await space.connect(raw);
  const from = { id: dotForm(raw.view.principal), name: "c" };
  const to = subjects.inst(bob.me.principal, raw.view.principal);
  for (const id of ["same", "same", "", ""]) await nc.request(to, message(alice, { id, from }));
  await nc.request(to, message(alice, { id: "end", from }));
  const items = await take(bob, 4);
  expect(items.map(({ id }) => id)).toEqual(["same", "", "", "end"]);
});

test("W12.01 duty 13: a durable channel is joined durable; without its backstop it is joined live, and says so", async () => {
  expect(await alice.join("team.durable")).toMatchObject({ class: "durable", state: "joined durable" });
  await space.delivery?.kill();
  const joined = await bob.join("team.durable");
  expect(joined).toMatchObject({ state: "joined live" });
  expect(joined.shortfall).toContain("durable backstop unavailable");
  expect(bob.told).toContainEqual(expect.objectContaining({ type: "shortfall", subject: "team.durable" }));
  space.delivery?.restart();
  await space.delivery?.ready();
}, 60_000);

test("W12.01 duty 14: history is bounded by the read list as it is now", async () => {
  await alice.send("team.backend", "readable");
  expect((await bob.history("team.backend", { limit: 1 }))[0]?.text).toBe("readable");
  expect((await failure(bob.history("elsewhere", { limit: 1 }))).code).toBe("permission-denied");
});
