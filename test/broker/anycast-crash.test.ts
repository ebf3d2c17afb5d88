/**
 * What a crash leaves of a request (§8.1), on a real store: the daemon's work is ended before and after each of its
 * durable steps, and a holder's at every point between pulling and acknowledging.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createNotices, noticeSubject } from "../../services/delivery/anycast/notices.ts";
import { type Requests, createRequests } from "../../services/delivery/anycast/requests.ts";
import { type AnycastStore, brokerAnycastStore } from "../../services/delivery/anycast/store.ts";
import { KEPT_MS, sweepAnycast } from "../../services/delivery/anycast/sweep.ts";
import { type Death, createWriter } from "../../shared/broker/write.ts";
import { parseDotForm } from "../../shared/protocol/base/principals.ts";
import { type DeliveryService, startDeliveryService } from "../support/delivery-service.ts";
import { api, dump, put } from "../support/raw-jetstream.ts";
import { seeded } from "../support/seeded.ts";
import { type Sessions, type TestSession, sessionsOf } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";

let space: TestSpace;
let sessions: Sessions;
let store: NatsConnection;
let serial = 0;

beforeAll(async () => {
  space = await startSpace({ delivery: false });
  sessions = sessionsOf(space);
  store = await space.store();
}, 60_000);
afterAll(async () => {
  await sessions.closeAll();
  await space.stop();
});

const fresh = (lead: string) => `${lead}${(serial += 1)}`;
const sender = () => sessions.minted({ actor: fresh("s") });
const daemonOf = (session: TestSession) => parseDotForm(`${session.me.principal.owner}.delivery`);

/** The daemon's parts over the real store, as one process that may die. */
function daemon(session: TestSession, die?: Death, now = Date.now) {
  const me = daemonOf(session);
  if (me === undefined) throw new Error("no daemon");
  const over: AnycastStore = brokerAnycastStore(store, "main", createWriter({ nc: store, die }));
  const notices = createNotices({
    store: over,
    space: "main",
    me,
    onPublished: () => undefined,
    onFailed: () => undefined,
  });
  const owed = new Set<string>();
  const requests: Requests = createRequests({
    store: over,
    now,
    onOwed: (key) => void owed.add(key),
    lastNotice: (sender) => over.lastNotice(noticeSubject({ space: "main", me }, sender)),
  });
  return {
    over,
    requests,
    settle: async () => {
      for (const key of owed) await notices.settle(key);
    },
    sweep: () => sweepAnycast({ store: over, requests, notices, now }),
  };
}

const noticesTo = async (session: TestSession) =>
  (await dump(store, "DM_main")).filter(
    ({ subject }) => subject.startsWith(`cotal.main.inst.${session.me.id}.`) && subject.endsWith(".delivery"),
  );
const isQueued = async (seq: number) => (await api(store, "STREAM.MSG.GET.TASK_main", { seq })).error === undefined;

describe("W81.16 W81.17 W81.12 the daemon ends between any two durable steps", () => {
  const deaths: Death[] = [1, 2, 3].flatMap((at) => [
    { at, when: "before" as const },
    { at, when: "after" as const },
  ]);

  test("W81.17 a take whose daemon dies at any step is told once, by whoever sweeps or is asked next", async () => {
    const alice = await sender();
    const role = fresh("role");
    const died: string[] = [];
    for (const death of deaths) {
      const { seq, id } = await alice.ask(role, "x");
      const { requests } = daemon(alice);
      const epoch = await requests.created();
      const asked = {
        role,
        holder: alice.me.id,
        body: { from: { id: alice.me.id, name: "h" }, seq, id, count: 1, epoch },
      };
      const before = (await noticesTo(alice)).length;
      const dying = daemon(alice, death);
      await dying.requests
        .take(asked)
        .then(() => dying.settle())
        .catch((thrown: unknown) => died.push(String(thrown)));
      // A successor starts, sweeps, and is asked by the holder that heard nothing.
      const next = daemon(alice);
      await next.sweep();
      expect(await next.requests.take(asked)).toEqual({ ok: true });
      await next.settle();
      await next.sweep();
      expect((await noticesTo(alice)).length - before).toBe(1);
    }
    // The row, the notice, and that it is owed no more: each before and after.
    expect(died.filter((text) => text.includes("died"))).toHaveLength(6);
  }, 60_000);

  test("W81.17 a daemon that dies behind a notice and stays away for longer than ids are remembered tells it once", async () => {
    const alice = await sender();
    const role = fresh("role");
    const { config } = (await api(store, "STREAM.INFO.DM_main")) as { config: { duplicate_window: number } };
    const changed = (window: number) => api(store, "STREAM.UPDATE.DM_main", { ...config, duplicate_window: window });
    // The shortest that the broker takes: ids are forgotten before the successor comes.
    await changed(100_000_000);
    try {
      for (const other of [false, true]) {
        const { seq, id } = await alice.ask(role, "x");
        const epoch = await daemon(alice).requests.created();
        const body = { from: { id: alice.me.id, name: "h" }, seq, id, count: 1, epoch };
        const dying = daemon(alice, { at: 2, when: "after" });
        const before = (await noticesTo(alice)).length;
        await dying.requests.take({ role, holder: alice.me.id, body });
        await expect(dying.settle()).rejects.toThrow("died after write 2");
        await until("its id is forgotten", async () => {
          const probe = (await put(store, `cotal.main.inst.${alice.me.id}.${alice.me.id}`, "{}", {
            "Nats-Msg-Id": (JSON.parse((await noticesTo(alice)).at(-1)?.data ?? "{}") as { id: string }).id,
          })) as { duplicate?: boolean };
          return probe.duplicate !== true;
        });
        if (other) {
          // Another notice lies behind it by now.
          const next = await alice.ask(role, "y");
          const one = daemon(alice);
          const asked = { ...body, seq: next.seq, id: next.id };
          await one.requests.take({ role, holder: alice.me.id, body: asked });
          await one.settle();
        }
        await daemon(alice).sweep();
        expect((await noticesTo(alice)).length - before).toBe(other ? 2 : 1);
      }
    } finally {
      await changed(config.duplicate_window);
    }
  }, 60_000);

  test("W81.16 a cancel whose daemon dies at any step is finished by the next one, or by the sweep", async () => {
    const alice = await sender();
    const died: string[] = [];
    for (const death of deaths) {
      for (const by of ["sender", "sweep"] as const) {
        const { seq, id } = await alice.ask(fresh("role"), "x");
        await daemon(alice, death)
          .requests.cancel(alice.me.id, { seq, id })
          .catch((thrown: unknown) => died.push(String(thrown)));
        const next = daemon(alice);
        const began = (await next.requests.status(alice.me.id, { seq, id })).state === "cancelled";
        expect(began).toBe(death.at > 1 || death.when === "after");
        if (by === "sweep") await next.sweep();
        const ended = by === "sweep" && began ? next.requests.status : next.requests.cancel;
        const said = await ended(alice.me.id, { seq, id });
        expect(said).toMatchObject({ state: "cancelled" });
        expect(["deleted", "already-gone"]).toContain(said.state === "cancelled" ? said.removal : "");
        expect(await isQueued(seq)).toBe(false);
      }
    }
    expect(died.filter((text) => text.includes("died"))).toHaveLength(12);
  }, 60_000);

  test("W81.12 a row leaves a day after its request was found gone, without a trace; its sequence is unknown then", async () => {
    const alice = await sender();
    const { seq, id } = await alice.ask(fresh("role"), "x");
    const kept = await alice.ask(fresh("role"), "still queued");
    await daemon(alice).requests.cancel(alice.me.id, { seq, id });
    const one = daemon(alice);
    const epoch = await one.requests.created();
    const body = { from: { id: alice.me.id, name: "h" }, seq: kept.seq, id: kept.id, count: 1, epoch };
    const role = (await one.over.request(kept.seq))?.role ?? "";
    expect(await one.requests.take({ role, holder: alice.me.id, body })).toEqual({ ok: true });
    await one.settle();
    await daemon(alice).sweep();
    const later = () => Date.now() + KEPT_MS + 60_000;
    // One that dies before it has removed the row leaves it to the next.
    await daemon(alice, { at: 1, when: "before" }, later).sweep();
    await daemon(alice, undefined, later).sweep();
    const rows = (await dump(store, "KV_cotal_anycast_main")).map(({ subject }) => Number(subject.split(".").at(-1)));
    expect(rows).not.toContain(seq);
    expect(rows).toContain(kept.seq);
    expect(await daemon(alice).requests.status(alice.me.id, { seq })).toEqual({ state: "unknown", seq });
  }, 60_000);

  test("what each role has out is counted by the broker", async () => {
    const role = fresh("role");
    const [alice, bob] = await Promise.all([sender(), space.mint({ actor: fresh("h"), role })]);
    const nc = await space.connect(bob);
    await alice.ask(role, "one");
    const pulled = nc.subscribe(`_INBOX_${bob.view.connId}.pull`, { max: 1 });
    nc.publish(`$JS.API.CONSUMER.MSG.NEXT.TASK_main.svc_${role}`, JSON.stringify({ batch: 1, expires: 5e9 }), {
      reply: `_INBOX_${bob.view.connId}.pull`,
    });
    for await (const message of pulled) expect(message.subject).toContain(`.svc.${role}.`);
    const out = await daemon(alice).over.out();
    expect(out.get(role)).toBe(1);
    expect([...out.values()].filter((count) => count > 0)).toHaveLength(1);
  }, 60_000);

  test("a row that is damaged, or of a newer version, is never read as none: the take is refused and the sweep counts it", async () => {
    const alice = await sender();
    const role = fresh("role");
    const { seq, id } = await alice.ask(role, "x");
    const { requests, sweep } = daemon(alice);
    const epoch = await requests.created();
    const key = `$KV.cotal_anycast_main.r.${epoch.replace(/[^0-9A-Za-z]/g, "")}.${seq}`;
    await put(store, key, JSON.stringify({ v: 2 }));
    const body = { from: { id: alice.me.id, name: "h" }, seq, id, count: 1, epoch };
    await expect(requests.take({ role, holder: alice.me.id, body })).rejects.toMatchObject({ code: "internal" });
    expect(await sweep()).toMatchObject({ unreadable: 1 });
    await put(store, key, "", { "KV-Operation": "DEL" });
    expect(await requests.take({ role, holder: alice.me.id, body })).toEqual({ ok: true });
  }, 60_000);
});

describe("W81.07 holders that die", () => {
  let delivery: DeliveryService;
  beforeAll(async () => {
    delivery = startDeliveryService(space);
    await delivery.ready();
  }, 60_000);
  afterAll(() => delivery.kill("SIGTERM"));

  test("W81.06 W81.07 W81.17 holders die again and again, at any point: every request is shown, never to two at one count, and each holder it had is told", async () => {
    const role = fresh("role");
    const alice = await sender();
    const ACK_WAIT_MS = 3000;
    const draw = seeded(11);
    const shown: { seq: number; count: number; by: string }[] = [];
    const handled = new Set<number>();
    let dead = 0;
    const seats = await Promise.all(Array.from({ length: 3 }, () => space.mint({ actor: fresh("h"), role })));
    const born = async (seat: number): Promise<TestSession> => {
      const one = await sessions.own({
        credentials: { kind: "static", text: seats[seat]?.text ?? "" },
        limits: { ackWaitMs: ACK_WAIT_MS },
      });
      one.onItem(async (item) => {
        shown.push({ seq: item.receivedSeq ?? 0, count: item.deliveries, by: one.me.id });
        await new Promise((resolve) => setTimeout(resolve, draw.int(0, 60)));
        handled.add(item.receivedSeq ?? 0);
      });
      return one;
    };
    // The durable is the provisioner's; a short ack wait keeps the test short.
    const { config } = (await api(store, `CONSUMER.INFO.TASK_main.svc_${role}`)) as { config: object };
    await api(store, `CONSUMER.CREATE.TASK_main.svc_${role}.cotal.main.svc.${role}.>`, {
      stream_name: "TASK_main",
      action: "update",
      config: { ...config, ack_wait: ACK_WAIT_MS * 1e6 },
    });
    const holders = await Promise.all([born(0), born(1), born(2)]);
    const asked = await Promise.all(Array.from({ length: 120 }, (_, at) => alice.ask(role, `w${at}`)));
    const LEAST_DEATHS = 6;
    while (dead < LEAST_DEATHS || (handled.size < asked.length && dead < 40)) {
      // They are quicker than their deaths: there is always something to hold.
      if (handled.size === asked.length) asked.push(await alice.ask(role, `w${asked.length}`));
      await new Promise((resolve) => setTimeout(resolve, draw.int(50, 250)));
      const at = draw.int(0, 2);
      // Closed at once: nothing is acknowledged, given back or said, as with a killed process.
      await holders[at]?.close();
      dead += 1;
      holders[at] = await born(at);
    }
    await until("all are handled", () => handled.size === asked.length, 60_000);
    const counts = shown.map(({ seq, count }) => `${seq} ${count}`);
    expect(counts.filter((one, at) => counts.indexOf(one) !== at)).toEqual([]);
    const told = async () =>
      (await noticesTo(alice)).map(({ data }) => {
        const [, part] = (
          JSON.parse(data) as { parts: { data: { cotalAnycastNotice: { seq: number; taker: { id: string } } } }[] }
        ).parts;
        const notice = part?.data.cotalAnycastNotice;
        return `${notice?.seq} ${notice?.taker.id}`;
      });
    await until("all are told", async () => {
      const all = new Set(await told());
      return shown.every(({ seq, by }) => all.has(`${seq} ${by}`));
    });
    const ids = (await noticesTo(alice)).map(({ data }) => (JSON.parse(data) as { id: string }).id);
    expect(new Set(ids).size).toBe(ids.length);
  }, 180_000);
});
