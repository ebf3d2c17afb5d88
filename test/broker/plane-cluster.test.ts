/**
 * The authority plane in a cluster of three real brokers whose holder goes together with the server that it is
 * connected to: no server is left that could say that its connections are gone (supplement I). What is slower, because
 * a crashed server is counted for minutes, stands in test/long/plane-crashes.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import type { AuthService } from "../support/auth-service.ts";
import { HOLDS, UNTOLD, more, planeRow, said } from "../support/plane-sight.ts";
import { type UserCluster, startUserCluster } from "../support/user-cluster.ts";

let world: UserCluster;
beforeAll(async () => {
  world = await startUserCluster();
}, 240_000);
afterAll(() => world?.stop(), 60_000);

const holds = (auth: AuthService) => said(auth, HOLDS);

test("PI.01 its server away: nobody can say that it is gone; back, as another one: the next plane holds", async () => {
  const { auth } = world;
  const [, , far] = world.brokers;
  const gone = await world.authAt(2);
  await auth.kill("SIGKILL");
  await more(holds(gone), 0);
  const before = await planeRow(world);
  process.kill(gone.pid(), "SIGKILL");
  process.kill(far.pid(), "SIGTERM");
  await gone.kill("SIGKILL");
  await far.ended();
  const heldSoFar = holds(auth)();
  await auth.restart();
  // Of three servers two answer: it may be on the third.
  await more(said(auth, UNTOLD), 0);
  await more(said(auth, "and 2 answered"), 0);
  expect(await planeRow(world)).toEqual(before);
  expect(holds(auth)()).toBe(heldSoFar);
  await far.restart();
  await more(holds(auth), heldSoFar);
  expect((await planeRow(world)).generation).toBe(before.generation + 1);
}, 300_000);

test("PI.01 everything at once: all servers and the holder are killed, and the next plane holds once the cluster is whole", async () => {
  const { auth, brokers } = world;
  const before = await planeRow(world);
  expect(before.state).toBe("held");
  const heldSoFar = holds(auth)();
  for (const pid of [auth.pid(), ...brokers.map((broker) => broker.pid())]) process.kill(pid, "SIGKILL");
  await Promise.all([auth.kill("SIGKILL"), ...brokers.map((broker) => broker.ended())]);
  await Promise.all(brokers.map((broker) => broker.restart()));
  await auth.restart();
  await more(holds(auth), heldSoFar);
  expect((await planeRow(world)).generation).toBeGreaterThan(before.generation);
}, 300_000);

test("PI.01 through a server without JetStream nobody holds the plane: the others would forget it while it stands", async () => {
  const { auth } = world;
  const heldSoFar = holds(auth)();
  const beside = await world.authBeside();
  await auth.kill("SIGKILL");
  await more(said(beside, "does not belong to the JetStream group of its cluster"), 0);
  expect(holds(beside)()).toBe(0);
  // Nobody's claim was taken: whoever comes to a server that is counted has it.
  await auth.restart();
  await more(holds(auth), heldSoFar);
}, 300_000);
