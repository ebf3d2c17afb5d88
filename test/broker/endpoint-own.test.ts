/** A generic client against this project's own endpoints: a real space, its provisioner, an agent's credential. */
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { ownContract } from "../../shared/protocol/endpoint/own-contracts.ts";
import { failure } from "../support/refusal.ts";
import { type Sessions, type TestSession, sessionsOf } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";

// Real processes on a machine that others use too.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let space: TestSpace;
let sessions: Sessions;
let session: TestSession;
beforeAll(async () => {
  space = await startSpace();
  sessions = sessionsOf(space);
  session = await sessions.minted({ actor: "alice" });
});
afterAll(async () => {
  await sessions.closeAll();
  await space.stop();
});

test("PA.06: what is published verifies: every command of the provisioner resolves to the contract in the source", async () => {
  const { descriptor } = await session.endpoints.describe("provisioner");
  const { commands, clusterDigests } = ownContract("provisioner");
  expect(descriptor.commands.map(({ name }) => name).toSorted()).toEqual([...commands.keys()].toSorted());
  expect(descriptor.clusters.map(({ digest }) => digest)).toEqual(clusterDigests);
  for (const [name, { input, output, document }] of commands) {
    const resolved = await session.endpoints.resolve("provisioner", name);
    expect({ name, effect: resolved.command.effect }).toEqual({ name, effect: document.effect });
    expect([resolved.input.digest, resolved.output.digest]).toEqual([input.digest, output.digest]);
  }
});

test("W135.01 W132.12: an agent calls what its profile holds; who answered is who is registered", async () => {
  const [entry] = await session.endpoints.endpoints("provisioner");
  const { data, ...by } = await session.endpoints.call("provisioner", "space", {});
  expect(data).toMatchObject({ settings: { space: "main" } });
  expect(by).toEqual({ instanceId: entry?.instanceId, epoch: entry?.epoch });
  expect((await session.endpoints.resolve("provisioner", "space")).registrationRevision).toBe(
    entry?.registrationRevision,
  );
});

test("W135.02: what its profile does not hold is refused by the broker, and the subject is named", async () => {
  for (const verb of ["call", "cast"] as const) {
    expect(await failure(session.endpoints[verb]("provisioner", "limits-show", {}))).toMatchObject({
      code: "permission-denied",
      outcome: "not-executed",
      message: expect.stringContaining(".ep.one.provisioner.limits-show.") as string,
    });
  }
});

test("W134.01 W132.12: stopped it is unavailable; its successor answers under a later epoch, for who knew it before", async () => {
  const before = await session.endpoints.call("provisioner", "space", {});
  await space.provisioner.kill("SIGTERM");
  expect(await failure(session.endpoints.call("provisioner", "space", {}))).toMatchObject({
    code: "unavailable",
    outcome: "not-executed",
  });
  await space.provisioner.restart();
  const after = await session.endpoints.call("provisioner", "space", {}, { retry: true, bind: "described" });
  expect([after.instanceId, after.epoch]).not.toEqual([before.instanceId, before.epoch]);
  await until("it is in the registry", async () =>
    (await session.endpoints.endpoints("provisioner")).some(
      ({ instanceId, epoch, state }) => instanceId === after.instanceId && epoch === after.epoch && state === "ready",
    ),
  );
});
