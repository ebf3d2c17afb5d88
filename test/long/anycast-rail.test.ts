/**
 * The take rail as a holder's bare connection meets it (§8.1), and races over a real broker: several daemons, takes
 * and cancels at once, daemons killed in between.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { anycastKey, type AnycastStatus } from "../../shared/protocol/chat/anycast.ts";
import { type DeliveryService, startDeliveryService } from "../support/delivery-service.ts";
import { type DeliveryWorld, startDeliveryWorld } from "../support/delivery-world.ts";
import { api, dump, put } from "../support/raw-jetstream.ts";
import { frontRoot } from "../support/holders.ts";
import { seeded } from "../support/seeded.ts";
import { type TestSession, take } from "../support/sessions.ts";
import { type RawHolder, rawHolder } from "../support/takes.ts";
import { until } from "../support/until.ts";

let world: DeliveryWorld;
let serial = 0;

beforeAll(async () => {
  world = await startDeliveryWorld();
}, 60_000);
afterAll(() => world.stop());

const fresh = (lead: string) => `${lead}${(serial += 1)}`;
const sender = () => world.sessions.minted({ actor: fresh("s") });
async function holder(role: string): Promise<RawHolder> {
  return rawHolder(world.space, await world.space.mint({ actor: fresh("h"), role }), role);
}

/** Every notice that the store holds for a sender, in order. */
async function noticesTo(session: TestSession): Promise<{ event: string; seq: number; taker: string; id: string }[]> {
  const store = await world.space.store();
  return (await dump(store, "DM_main"))
    .filter(({ subject }) => subject.startsWith(`cotal.main.inst.${session.me.id}.`) && subject.endsWith(".delivery"))
    .map(({ data }) => {
      const message = JSON.parse(data) as { id: string; parts: { data?: { cotalAnycastNotice: unknown } }[] };
      const notice = message.parts[1]?.data?.cotalAnycastNotice as {
        event: string;
        seq: number;
        taker: { id: string };
      };
      return { event: notice.event, seq: notice.seq, taker: notice.taker.id, id: message.id };
    });
}

const hasNotices = (session: TestSession, count: number) => async (): Promise<true | string> => {
  const { length } = await noticesTo(session);
  return length >= count || `${length} notices of ${count}`;
};

describe("W81.02 W81.03 what the rail takes", () => {
  test("W81.02 a take with another reply target, or none, is dropped unanswered; the daemon goes on", async () => {
    const role = fresh("role");
    const [alice, bob, root] = await Promise.all([sender(), holder(role), frontRoot(world.space, "main")]);
    const { seq, id } = await alice.ask(role, "x");
    const body = await bob.body(seq, id);
    const subject = `cotal.main.take.${role}.${bob.me.owner}.${bob.me.actor}`;
    const foreign = root.subscribe("cotal.main.take.>");
    await root.flush();
    const heard: string[] = [];
    void (async () => {
      for await (const message of foreign) if (message.subject.includes(".reply.")) heard.push(message.subject);
    })();
    const own = "reply.0123456789012345678901";
    for (const reply of [
      "_INBOX.x",
      `cotal.main.take.${role}.${alice.me.id}.${own}`,
      `${subject}.${own}.more`,
      `${subject}.reply.*`,
      `${subject}.reply`,
      "cotal.main.inst.x",
    ]) {
      bob.nc.publish(subject, JSON.stringify(body), { reply });
    }
    bob.nc.publish(subject, JSON.stringify(body));
    await bob.nc.flush();
    expect(await bob.take(body)).toBe("ok");
    await root.flush();
    await until("the one answer is heard", () => heard.length > 0);
    expect(heard).toHaveLength(1);
    expect(await alice.asked.status({ seq })).toMatchObject({ state: "taken", taker: { name: bob.me.actor } });
  }, 30_000);

  test("W81.03 W81.05 a body of another principal, a name that breaks its rules, or anything malformed is a mismatch", async () => {
    const role = fresh("role");
    const [alice, bob] = await Promise.all([sender(), holder(role)]);
    const { seq, id } = await alice.ask(role, "x");
    const me = `${bob.me.owner}.${bob.me.actor}`;
    const named = (name: unknown) => ({ from: { id: me, name } });
    const bad: object[] = [
      { from: { id: alice.me.id, name: "bob" } },
      { from: { name: "bob" } },
      ...["", " bob", "bob ", "a\nb", "a\u2028b", "a/b", "a\\b", "n".repeat(129), "\ud800", 7].map(named),
      { seq: 0 },
      { seq: "1" },
      { count: 0 },
      { count: 1.5 },
      { id: 7 },
      { epoch: 7 },
      { epoch: "2020-01-01T00:00:00Z" },
      { id: "another" },
    ];
    const answers: string[] = [];
    for (const change of bad) answers.push(await bob.take(await bob.body(seq, id, change)));
    for (const text of ["", "{", "null", "[]", "7"]) answers.push(await bob.take(text));
    expect(new Set(answers)).toEqual(new Set(["mismatch"]));
    expect(await alice.asked.status({ seq })).toMatchObject({ state: "waiting" });
    const longest = "名".repeat(128);
    expect(await bob.take(await bob.body(seq, id, named(longest)))).toBe("ok");
    expect(await alice.asked.status({ seq })).toMatchObject({ taker: { id: me, name: longest } });
  }, 60_000);

  test("W81.03 the role is the subject's: a holder of another role takes nothing", async () => {
    const [role, other] = [fresh("role"), fresh("role")];
    const [alice, bob] = await Promise.all([sender(), holder(other)]);
    const { seq, id } = await alice.ask(role, "x");
    expect(await bob.take(await bob.body(seq, id))).toBe("mismatch");
  }, 30_000);

  test("W81.05 W81.15 taken, cancelled, gone, as the broker has them; a cancelled request is off the queue", async () => {
    const role = fresh("role");
    const [alice, bob, carol] = await Promise.all([sender(), holder(role), holder(role)]);
    const store = await world.space.store();
    const one = await alice.ask(role, "one");
    expect(await bob.take(await bob.body(one.seq, one.id))).toBe("ok");
    expect(await carol.take(await carol.body(one.seq, one.id))).toBe("taken");
    expect(await carol.take(await carol.body(one.seq, one.id, { count: 2 }))).toBe("ok");
    const two = await alice.ask(role, "two");
    expect(await alice.asked.cancel(two)).toMatchObject({ state: "cancelled", removal: "deleted" });
    expect((await api(store, "STREAM.MSG.GET.TASK_main", { seq: two.seq })).error).toBeDefined();
    expect(await bob.take(await bob.body(two.seq, two.id))).toBe("cancelled");
    expect(await bob.take(await bob.body(999_999, "x"))).toBe("gone");
    expect(await alice.asked.cancel(two)).toMatchObject({ state: "cancelled", removal: "deleted" });
  }, 30_000);

  test("W81.14 a third party reads unknown, cancels nothing, and an id pins the request", async () => {
    const role = fresh("role");
    const [alice, mallory] = await Promise.all([sender(), sender()]);
    const asked = await alice.ask(role, "x");
    const { seq } = asked;
    expect(await mallory.asked.status({ seq })).toEqual({ state: "unknown", seq });
    expect(await mallory.asked.cancel(asked)).toEqual({ state: "unknown", seq });
    expect(await alice.asked.cancel({ seq, id: "another" })).toEqual({ state: "unknown", seq });
    expect(await alice.asked.status(asked)).toMatchObject({ state: "waiting" });
  }, 30_000);

  test("W81.17 a squatted notice id is noticed: the answer duplicate is looked at, and the sender is told all the same", async () => {
    const role = fresh("role");
    const [alice, bob, mallory] = await Promise.all([sender(), holder(role), sender()]);
    const { seq, id } = await alice.ask(role, "x");
    const { epoch } = (await bob.body(seq, id)) as { epoch: string };
    const squatted = `anycast.${anycastKey(epoch, seq).split(".")[1]}.${seq}.1`;
    const root = await frontRoot(world.space, "main");
    const stored = await put(root, `cotal.main.inst.${mallory.me.id}.${mallory.me.id}`, "{}", {
      "Nats-Msg-Id": squatted,
    });
    expect(stored["duplicate"]).toBeUndefined();
    expect(await bob.take(await bob.body(seq, id))).toBe("ok");
    await until("alice was told", hasNotices(alice, 1));
    expect(await noticesTo(alice)).toMatchObject([{ event: "taken", seq, id: squatted }]);
  }, 30_000);
});

/** Two processes of one lifecycle: what the older one answers is refused by the caller, so it is asked again. */
async function patient<T>(run: () => Promise<T>, isDone: (value: T) => boolean = () => true): Promise<T> {
  for (;;) {
    const value = await run().catch(() => undefined);
    if (value !== undefined && isDone(value)) return value;
  }
}

describe("W81.10 races over a real broker, two daemons", () => {
  let second: DeliveryService;
  beforeAll(async () => {
    second = startDeliveryService(world.space);
    await second.ready();
  }, 60_000);
  afterAll(() => second.kill("SIGTERM"));

  test("W81.10 W81.17 take against cancel: one winner, a truthful status, one notice if it was taken and none if not", async () => {
    const role = fresh("role");
    const [alice, bob] = await Promise.all([sender(), holder(role)]);
    const won = { take: 0, cancel: 0 };
    const taken = new Set<number>();
    // Whoever has won gives the other more of a start, so that both win on any machine.
    let start = 0;
    const late = (ms: number) => new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));
    for (let round = 0; round < 60 || Math.min(won.take, won.cancel) === 0; round += 1) {
      const { seq, id } = await alice.ask(role, `r${round}`);
      const body = await patient(() => bob.body(seq, id));
      const draw = seeded(round + 1);
      const [took, cancelled] = await Promise.all([
        late(start + draw.int(0, 3)).then(() => bob.take(body)),
        late(draw.int(0, 2) - start).then(() => patient(() => alice.asked.cancel({ seq, id }))),
      ]);
      const isTaken = took === "ok";
      won[isTaken ? "take" : "cancel"] += 1;
      start += isTaken ? 1 : -1;
      if (isTaken) taken.add(seq);
      expect([took, cancelled.state]).toEqual(isTaken ? ["ok", "taken"] : ["cancelled", "cancelled"]);
      expect(await patient(() => alice.asked.status({ seq, id }))).toMatchObject({ state: cancelled.state });
    }
    await until("all are told", hasNotices(alice, taken.size));
    expect(new Set((await noticesTo(alice)).map(({ seq }) => seq))).toEqual(taken);
  }, 120_000);

  test("W81.10 W81.17 two takes at once: one winner, and the one notice names it", async () => {
    const role = fresh("role");
    const [alice, bob, carol] = await Promise.all([sender(), holder(role), holder(role)]);
    const winners: string[] = [];
    for (let round = 0; round < 40; round += 1) {
      const { seq, id } = await alice.ask(role, `r${round}`);
      const bodies = await Promise.all([bob, carol].map((one) => patient(() => one.body(seq, id))));
      const took = await Promise.all([bob.take(bodies[0] ?? {}), carol.take(bodies[1] ?? {})]);
      expect(took.toSorted()).toEqual(["ok", "taken"]);
      winners.push((took[0] === "ok" ? bob : carol).me.actor);
    }
    await until("all are told", hasNotices(alice, winners.length));
    expect((await noticesTo(alice)).map(({ taker }) => taker.split(".")[1])).toEqual(winners);
  }, 120_000);
});

describe("W81.16 W81.17 daemons that are killed in between", () => {
  let daemons: readonly [DeliveryService, DeliveryService];
  beforeAll(async () => {
    daemons = [world.delivery, startDeliveryService(world.space)];
    await daemons[1].ready();
  }, 60_000);
  afterAll(() => daemons[1].kill("SIGTERM"));

  test("W81.16 W81.17 takes and cancels while both daemons are killed again and again: every request ends one way, told once", async () => {
    const role = fresh("role");
    const [alice, bob] = await Promise.all([sender(), holder(role)]);
    const draw = seeded(7);
    let isOver = false;
    let kills = 0;
    const killing = (async () => {
      while (!isOver) {
        const one = draw.pick(daemons);
        await new Promise((resolve) => setTimeout(resolve, draw.int(150, 500)));
        await one.kill("SIGKILL");
        kills += 1;
        one.restart();
        await one.ready();
      }
    })();
    const ends: { seq: number; took: string; cancelled: AnycastStatus }[] = [];
    // In waves, for as long as it takes: a quick machine is through 40 requests before the second kill.
    for (let wave = 0; ends.length < 40 || kills < 4; wave += 1) {
      const asked = await Promise.all(Array.from({ length: 10 }, (_, at) => alice.ask(role, `k${wave}-${at}`)));
      for (const { seq, id } of asked) {
        const [took, cancelled] = await Promise.all([
          patient(
            async () => bob.take(await bob.body(seq, id), { ms: 500 }),
            (said) => ["ok", "cancelled"].includes(said),
          ),
          patient(
            () => alice.asked.cancel({ seq, id }),
            (status) => status.state === "taken" || (status.state === "cancelled" && status.removal !== "pending"),
          ),
        ]);
        ends.push({ seq, took, cancelled });
      }
    }
    isOver = true;
    await killing;
    for (const { took, cancelled } of ends) {
      expect(cancelled.state).toBe(took === "ok" ? "taken" : "cancelled");
    }
    const taken = ends.filter(({ took }) => took === "ok").map(({ seq }) => seq);
    await until("all are told", hasNotices(alice, taken.length), 30_000);
    expect((await noticesTo(alice)).map(({ seq }) => seq).toSorted((a, b) => a - b)).toEqual(taken);
    const store = await world.space.store();
    for (const { seq, took } of ends) {
      const there = (await api(store, "STREAM.MSG.GET.TASK_main", { seq })).error === undefined;
      expect(there).toBe(took === "ok");
    }
  }, 180_000);
});

describe("W81.08 W81.13 a queue that is made anew", () => {
  test("W81.13 W81.15 W81.08 the queue is made anew: old rows match nothing, its new request waits, a holder goes on", async () => {
    const role = fresh("role");
    const [alice, bob] = await Promise.all([sender(), world.sessions.minted({ actor: fresh("h"), role })]);
    const store = await world.space.store();
    const first = await alice.ask(role, "before");
    expect((await take(bob, 1)).map(({ text }) => text)).toEqual(["before"]);
    const { config } = (await api(store, "STREAM.INFO.TASK_main")) as { config?: object };
    const { config: durable } = (await api(store, `CONSUMER.INFO.TASK_main.svc_${role}`)) as { config?: object };
    await api(store, "STREAM.DELETE.TASK_main");
    await api(store, "STREAM.CREATE.TASK_main", config);
    const create = `CONSUMER.CREATE.TASK_main.svc_${role}.cotal.main.svc.${role}.>`;
    await api(store, create, { stream_name: "TASK_main", action: "create", config: durable });
    // The daemon that is left may be about to begin anew: the other one was stopped a moment ago.
    expect(await patient(() => alice.asked.status({ seq: first.seq, id: first.id }))).toMatchObject({ state: "taken" });
    const texts: string[] = [];
    const asked = await alice.ask(role, "after");
    expect(await patient(() => alice.asked.status({ seq: asked.seq, id: asked.id }))).toMatchObject({
      state: "waiting",
    });
    const items = await take(bob, 1);
    texts.push(...items.map(({ text }) => text));
    expect(texts).toEqual(["after"]);
    expect(items[0]?.deliveries).toBe(2);
    expect(await patient(() => alice.asked.status(asked))).toMatchObject({ state: "taken", taker: { id: bob.me.id } });
  }, 60_000);
});
