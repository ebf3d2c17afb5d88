/**
 * A registration that dies with its gate shut, as an operator meets it: the check of the space names the gate once it has
 * stood for a minute, in a space of either kind, and the next registration of that instance, which it asks for, clears it.
 */
import { expect, onTestFinished, test, vi } from "vitest";
import { CheckAnswer, type Finding } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import type { EndpointGateRow } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { startAuthService } from "../support/auth-service.ts";
import { ENDPOINT, clockService, expectTakenOver } from "../support/clock-endpoint.ts";
import { put } from "../support/raw-jetstream.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

// A gate is told of when it has stood for a minute.
vi.setConfig({ testTimeout: 300_000, hookTimeout: 120_000 });

const gatesIn = async (space: TestSpace): Promise<readonly Finding[]> =>
  CheckAnswer.parse(await space.call("check", {}, { deadlineMs: 30_000 })).findings.filter(
    ({ check }) => check === "endpoint gate",
  );

/** An instance's gate as a registration leaves it that died: born frozen. */
const left = (owner: string, instanceId: string): EndpointGateRow => ({
  state: "frozen",
  generation: 0,
  processEpoch: 1,
  registrationRevision: 0,
  nameAuthorityRevision: 1,
  principal: `${owner}.svc_${instanceId}`,
  op: { opId: "serve-dead", kind: "activation" },
});

test("A.08 W131L.06 static credentials: the dead gate is named after a minute, and the registration that is asked for completes it", async () => {
  const space = await startSpace();
  onTestFinished(() => space.stop());
  const service = await clockService(space);
  const { owner } = service.view.principal;
  const instanceId = "deadinstancedeadinstanceaa";
  const key = `$KV.cotal_auth_main.epgate.com_example_clock.${instanceId}`;
  await put(await space.store(), key, JSON.stringify(left(owner, instanceId)));
  expect(await gatesIn(space)).toEqual([]);
  await expect
    .poll(() => gatesIn(space), { timeout: 200_000, interval: 2_000 })
    .toMatchObject([
      {
        level: "warning",
        message: expect.stringContaining("activation serve-dead") as string,
        next: expect.stringContaining(instanceId) as string,
      },
    ]);
  await expectTakenOver(space, service, instanceId);
  expect(await gatesIn(space)).toEqual([]);
});

test("A.08 people sign in: the provisioner asks whoever writes the ledger, and an auth service that is away is a finding", async () => {
  const space = await startSpace({ auth: "user", delivery: false });
  onTestFinished(() => space.stop());
  const auth = await startAuthService(space);
  onTestFinished(() => auth.stop());
  await expect.poll(() => gatesIn(space), { timeout: 60_000 }).toEqual([]);
  const instanceId = "deadinstancedeadinstanceaa";
  const key = `$KV.cotal_auth_main.epgate.com_example_clock.${instanceId}`;
  await put(await space.store(), key, JSON.stringify(left("u_aaaaaaaaaaaaaaaaaaaaaaaaaa", instanceId)));
  expect(await gatesIn(space)).toEqual([]);
  await expect
    .poll(() => gatesIn(space), { timeout: 200_000, interval: 2_000 })
    .toMatchObject([{ message: expect.stringContaining(`${instanceId} of ${ENDPOINT}`) as string }]);
  await auth.kill("SIGTERM");
  expect(await gatesIn(space)).toMatchObject([
    { level: "error", message: expect.stringContaining("no gate of a serving instance was looked at") as string },
  ]);
});
