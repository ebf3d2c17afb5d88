/** The auth service as an endpoint: it registers with the provisioner, which waits for it (supplement A and B). */
import { afterAll, beforeAll, expect, test } from "vitest";
import { readDescriptor } from "../../shared/protocol/contract/descriptor.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { ownContract } from "../../shared/protocol/endpoint/own-contracts.ts";
import { ArtifactsAnswer, EndpointsAnswer, type ShownEndpoint } from "../../shared/protocol/endpoint/reads-shapes.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

const contract = ownContract(EndpointName.Auth);
let space: TestSpace;
let auth: AuthService;

beforeAll(async () => {
  space = await startSpace({ auth: "user" });
  auth = await startAuthService(space);
}, 60_000);
afterAll(async () => {
  await auth.stop();
  await space.stop();
});

const entry = async (endpoint: string): Promise<ShownEndpoint | undefined> => {
  const { endpoints } = EndpointsAnswer.parse(await space.call("endpoints", {}));
  return endpoints.find((one) => one.endpoint === endpoint);
};
const describedAuth = async () =>
  readDescriptor(await space.call("describe", undefined, { endpoint: EndpointName.Auth }));

test("PA.08 both services of the space are listed, and the auth service describes itself by its registration", async () => {
  await expect.poll(async () => (await entry("auth"))?.state, { timeout: 20_000 }).toBe("ready");
  const mine = await entry("auth");
  expect((await entry("provisioner"))?.state).toBe("ready");
  expect(mine).toMatchObject({ clusterDigests: contract.clusterDigests, protocol: { v: 2 } });
  await expect
    .poll(async () => (await describedAuth().catch(() => undefined))?.registrationRevision, { timeout: 20_000 })
    .toBe(mine?.registrationRevision);
  const { clusters, commands } = await describedAuth();
  expect(clusters.map(({ digest }) => digest)).toEqual(contract.clusterDigests);
  expect(commands.map(({ name }) => name).toSorted()).toEqual([...contract.commands.keys()].toSorted());
});

test("PA.07 its contract is published whole", async () => {
  const digests = contract.artifacts.map(({ digest }) => digest);
  const found: string[] = [];
  for (let from = 0; from < digests.length; from += 32) {
    const asked = { digests: digests.slice(from, from + 32) };
    const answer = ArtifactsAnswer.parse(await space.call("artifacts", asked));
    expect(answer.missing).toEqual([]);
    found.push(...answer.artifacts.map(({ text }) => text));
  }
  expect(found).toEqual(contract.artifacts.map(({ text }) => text));
});

test("PA.08 its restart is another epoch of the same registration, and a stop says so", async () => {
  const before = await entry("auth");
  await auth.kill("SIGTERM");
  expect(await entry("auth")).toMatchObject({ state: "stopped", epoch: before?.epoch });
  await auth.restart();
  await expect.poll(async () => (await entry("auth"))?.state, { timeout: 20_000 }).toBe("ready");
  const after = await entry("auth");
  expect(after?.registrationRevision).toBe(before?.registrationRevision);
  expect(after?.instanceId).toBe(before?.instanceId);
  expect(after?.epoch).toBeGreaterThan(before?.epoch ?? 0);
}, 60_000);

test("without a provisioner it serves, and it registers with the one that comes", async () => {
  const before = await entry("auth");
  await space.provisioner.kill("SIGKILL");
  await auth.kill("SIGKILL");
  await auth.restart();
  const actors = () => space.call("actor-list", {}, { endpoint: EndpointName.Auth }).catch(() => undefined);
  await expect.poll(actors, { timeout: 20_000 }).toHaveProperty("actors");
  // Not registered in this life: it serves its commands, and says of itself that it can't say.
  expect(await failure(describedAuth())).toMatchObject({
    code: "unavailable",
    message: "this instance is not registered yet",
    outcome: "not-executed",
  });
  await space.provisioner.restart();
  await space.provisioner.ready();
  await expect.poll(async () => (await entry("auth"))?.epoch, { timeout: 20_000 }).toBeGreaterThan(before?.epoch ?? 0);
  await expect
    .poll(async () => (await describedAuth().catch(() => undefined))?.registrationRevision, { timeout: 20_000 })
    .toBe(before?.registrationRevision);
}, 60_000);
