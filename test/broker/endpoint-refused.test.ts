/** What the broker refuses of a call, a cast and a probe (§13.5): named, at once, and no verdict about anybody. */
import { randomBytes } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { drawLifecycleUid, drawNonce } from "../../shared/protocol/base/principals.ts";
import { endpointSubjects, parseRequestSubject } from "../../shared/protocol/endpoint/grammar.ts";
import { type BareBroker, startBareBroker } from "../support/bare-accounts.ts";
import { ENDPOINT, SPACE, type CallerRig, callerOn, contract, me } from "../support/endpoint-rig.ts";
import { type Foreign, artifactsOf, startForeign, startReads } from "../support/foreign-endpoint.ts";
import { failure } from "../support/refusal.ts";

const rails = endpointSubjects(SPACE);
const prefix = inboxPrefix(me.uid, drawNonce(randomBytes));
const absent = drawLifecycleUid(randomBytes);

let broker: BareBroker;
let serverNc: NatsConnection;
let foreign: Foreign;
let rig: CallerRig;

beforeAll(async () => {
  const instanceId = drawLifecycleUid(randomBytes);
  const may = [
    rails.oneGrant("*", "describe", me),
    rails.oneGrant("delivery", "artifacts", me),
    rails.oneGrant("delivery", "endpoints", me),
    rails.oneGrant(ENDPOINT, "look", me),
    rails.instGrant(ENDPOINT, absent, "describe", me),
  ];
  broker = await startBareBroker({
    SPACE: {
      users: {
        server: {},
        asker: { publish: { allow: may }, subscribe: { allow: [`${prefix}.>`, rails.replyGrant(me)] } },
        deaf: { publish: { allow: may }, subscribe: { allow: [`${prefix}.>`] } },
      },
    },
  });
  serverNc = await broker.login("server");
  foreign = await startForeign({
    nc: serverNc,
    space: SPACE,
    endpoint: ENDPOINT,
    instanceId,
    contract,
    commands: { look: () => ({ seen: "x" }), put: () => null },
  });
  await startReads(serverNc, SPACE, { artifacts: artifactsOf(contract), endpoints: [foreign.entry()] });
  rig = callerOn(await broker.login("asker"), prefix);
});
afterAll(() => broker.end());

/** The subject that an error names, as a request. */
function named(error: { readonly message: string; readonly details: readonly object[] }) {
  const [detail] = error.details;
  const { subject } = detail as { readonly subject: string };
  expect(error.message).toContain(subject);
  return parseRequestSubject(subject);
}

test("what the credential holds is called", async () => {
  expect((await rig.client.call(ENDPOINT, "look", { at: "x" })).data).toEqual({ seen: "x" });
});

test("W135.02: a call whose publish is refused is permission-denied at once, and names the subject", async () => {
  const error = await failure(rig.client.call(ENDPOINT, "put", { at: "x" }));
  expect(error).toMatchObject({ code: "permission-denied", outcome: "not-executed" });
  expect(named(error)).toMatchObject({
    route: "one",
    endpoint: ENDPOINT,
    command: "put",
    ...me.principal,
    uid: me.uid,
  });
});

test("W135.02: a cast whose publish is refused throws permission-denied and names the subject", async () => {
  const error = await failure(rig.client.cast(ENDPOINT, "put", { at: "x" }));
  expect(error).toMatchObject({ code: "permission-denied", outcome: "not-executed" });
  expect(named(error)).toMatchObject({ route: "one", endpoint: ENDPOINT, command: "put" });
  expect(foreign.received.filter(({ subject }) => subject.command === "put")).toEqual([]);
});

test("W135.02: a refusal ends the cast that it belongs to, and no other", async () => {
  const [refused, lawful] = await Promise.allSettled([
    rig.client.cast(ENDPOINT, "put", { at: "x" }),
    rig.client.cast(ENDPOINT, "look", { at: "x" }),
  ]);
  expect([refused.status, lawful.status]).toEqual(["rejected", "fulfilled"]);
});

test("W135.07: a scatter whose publish is refused is permission-denied, and nobody is missing", async () => {
  const error = await failure(rig.client.scatter(ENDPOINT, "look", { at: "x" }));
  expect(error).toMatchObject({ code: "permission-denied", outcome: "not-executed" });
  expect(named(error)).toMatchObject({ route: "all", endpoint: ENDPOINT, command: "look" });
});

test("W135.08: a refused probe is permission-denied and names the subject, never a verdict", async () => {
  const error = await failure(rig.client.liveness(ENDPOINT, foreign.instanceId));
  expect(error).toMatchObject({ code: "permission-denied", outcome: "not-executed" });
  expect(named(error)).toMatchObject({ route: "inst", instanceId: foreign.instanceId });
});

test("W135.08: only the broker's no-responders says that an instance is gone", async () => {
  expect(await rig.client.liveness(ENDPOINT, absent)).toBe("gone");
  const twin = await startForeign({ nc: serverNc, space: SPACE, endpoint: ENDPOINT, instanceId: absent, commands: {} });
  expect(await rig.client.liveness(ENDPOINT, absent)).toBe("unproven");
  await twin.stop();
});

test("a caller that may not hear its answers is refused at once, and it may have run", async () => {
  const deaf = callerOn(await broker.login("deaf"), prefix);
  const error = await failure(
    deaf.rail.ask({ address: { route: "one", endpoint: ENDPOINT, command: "look" }, args: {} }, 5000),
  );
  expect(error).toMatchObject({ code: "permission-denied", outcome: "unknown" });
});
