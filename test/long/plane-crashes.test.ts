/**
 * The authority plane of a cluster whose holder dies together with its server, while another plane waits elsewhere
 * (supplement I): the broker counts a crashed server for minutes, and one that only stands still for as long as its
 * JetStream group does.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { AuthService } from "../support/auth-service.ts";
import { HOLDS, UNTOLD, more, planeRow, said } from "../support/plane-sight.ts";
import { type UserCluster, startUserCluster } from "../support/user-cluster.ts";

let world: UserCluster;
beforeAll(async () => {
  world = await startUserCluster();
}, 240_000);
afterAll(() => world?.stop(), 60_000);

/** The others forget a server between 150 and 240 s after its last word (nats-server 2.14). */
const FORGOTTEN_MS = 240_000;
const PATIENT_MS = 60_000;

const holds = (auth: AuthService) => said(auth, HOLDS);
const untold = (auth: AuthService) => said(auth, UNTOLD);

/** The plane on the third server holds the claim; the one on the first waits for it. */
async function heldFarAway(): Promise<AuthService> {
  const far = await world.authAt(2);
  const heldSoFar = holds(far)();
  await world.auth.kill("SIGKILL");
  await more(holds(far), heldSoFar);
  await world.auth.restart();
  return far;
}

test("PI.01 a server that only stands still is never taken for dead; once it speaks, the plane that waits takes over", async () => {
  const { auth } = world;
  const far = await heldFarAway();
  const before = await planeRow(world);
  const [heldSoFar, untoldSoFar] = [holds(auth)(), untold(auth)()];
  world.brokers[2].freeze();
  try {
    process.kill(far.pid(), "SIGKILL");
    await more(untold(auth), untoldSoFar);
    // Longer than the others count it: its group does for ever.
    await sleep(FORGOTTEN_MS + 20_000);
    expect(holds(auth)()).toBe(heldSoFar);
    expect(await planeRow(world)).toEqual(before);
    expect(auth.log()).toContain("JetStream group of the cluster has 3 servers, and 2 answered");
  } finally {
    world.brokers[2].thaw();
  }
  await far.kill("SIGKILL");
  await more(holds(auth), heldSoFar);
  expect((await planeRow(world)).generation).toBeGreaterThan(before.generation);
}, 600_000);

test("PI.01 a server that crashed with the holder: the plane that waits takes over once nobody counts it any more", async () => {
  const { auth } = world;
  const far = await heldFarAway();
  const before = await planeRow(world);
  const [heldSoFar, untoldSoFar] = [holds(auth)(), untold(auth)()];
  for (const pid of [far.pid(), world.brokers[2].pid()]) process.kill(pid, "SIGKILL");
  await Promise.all([far.kill("SIGKILL"), world.brokers[2].ended()]);
  await more(untold(auth), untoldSoFar);
  await world.brokers[2].restart();
  const began = performance.now();
  await more(holds(auth), heldSoFar, FORGOTTEN_MS + PATIENT_MS);
  console.info(`taken over ${Math.round((performance.now() - began) / 1000)} s after the server was back`);
  expect((await planeRow(world)).generation).toBeGreaterThan(before.generation);
}, 600_000);
