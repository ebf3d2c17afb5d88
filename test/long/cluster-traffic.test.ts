/** For a minute one broker of three after another is killed and brought back, the leader of CHAT among them. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { type ClusterWorld, startClusterWorld } from "../support/cluster-world.ts";
import { lookInto } from "../support/store-looker.ts";
import { NOTHING_LOST, compare, startTraffic, storedIds } from "../support/traffic.ts";

const FOR_MS = 60_000;
let world: ClusterWorld;
beforeAll(async () => {
  world = await startClusterWorld();
}, 300_000);
afterAll(async () => {
  await world?.stop();
}, 60_000);

test("A.06 sixty seconds of durable traffic over brokers that come and go: acknowledged = stored = shown, by id", async () => {
  const senders = await Promise.all(["a", "b", "c"].map((name) => world.session(`sender_${name}`)));
  const traffic = await startTraffic(senders, await world.session("member"));
  const end = performance.now() + FOR_MS;
  for (let turn = 0; performance.now() < end || turn < 3; turn += 1) {
    const broker = world.cluster.brokers[turn % 3];
    await traffic.more(20);
    await broker?.kill();
    await traffic.more(20);
    await broker?.restart();
  }
  await traffic.more(20);
  const looking = await lookInto(world.cluster.state, world.servers[0] ?? "");
  const counted = await traffic.settle(() => storedIds(looking.nc));
  await looking.close();
  expect(compare(counted)).toMatchObject(NOTHING_LOST);
}, 900_000);
