/** How far a durable has come, as proof of delivery reads it (§8): what the broker counts, and what it does not tell apart. */
import { type Msg, type NatsConnection, connect, createInbox } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type DurableState, durableState } from "../../shared/broker/durable-state.ts";
import { ensureConsumer, ensureStreams } from "../../shared/broker/ensure.ts";
import { dlvConsumer, dmConsumer } from "../../shared/broker/durables.ts";
import { setHistoryLimits } from "../../shared/broker/limits.ts";
import { leaderGet } from "../../shared/broker/reads.ts";
import { spaceStreams } from "../../shared/broker/resources.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { until } from "../support/until.ts";

const SUBJECT = "cotal.s.dlv.u_x.bob.";
let broker: TestBroker;
let nc: NatsConnection;

beforeAll(async () => {
  broker = await startBroker();
  nc = await connect({ servers: broker.url });
  await ensureStreams(nc, spaceStreams("s", { replicas: 1 }));
});
afterAll(async () => {
  await nc.close();
  await broker.stop();
});

/** A pulled message keeps its subject, so it needs a subscription of its own. */
async function pull(durable: string): Promise<Msg> {
  const subscription = nc.subscribe(createInbox(), { max: 1 });
  const body = JSON.stringify({ batch: 1, expires: 20e9 });
  nc.publish(`$JS.API.CONSUMER.MSG.NEXT.DLV_s.${durable}`, body, { reply: subscription.getSubject() });
  for await (const message of subscription) return message;
  throw new Error("nothing came");
}

let made = 0;
/** A member with an inbox of copies: what to publish to, to pull from, and to ask about. */
async function member() {
  made += 1;
  const uid = String(made).padStart(26, "a");
  const spec = dlvConsumer("s", { owner: "u_x", actor: "bob" }, uid);
  await ensureConsumer(nc, spec);
  return {
    put: async () => ((await nc.request(`${SUBJECT}${uid}`, "copy")).json() as { seq: number }).seq,
    pull: () => pull(spec.name),
    state: async (): Promise<DurableState> => {
      const state = await durableState(nc, "DLV_s", spec.name);
      if (state === undefined) throw new Error("it is there");
      return state;
    },
  };
}

test("a durable that is not there is told from one that is empty", async () => {
  expect(await durableState(nc, "DLV_s", "dlv_nobody")).toBeUndefined();
  const { state } = await member();
  expect(await state()).toMatchObject({ waiting: 0, out: 0, redelivered: 0, startSeq: 1, isInOrder: true });
  expect(await state()).not.toHaveProperty("deliveredAt");
});

test("an inbox says with what it begins", async () => {
  const spec = dmConsumer("s", { owner: "u_x", actor: "bob" }, "b".repeat(26), 42);
  await ensureConsumer(nc, spec);
  expect(await durableState(nc, "DM_s", spec.name)).toMatchObject({ startSeq: 42 });
});

describe("what is handed out", () => {
  test("is out until it is settled; what is settled behind an open one leaves the floor, and the order says so", async () => {
    const { put, pull, state } = await member();
    const seqs = [await put(), await put(), await put()];
    const [, second] = [await pull(), await pull()];
    expect(await state()).toMatchObject({ waiting: 1, out: 2, deliveredSeq: seqs[1], isInOrder: true });
    second.respond("+ACK");
    await until("it is settled", async () => (await state()).out === 1);
    const after = await state();
    expect(after.isInOrder).toBe(false);
    expect(after.floorSeq).toBeLessThan(seqs[0] ?? 0);
  });

  test("what the limit removed while it was out counts as settled: the floor alone is no proof", async () => {
    const { put, pull, state } = await member();
    const first = await put();
    await pull();
    const { settledAt } = await state();
    expect(settledAt).toBeUndefined();
    await setHistoryLimits(nc, "DLV_s", { maxAgeSeconds: null, maxPerSubject: 1 });
    await put();
    await until("it is out no more", async () => (await state()).out === 0);
    const after = await state();
    expect(after.floorSeq).toBeGreaterThanOrEqual(first);
    expect(after.settledAt).toBeDefined();
    expect(await leaderGet(nc, "DLV_s", first)).toBeUndefined();
    await setHistoryLimits(nc, "DLV_s", { maxAgeSeconds: null, maxPerSubject: 1000 });
  });
});
