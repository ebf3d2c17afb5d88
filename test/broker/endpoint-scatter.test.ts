/** Scatter over a real broker (§13.5): what is expected, and what each answer counts as. */
import { randomBytes } from "node:crypto";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import type { Connection } from "../../shared/broker/connect.ts";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { ENDPOINT, SPACE, type CallerRig, callerOn, contract, dial } from "../support/endpoint-rig.ts";
import {
  type Behaviour,
  type Foreign,
  NOTHING,
  type Told,
  artifactsOf,
  startForeign,
  startReads,
} from "../support/foreign-endpoint.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { failure } from "../support/refusal.ts";

let broker: TestBroker;
let asker: Connection;
let server: Connection;
let rig: CallerRig;
let instances: Foreign[] = [];
const told: Told = { artifacts: artifactsOf(contract), endpoints: [] };

const start = (behaviour: Behaviour = () => ({ seen: "x" })): Promise<Foreign> =>
  startForeign({ nc: server.nc, space: SPACE, endpoint: ENDPOINT, contract, commands: { look: behaviour } });

/** So many instances, in the registry and serving. */
async function startAll(...behaviours: readonly (Behaviour | undefined)[]): Promise<Foreign[]> {
  instances = await Promise.all(behaviours.map((behaviour) => start(behaviour)));
  told.endpoints = instances.map((instance) => instance.entry());
  return instances;
}

const ids = (list: readonly { readonly instanceId: string }[]): string[] =>
  list.map(({ instanceId }) => instanceId).toSorted();
const ask = (deadlineMs = 5000) => rig.client.scatter(ENDPOINT, "look", { at: "x" }, { deadlineMs });

beforeAll(async () => {
  broker = await startBroker();
  asker = await dial(broker.url, "asker");
  server = await dial(broker.url, "server");
  await startReads(server.nc, SPACE, told);
});
beforeEach(() => {
  rig = callerOn(asker.nc, asker.inboxPrefix);
});
afterEach(async () => {
  await Promise.all(instances.map((instance) => instance.stop()));
  instances = [];
  told.endpoints = [];
});
afterAll(async () => {
  await asker.close();
  await server.close();
  await broker.stop();
});

test("W135.07: everyone in the registry answers, and it ends before the deadline", async () => {
  const all = await startAll(undefined, undefined, undefined);
  const result = await ask(60_000);
  expect(result).toMatchObject({ complete: true, missing: [], churn: [], late: [], duplicate: [], unexpected: [] });
  expect(ids(result.answers)).toEqual(ids(all));
  expect(result.expected.toSorted((a, b) => (a.instanceId < b.instanceId ? -1 : 1))).toEqual(
    told.endpoints
      .map(({ instanceId, registrationRevision, epoch }) => ({ instanceId, registrationRevision, epoch }))
      .toSorted((a, b) => (a.instanceId < b.instanceId ? -1 : 1)),
  );
  expect(all.map(({ received }) => received.filter(({ subject }) => subject.route === "all").length)).toEqual([
    1, 1, 1,
  ]);
  expect(all[0]?.received.at(-1)?.request).toMatchObject({
    replyExpected: true,
    deadlineMs: expect.any(Number) as number,
  });
  expect(all[0]?.received.at(-1)?.request.bind).toBeUndefined();
  expect(rig.rail.pending()).toBe(0);
});

test("W135.07: who says nothing until the deadline is missing, and the rest is told as partial", async () => {
  const [, silent] = await startAll(undefined, () => NOTHING, undefined);
  const result = await ask(300);
  expect(result.complete).toBe(false);
  expect(ids(result.missing)).toEqual([silent?.instanceId]);
  expect(result.answers).toHaveLength(2);
});

test("W135.07: a refusal is an answer, with its own outcome", async () => {
  await startAll(undefined, ({ answer }) => {
    answer({ ok: false, error: { code: "conflict", message: "busy", outcome: "not-executed" } });
    return NOTHING;
  });
  const result = await ask();
  expect(result.complete).toBe(true);
  const refused = result.answers.filter(({ ok }) => !ok);
  expect(refused).toEqual([
    expect.objectContaining({
      error: expect.objectContaining({ code: "conflict", outcome: "not-executed" }) as unknown,
    }),
  ]);
});

test("W135.07: a second answer of one incarnation is a duplicate: the first counts, both are told", async () => {
  const [, twice] = await startAll(
    () => NOTHING,
    ({ answer }) => {
      answer({ ok: true, data: { seen: "first" } });
      answer({ ok: true, data: { seen: "second" } });
      return NOTHING;
    },
  );
  const result = await ask(300);
  expect(result.answers).toMatchObject([{ instanceId: twice?.instanceId, data: { seen: "first" } }]);
  expect(result.duplicate).toMatchObject([{ instanceId: twice?.instanceId, data: { seen: "second" } }]);
});

test("W135.07: an answer of an expected instance at another epoch is churn, does not count, and is not missing", async () => {
  const [, restarted] = await startAll(undefined, ({ answer }) => {
    answer({ ok: true, data: { seen: "x" } }, { epoch: 4 });
    return NOTHING;
  });
  const result = await ask(300);
  expect(ids(result.churn)).toEqual([restarted?.instanceId]);
  expect(result).toMatchObject({ complete: false, missing: [] });
  expect(result.answers).toHaveLength(1);
});

test("W135.07: an instance that registers anew meanwhile is churn, also if it never answers", async () => {
  const [, restarted] = await startAll(undefined, () => {
    told.endpoints = told.endpoints.map((entry) =>
      entry.instanceId === restarted?.instanceId ? { ...entry, registrationRevision: 99 } : entry,
    );
    return NOTHING;
  });
  const result = await ask(300);
  expect(ids(result.churn)).toEqual([restarted?.instanceId]);
  expect(result.missing).toEqual([]);
});

test("W135.07: an instance that is restarted in the middle is churn", async () => {
  const [, first] = await startAll(undefined, () => NOTHING);
  const pending = ask(800);
  await expect.poll(() => first?.received.some(({ subject }) => subject.route === "all")).toBe(true);
  await first?.stop();
  const successor = await startForeign({
    nc: server.nc,
    space: SPACE,
    endpoint: ENDPOINT,
    contract,
    instanceId: first?.instanceId ?? "",
    epoch: 4,
    commands: {},
  });
  instances.push(successor);
  told.endpoints = told.endpoints.map((entry) => (entry.instanceId === first?.instanceId ? successor.entry() : entry));
  const result = await pending;
  expect(ids(result.churn)).toEqual([first?.instanceId]);
  expect(result.missing).toEqual([]);
});

test("W135.07: an answer from outside the frozen set is unexpected and never counts", async () => {
  const [known, stranger] = await startAll(undefined, undefined);
  told.endpoints = told.endpoints.filter(({ instanceId }) => instanceId !== stranger?.instanceId);
  // The silent one keeps it open until the deadline.
  const silent = await start(() => NOTHING);
  instances.push(silent);
  told.endpoints = [...told.endpoints, silent.entry()];
  const result = await ask(300);
  expect(ids(result.unexpected)).toEqual([stranger?.instanceId]);
  expect(ids(result.answers)).toEqual([known?.instanceId]);
  expect(ids(result.missing)).toEqual([silent.instanceId]);
});

test("W135.07: an answer after the deadline is late: told, not counted, and its sender is not missing", async () => {
  const [, slow] = await startAll(
    undefined,
    () => new Promise((resolve) => setTimeout(() => resolve({ seen: "late" }), 500)),
  );
  const result = await rig.client.scatter(ENDPOINT, "look", { at: "x" }, { deadlineMs: 300, graceMs: 2000 });
  expect(ids(result.late)).toEqual([slow?.instanceId]);
  expect(result).toMatchObject({ complete: false, missing: [], churn: [] });
  expect(result.answers).toHaveLength(1);
});

test("W135.07: an empty registry is failed-precondition, and nobody is asked", async () => {
  const idle = await start();
  instances = [idle];
  expect(await failure(ask())).toMatchObject({ code: "failed-precondition", outcome: "not-executed" });
  expect(idle.received.filter(({ subject }) => subject.route === "all")).toEqual([]);
});

test("W135.07: a registry that can't be read is failed-precondition, and nobody is asked", async () => {
  const [one] = await startAll(undefined);
  const lonely = callerOn(asker.nc, asker.inboxPrefix, { rail: { space: "elsewhere" } });
  expect(await failure(lonely.client.scatter(ENDPOINT, "look", { at: "x" }))).toMatchObject({
    code: "failed-precondition",
    outcome: "not-executed",
    cause: expect.objectContaining({ code: "unavailable" }) as unknown,
  });
  expect(one?.received).toEqual([]);
});

test("W135.07: who has stopped, or has never said which process it is, is not expected", async () => {
  const [one] = await startAll(
    undefined,
    () => NOTHING,
    () => NOTHING,
  );
  told.endpoints = told.endpoints.map(({ epoch, ...entry }, at) =>
    at === 1 ? { ...entry, epoch, state: "stopped" } : at === 2 ? entry : { ...entry, epoch },
  );
  const result = await ask();
  expect(ids(result.expected)).toEqual([one?.instanceId]);
  expect(result.complete).toBe(true);
});

test("PA.03: an instance of another protocol version is not addressed", async () => {
  const all = await startAll(undefined, undefined);
  told.endpoints = told.endpoints.map((entry, at) => (at === 1 ? { ...entry, protocol: { v: 3 } } : entry));
  expect(await failure(ask())).toMatchObject({ code: "unsupported-version", outcome: "not-executed" });
  expect(all.flatMap(({ received }) => received).filter(({ subject }) => subject.route === "all")).toEqual([]);
});

test("W135.07: nobody of those that are expected is there: told at once, as a partial answer", async () => {
  const [gone] = await startAll(undefined);
  await rig.client.resolve(ENDPOINT, "look");
  await gone?.stop();
  const result = await ask(60_000);
  expect(result).toMatchObject({ nobody: true, complete: false });
  expect(ids(result.missing)).toEqual([gone?.instanceId]);
});

test("W135.07: a hundred instances answer one request", async () => {
  const all = await startAll(...Array.from({ length: 100 }, () => undefined));
  const result = await ask(20_000);
  expect(result.complete).toBe(true);
  expect(ids(result.answers)).toEqual(ids(all));
});

test("an instance that can't be named by its subject alone is not made up", async () => {
  const [one] = await startAll(({ answer }) => {
    answer("{", { instanceId: drawLifecycleUid(randomBytes) });
    return NOTHING;
  });
  const result = await ask(300);
  expect(ids(result.missing)).toEqual([one?.instanceId]);
  expect(result.unexpected).toMatchObject([{ ok: false, error: { code: "internal", outcome: "unknown" } }]);
});
