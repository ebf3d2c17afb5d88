/**
 * A cluster of three loses one broker and gets it back, under durable traffic: nothing that was acknowledged is lost,
 * and nobody is shown anything twice. `test/long/cluster-traffic.test.ts` does it for a minute, server after server.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { cli } from "../support/cli.ts";
import { type ClusterWorld, startClusterWorld } from "../support/cluster-world.ts";
import { api } from "../support/raw-jetstream.ts";
import { lookInto } from "../support/store-looker.ts";
import { NOTHING_LOST, compare, startTraffic, storedIds } from "../support/traffic.ts";

type Listed = {
  readonly config: { readonly name: string; readonly num_replicas: number };
  readonly cluster: { readonly replicas?: readonly object[] };
};

let world: ClusterWorld;
beforeAll(async () => {
  world = await startClusterWorld();
}, 300_000);
afterAll(async () => {
  await world?.stop();
}, 60_000);

test("A.06 every store of the space has three copies, each on another server", async () => {
  const looking = await lookInto(world.cluster.state, world.servers[0] ?? "");
  const listed = (await api(looking.nc, "STREAM.LIST"))["streams"] as readonly Listed[];
  await looking.close();
  expect(listed.length).toBeGreaterThan(10);
  const few = listed.filter(
    ({ config, cluster }) => config.num_replicas !== 3 || (cluster.replicas ?? []).length !== 2,
  );
  expect(few.map(({ config }) => config.name)).toEqual([]);
});

test("A.06 one of three brokers is killed and brought back under traffic: acknowledged = stored = shown, by id", async () => {
  const senders = await Promise.all([world.session("sender_a"), world.session("sender_b")]);
  const traffic = await startTraffic(senders, await world.session("member"));
  await traffic.more(50);
  const [, second] = world.cluster.brokers;
  await second?.kill();
  await traffic.more(50);
  await second?.restart();
  await traffic.more(50);
  const looking = await lookInto(world.cluster.state, world.servers[0] ?? "");
  const counted = await traffic.settle(() => storedIds(looking.nc));
  await looking.close();
  expect(counted.sent.length).toBeGreaterThanOrEqual(150);
  expect(compare(counted)).toMatchObject(NOTHING_LOST);
}, 600_000);

test("PH.01 A.08 a server that is away is a finding, and no credential is minted meanwhile", async () => {
  const where = ["--state", world.cluster.state, "--server", world.servers[0] ?? "", "--json"];
  const [, , third] = world.cluster.brokers;
  await third?.kill();
  const doctor = await cli(["doctor", ...where]);
  expect(doctor.items().map(({ check }) => check)).toContain("broker servers");
  const added = await cli(["space", "add", "lab", ...where]);
  expect(added.items().at(-1)).toMatchObject({ kind: "error", code: "unavailable" });
}, 600_000);
