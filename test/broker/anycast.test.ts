/**
 * Requests to a role in an authenticated space (§8.1), end to end: real broker, provisioner and delivery service,
 * sessions of the SDK as senders and holders.
 */
import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type DeliveryWorld, startDeliveryWorld } from "../support/delivery-world.ts";
import { frontRoot } from "../support/holders.ts";
import { publishOptions, tap } from "../support/probe.ts";
import { api, dump, put } from "../support/raw-jetstream.ts";
import { type TestSession, sessionsOf, take, texts } from "../support/sessions.ts";
import { startSpace } from "../support/space.ts";
import { rawHolder } from "../support/takes.ts";
import { until } from "../support/until.ts";

let world: DeliveryWorld;
let serial = 0;

beforeAll(async () => {
  world = await startDeliveryWorld();
}, 60_000);
afterAll(() => world.stop());

/** A role that nobody else of this file holds. */
const freshRole = () => `role${(serial += 1)}`;
const sender = () => world.sessions.minted({ actor: `s${(serial += 1)}` });
const holder = (role: string, limits: object = {}) =>
  world.sessions.minted({ actor: `h${(serial += 1)}`, role }, { limits });

const notices = async (session: TestSession, count: number) =>
  (await take(session, count)).map((item) => (item.kind === "dm" ? item.notice : undefined));

describe("W81.06 W81.15 W81.17 from ask to answer", () => {
  test("W81.06 W81.15 W81.18 a holder takes what it shows; the sender reads it, and is told once by the daemon", async () => {
    const role = freshRole();
    const [alice, bob] = await Promise.all([sender(), holder(role)]);
    const asked = await alice.ask(role, "look?");
    expect(asked.waitsFor).toBeUndefined();
    expect(await alice.asked.status(asked)).toEqual({ state: "waiting", seq: asked.seq, role });
    expect(texts(await take(bob, 1))).toEqual(["look?"]);
    expect(await alice.asked.status(asked)).toMatchObject({
      state: "taken",
      seq: asked.seq,
      role,
      taker: { id: bob.me.id, name: bob.me.name },
    });
    expect(await notices(alice, 1)).toEqual([
      { seq: asked.seq, role, event: "taken", taker: { id: bob.me.id, name: bob.me.name } },
    ]);
    expect(await alice.asked.cancel(asked)).toMatchObject({ state: "taken", taker: { id: bob.me.id } });
  }, 30_000);

  test("W81.02 what a holder sends: its own role and principal, the copy it holds, and a fresh reply subject under the take", async () => {
    const role = freshRole();
    const [alice, bob, root] = await Promise.all([sender(), holder(role), frontRoot(world.space, "main")]);
    const seen: { subject: string; reply: string; body: unknown }[] = [];
    const takes = root.subscribe(`cotal.main.take.${role}.*.*`, {
      callback: (_, message) => {
        seen.push({ subject: message.subject, reply: message.reply ?? "", body: message.json() });
      },
    });
    await root.flush();
    const asked = [await alice.ask(role, "one"), await alice.ask(role, "two")];
    await take(bob, 2);
    await root.flush();
    const subject = `cotal.main.take.${role}.${bob.me.id}`;
    const [first] = asked;
    expect(seen[0]).toMatchObject({
      subject,
      body: { from: { id: bob.me.id, name: bob.me.name }, seq: first?.seq, id: first?.id, count: 1 },
    });
    expect(Object.keys(seen[0]?.body ?? {}).toSorted()).toEqual(["count", "epoch", "from", "id", "seq"]);
    const uuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
    const lead = `${subject}.reply.`;
    expect(seen.map(({ reply }) => reply.startsWith(lead) && uuid.test(reply.slice(lead.length)))).toEqual([
      true,
      true,
    ]);
    expect(seen[0]?.reply).not.toBe(seen[1]?.reply);
    takes.unsubscribe();
  }, 30_000);

  test("W81.06 what waits unread can be seen and counted and still be cancelled; the holder never shows it", async () => {
    const role = freshRole();
    const [alice, bob] = await Promise.all([sender(), holder(role)]);
    const asked = await alice.ask(role, "never mind");
    await bob.listen();
    await until("bob holds it", () => bob.waiting().length === 1);
    expect(bob.waiting()).toMatchObject([{ kind: "ask", role, id: asked.id }]);
    expect(bob.stats().held).toBe(1);
    expect(await alice.asked.cancel(asked)).toEqual({ state: "cancelled", seq: asked.seq, role, removal: "deleted" });
    const next = await alice.ask(role, "this one");
    expect(texts(await take(bob, 1))).toEqual(["this one"]);
    expect(await alice.asked.status(asked)).toMatchObject({ state: "cancelled", removal: "deleted" });
    expect(await alice.asked.status(next)).toMatchObject({ state: "taken" });
  }, 30_000);
});

describe("W81.01 an open space", () => {
  test("W81.01 there are no takes: a holder shows what it pulls, and status and cancel are refused by the client", async () => {
    const open = await startSpace({ auth: "open" });
    const own = sessionsOf(open);
    try {
      const [alice, bob] = await Promise.all([own.open("alice"), own.open("bob", { role: "reviewer" })]);
      await bob.listen();
      const asked = await alice.ask("reviewer", "x");
      expect(texts(await take(bob, 1))).toEqual(["x"]);
      for (const ask of [alice.asked.status, alice.asked.cancel]) {
        await expect(ask(asked)).rejects.toMatchObject({ code: "failed-precondition", outcome: "not-executed" });
      }
    } finally {
      await own.closeAll();
      await open.stop();
    }
  }, 60_000);
});

describe("W81.18 notices and what looks like one", () => {
  test("W81.18 a peer's message with the same part is an ordinary one, whatever the peer is called", async () => {
    const alice = await sender();
    const data = {
      cotalAnycastNotice: { seq: 1, role: "r", event: "taken" as const, taker: { id: "x", name: "x" } },
    };
    for (const actor of ["delivery", "mallory"]) {
      const peer = await world.sessions.minted({ actor, owner: "others" });
      await peer.dm(alice.me.id, [{ kind: "data", data }]);
    }
    const items = await take(alice, 2);
    expect(items.map((item) => [item.kind, "notice" in item])).toEqual([
      ["dm", false],
      ["dm", false],
    ]);
    expect(items.map(({ parts }) => parts)).toEqual([[{ kind: "data", data }], [{ kind: "data", data }]]);
  }, 30_000);

  test("W81.17 W81.18 a redelivery to another holder is told, with who had it before; a daemon that was restarted is believed", async () => {
    const role = freshRole();
    const [alice, bob] = await Promise.all([sender(), holder(role)]);
    const asked = await alice.ask(role, "again");
    const inbox = bob.inbox();
    await inbox.next();
    expect(await notices(alice, 1)).toMatchObject([{ event: "taken", taker: { id: bob.me.id } }]);
    await world.delivery.kill("SIGKILL");
    world.delivery.restart();
    await world.delivery.ready();
    // Who leaves gives back what it has in hand.
    await bob.drain();
    const carol = await holder(role);
    expect(texts(await take(carol, 1))).toEqual(["again"]);
    expect(await notices(alice, 1)).toMatchObject([
      { seq: asked.seq, event: "redelivered", taker: { id: carol.me.id }, previous: { id: bob.me.id } },
    ]);
    expect(await alice.asked.status(asked)).toMatchObject({
      state: "taken",
      taker: { id: carol.me.id },
      previous: { id: bob.me.id },
    });
  }, 60_000);
});

describe("W81.09 W81.19 a holder through outages", () => {
  test("W81.19 the daemon goes and comes: what waits is kept unshown, its cause is told, and it is shown once it can be taken", async () => {
    const role = freshRole();
    const [alice, bob] = await Promise.all([sender(), holder(role)]);
    await bob.listen();
    await world.delivery.kill("SIGKILL");
    const asked = await alice.ask(role, "patience");
    await until("bob holds it", () => bob.waiting().length === 1);
    const shown = take(bob, 1);
    await until("bob says why", () => bob.told.some(({ type }) => type === "takes-nothing"));
    expect(bob.told).toContainEqual(expect.objectContaining({ type: "takes-nothing", role, cause: "no-daemon" }));
    await bob.dm(bob.me.id, "note to self");
    world.delivery.restart();
    await world.delivery.ready();
    expect(texts(await shown)).toHaveLength(1);
    const rest = texts(await take(bob, 1));
    expect([...texts(await shown), ...rest].toSorted()).toEqual(["note to self", "patience"]);
    expect(bob.told).toContainEqual({ type: "takes-again", role });
    expect(await alice.asked.status(asked)).toMatchObject({ state: "taken", taker: { id: bob.me.id } });
  }, 60_000);

  test("W81.09 W81.07 the broker restarts while a request is held: it is taken on the new link and shown once", async () => {
    const role = freshRole();
    const [alice, bob] = await Promise.all([sender(), holder(role)]);
    await bob.listen();
    const asked = await alice.ask(role, "hold on");
    await until("bob holds it", () => bob.waiting().length === 1);
    await world.space.broker.kill();
    const shown = take(bob, 1);
    await world.space.broker.restart();
    expect(texts(await shown)).toEqual(["hold on"]);
    await until("it is told", async () => {
      const status = await alice.asked.status(asked).catch(() => undefined);
      return status?.state === "taken" && status.taker.id === bob.me.id;
    });
    expect(bob.stats().received.role).toBe(1);
    // The tests behind this one begin on a space that answers again.
    const isBack = () =>
      sender().then(
        () => true,
        () => false,
      );
    await until("who mints is back", isBack, 30_000);
  }, 90_000);

  test("W81.06 a request that breaks the contract is terminated before any take", async () => {
    const role = freshRole();
    const [alice, bob] = await Promise.all([sender(), holder(role)]);
    const store = await world.space.store();
    const forged = await world.space.mint({ actor: `poison${(serial += 1)}` });
    const nc = await world.space.connect(forged);
    const { owner, actor } = forged.view.principal;
    const { seq } = await put(nc, `cotal.main.svc.${role}.${owner}.${actor}`, "{not json");
    await alice.ask(role, "good");
    expect(texts(await take(bob, 1))).toEqual(["good"]);
    await until(
      "it is off the queue",
      async () => (await api(store, "STREAM.MSG.GET.TASK_main", { seq })).error !== undefined,
    );
    expect(bob.stats().rejected).toMatchObject({ "malformed-json": 1 });
    expect(
      (await dump(store, "KV_cotal_anycast_main")).filter(({ subject }) => subject.endsWith(`.${String(seq)}`)),
    ).toEqual([]);
  }, 30_000);
});

test("W5.10 W3.09 a copy of something stored is no take and no question, whatever its header's case or value; neither is a delivery", async () => {
  const role = freshRole();
  const [alice, root] = await Promise.all([sender(), frontRoot(world.space, "main")]);
  const minted = await world.space.mint({ actor: `copy${(serial += 1)}`, role });
  const bob = await rawHolder(world.space, minted, role);
  const { seq, id } = await alice.ask(role, "x");
  const body = await bob.body(seq, id);
  const me = `${bob.me.owner}.${bob.me.actor}`;
  const rails = { [`cotal.main.take.${role}.${me}`]: JSON.stringify(body), [`cotal.main.live.delivery.${me}`]: "" };
  const asked = (subject: string) => ({ subject, reply: `${subject}.reply.${randomUUID()}` });
  const heard = await Promise.all(Object.keys(rails).map((subject) => tap(root, `${subject}.reply.*`)));
  for (const [subject, data] of Object.entries(rails)) {
    for (const name of ["Nats-Stream", "nats-subject", "NATS-SEQUENCE", "Nats-Time-Stamp"]) {
      for (const value of ["TASK_main", ""]) {
        const { reply } = asked(subject);
        bob.nc.publish(subject, data, publishOptions({ reply, headers: { [name]: value } }));
      }
    }
  }
  const lawful = Object.entries(rails).map(([subject, data]) => ({ ...asked(subject), data }));
  for (const { subject, reply, data } of lawful) bob.nc.publish(subject, data, { reply });
  await until("both are answered", () => heard.every(({ messages }) => messages.length > 0));
  // Whoever asks again is answered behind all that came before.
  expect(await bob.take(body)).toBe("ok");
  expect(heard.map((one) => one.subjects()[0])).toEqual(lawful.map(({ reply }) => reply));
  expect(heard.map(({ messages }) => messages.length)).toEqual([2, 1]);
  const store = await world.space.store();
  const stored = (await Promise.all(["CHAT_main", "DM_main", "TASK_main"].map((name) => dump(store, name)))).flat();
  expect(stored.filter(({ subject }) => /^cotal\.main\.(take|live)\./.test(subject))).toEqual([]);
}, 30_000);
