/**
 * Status of somebody's instance, from its own serve credential to the listing that everybody sees, over a
 * running provisioner (supplement A and E): and what doctor says of one that speaks another protocol.
 */
import { randomBytes } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { recordWriterConsumer } from "../../shared/broker/durables.ts";
import { verifyConsumer } from "../../shared/broker/ensure.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { CheckAnswer } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { EndpointsAnswer } from "../../shared/protocol/endpoint/reads-shapes.ts";
import { statusSubject } from "../../shared/protocol/endpoint/status-rail.ts";
import { daemonCredential, freshHolder } from "../support/holders.ts";
import { createProber } from "../support/probe.ts";
import { failure } from "../support/refusal.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";

const ENDPOINT = "com.example.echo";
const OWNER = `u_${"e".repeat(26)}`;
const names = spaceNames("main");
let space: TestSpace;
let store: NatsConnection;
let alice: Minted;

beforeAll(async () => {
  space = await startSpace();
  store = await space.store();
  alice = await space.mint({ actor: "alice", subscribe: ["general"] });
}, 60_000);
afterAll(() => space.stop());

const put = async (key: string, value: object): Promise<number> =>
  (await store.request(kvKey(names.bucket.records, key), JSON.stringify(value))).json<{ seq: number }>().seq;

/** An instance as its registration leaves it: a spec, and the status "starting" of its epoch. */
async function registered(epoch: number, v = 2, id = drawLifecycleUid(randomBytes)) {
  const key = `svc.com_example_echo.${id}`;
  const revision = await put(`${key}.spec`, { endpoint: ENDPOINT, owner: OWNER, clusterDigests: [], protocol: { v } });
  await put(`${key}.status`, { epoch, state: "starting", observedSpecRevision: revision });
  return { id, revision };
}

/** A connection under the serve credential of one process of it. */
async function process(instanceId: string, epoch: number): Promise<NatsConnection> {
  const scope = {
    ...freshHolder(OWNER, `svc_${instanceId}`),
    space: "main",
    endpoint: ENDPOINT,
    instanceId,
    epoch,
    commands: ["say"],
  };
  return space.connect(await daemonCredential(space, "service", "front", scope));
}

const listed = async (id: string) => {
  const answer = EndpointsAnswer.parse(await space.call("endpoints", {}, { as: alice }));
  return answer.endpoints.find(({ instanceId }) => instanceId === id);
};
const shows = (id: string, state: string) =>
  until(`the listing says ${state}`, async () => (await listed(id))?.state === state, 30_000);

describe("the status of an instance", () => {
  test("PA.08 PA.09 what it says on its own rail is what endpoints shows; its registration revision stays", async () => {
    const { id, revision } = await registered(3);
    expect(await listed(id)).toMatchObject({ epoch: 3, state: "starting", registrationRevision: revision });
    const nc = await process(id, 3);
    const subject = statusSubject("main", { endpoint: ENDPOINT, instanceId: id, epoch: 3 });
    for (const state of ["ready", "draining", "ready"]) {
      nc.publish(subject, JSON.stringify({ state, observedSpecRevision: revision }));
    }
    await shows(id, "ready");
    nc.publish(subject, JSON.stringify({ state: "stopped", observedSpecRevision: revision }));
    await shows(id, "stopped");
    expect(await listed(id)).toMatchObject({ epoch: 3, owner: OWNER, registrationRevision: revision });
  });

  test("PA.09 its credential says nothing for another process, another instance or another kind's writer", async () => {
    const { id, revision } = await registered(5);
    const other = await registered(5);
    const prober = createProber(await process(id, 4));
    const at = (instanceId: string, epoch: number) => statusSubject("main", { endpoint: ENDPOINT, instanceId, epoch });
    const data = JSON.stringify({ state: "forged", observedSpecRevision: revision });
    const refused = [at(id, 5), at(other.id, 4), at(other.id, 5)].map(
      (subject) => ({ op: "pub", subject, data }) as const,
    );
    expect(await prober.refused(refused)).toEqual(refused);
    // Its own rail is open to it, and comes to nothing: another process has taken over.
    expect(await prober.refused([{ op: "pub", subject: at(id, 4), data }])).toEqual([]);
    const now = await process(id, 5);
    now.publish(at(id, 5), JSON.stringify({ state: "ready", observedSpecRevision: revision }));
    await shows(id, "ready");
    expect(await listed(other.id)).toMatchObject({ state: "starting" });
  });

  test("PD.09 the provisioner has made the one durable, under its own credential", async () => {
    expect(await verifyConsumer(store, recordWriterConsumer("main"))).toEqual([]);
  });

  test("PA.09 killed while it writes, and started again, it ends with what was said last", async () => {
    const { id, revision } = await registered(1);
    const nc = await process(id, 1);
    const subject = statusSubject("main", { endpoint: ENDPOINT, instanceId: id, epoch: 1 });
    const say = (state: string) => nc.publish(subject, JSON.stringify({ state, observedSpecRevision: revision }));
    for (let n = 0; n < 300; n += 1) say(`s${n}`);
    await nc.flush();
    await space.provisioner.kill("SIGKILL");
    say("last");
    await nc.flush();
    await space.provisioner.restart();
    await shows(id, "last");
    expect(await listed(id)).toMatchObject({ epoch: 1, registrationRevision: revision });
  }, 60_000);
});

describe("the view of a caller", () => {
  const NAME = "com.example.view";
  const askedBy = (as: Minted, endpoint: string, { view }: Minted) => {
    const { principal, uid } = view;
    return space.call("caller-view", { endpoint, caller: { ...principal, uid } }, { as });
  };

  /** Registered, as far as a mint asks: its head says which commands there are. */
  const governed = (endpoint: string) =>
    put(`govern.${endpoint.replaceAll(".", "_")}`, {
      v: 1,
      endpoint,
      bindings: [],
      clusters: [],
      commands: [{ command: "say" }],
      registration: { opId: "op1", instanceId: drawLifecycleUid(randomBytes), specDigest: `sha256:${"0".repeat(64)}` },
    });

  test("PA.10 whoever may serve asks it of its owner's endpoint; others have no such rail", async () => {
    const service = await space.mint({ actor: "service", capabilities: ["serve"] });
    await governed(NAME);
    await governed("com.example.more");
    const friend = await space.mint({ actor: "friend", owner: "others", capabilities: [NAME, "com.example.more"] });
    const { owner } = service.view.principal;
    const spec = { endpoint: NAME, owner, clusterDigests: [], protocol: { v: 2 } };
    await put(`svc.com_example_view.${drawLifecycleUid(randomBytes)}.spec`, spec);
    expect(await askedBy(service, NAME, friend)).toEqual({ capabilities: [NAME] });
    expect(await askedBy(service, NAME, alice)).toEqual({ capabilities: [] });
    await registered(1);
    expect(await failure(askedBy(service, ENDPOINT, friend))).toMatchObject({ code: "permission-denied" });
    for (const as of [friend, alice]) {
      expect(await failure(askedBy(as, NAME, friend))).toMatchObject({
        code: "permission-denied",
        message: expect.stringMatching(/broker refuses/) as string,
      });
    }
  });
});

describe("who speaks another protocol", () => {
  const found = async () => {
    const { findings } = CheckAnswer.parse(await space.call("check", {}));
    return findings.filter(({ check }) => check === "protocol");
  };

  test("W11.03 PA.03 a check names each such instance with its version, until it has stopped", async () => {
    expect(await found()).toEqual([]);
    const newer = await registered(1, 3);
    const older = await registered(1, 1);
    const seen = await found();
    expect(seen.map(({ message }) => message).toSorted()).toEqual(
      [
        `the instance ${newer.id} of ${ENDPOINT} speaks protocol version 3; callers here know 2`,
        `the instance ${older.id} of ${ENDPOINT} speaks protocol version 1; callers here know 2`,
      ].toSorted(),
    );
    expect(seen.every(({ next }) => next !== "")).toBe(true);
    for (const { id, revision } of [newer, older]) {
      const nc = await process(id, 1);
      const subject = statusSubject("main", { endpoint: ENDPOINT, instanceId: id, epoch: 1 });
      nc.publish(subject, JSON.stringify({ state: "stopped", observedSpecRevision: revision }));
      await shows(id, "stopped");
    }
    expect(await found()).toEqual([]);
  });
});
