/**
 * The cluster overlay, brought up as the documentation says: three brokers, two of each daemon, and one broker that
 * dies and comes back under durable traffic.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { agentsOf } from "../../support/agents.ts";
import { endAll, eventually } from "../../support/cli.ts";
import { type Compose, composeProject } from "../../support/compose.ts";
import { checkout, wordedIn } from "../../support/documented.ts";
import { NOTHING_LOST, compare, readBackIds, startTraffic } from "../../support/traffic.ts";

vi.setConfig({ testTimeout: 420_000, hookTimeout: 900_000 });

const BROKERS = ["broker", "broker-2", "broker-3"] as const;
const DAEMONS = ["provisioner", "auth-plane", "auth-edge", "delivery"] as const;
const FILES = wordedIn("operating.md", "docker-compose.yml:deploy/cluster.yml");
const UP = wordedIn("operating.md", "docker compose up -d --wait");
const DOCTOR = wordedIn("operating.md", "docker compose run --rm --no-deps cli doctor");
const PATIENCE_MS = 300_000;
const PAUSE_MS = 20;

const place = checkout();
let project: Compose;
const agents = agentsOf(() => project);

beforeAll(async () => {
  writeFileSync(join(place.root, ".env"), `COMPOSE_FILE=${FILES}\n`);
  project = await composeProject({ root: place.root });
  await project.compose("build");
  await project.shell(UP);
  await project.desk();
});
// Two sessions of one name share its copies.
afterEach(() => agents.closeAll());
afterAll(async () => {
  endAll();
  await project?.down();
  place.remove();
});

/** Waits until the doctor, who asks every server, finds nothing: a server that died counts for up to four minutes. */
async function expectHealthy(): Promise<void> {
  const found = await eventually(
    () => project.shell(DOCTOR).catch(String),
    (said) => said.startsWith("nothing found"),
    PATIENCE_MS,
  );
  expect(found).toContain("nothing found");
}

test("A.06 the overlay comes up: three brokers that know each other, and two of each daemon, of which the doctor finds nothing", async () => {
  for (const service of BROKERS) expect([service, (await project.of(service)).length]).toEqual([service, 1]);
  for (const service of DAEMONS) expect([service, (await project.of(service)).length]).toEqual([service, 2]);
  for (const service of BROKERS) {
    const asked = ["exec", "-T", service, "wget", "-q", "-O", "-"];
    const routed = JSON.parse(await project.compose(...asked, "http://127.0.0.1:8222/routez")) as {
      readonly routes: readonly { readonly remote_name: string }[];
    };
    const known = new Set(routed.routes.map(({ remote_name: name }) => name));
    expect([service, [...known].toSorted()]).toEqual([service, BROKERS.filter((name) => name !== service)]);
    const jsz = "http://127.0.0.1:8222/jsz?accounts=true&streams=true&config=true";
    const held = JSON.parse(await project.compose(...asked, jsz)) as {
      readonly account_details: readonly {
        readonly stream_detail?: readonly { readonly config: { readonly num_replicas: number } }[];
      }[];
    };
    // Each server has a copy of each stream.
    const copies = held.account_details.flatMap(({ stream_detail: streams = [] }) =>
      streams.map(({ config }) => config.num_replicas),
    );
    expect(copies.length).toBeGreaterThan(5);
    expect(new Set(copies)).toEqual(new Set([3]));
  }
  await expectHealthy();
});

test("A.06 a broker's container is killed and comes back under traffic: acknowledged = stored = shown, by id", async () => {
  await project.json("limits", "set", "chat", "--count", "none");
  await project.json("limits", "set", "delivery", "--count", "none");
  const member = await agents.as("member");
  const traffic = await startTraffic([await agents.as("sender_a"), await agents.as("sender_b")], member, PAUSE_MS);
  await traffic.more(100);
  // Agents of this machine know the published broker alone; the daemons know all three.
  for (const service of ["broker-2", "broker-3"]) {
    await project.compose("kill", "--signal", "KILL", service);
    await traffic.more(100);
    await project.compose("up", "--detach", "--no-recreate", "--no-deps", "--wait", service);
    await traffic.more(100);
  }
  const counted = await traffic.settle(() => readBackIds(member));
  expect(counted.sent.length).toBeGreaterThanOrEqual(500);
  expect(compare(counted)).toMatchObject(NOTHING_LOST);
});

test("A.06 the broker that agents are connected to dies too, and starts again by itself: nothing acknowledged is lost", async () => {
  const [member, sender] = [await agents.as("member_too"), await agents.as("sender_too")];
  const before = await readBackIds(member);
  const traffic = await startTraffic([sender], member, PAUSE_MS);
  await traffic.more(50);
  const [broker] = await project.of("broker");
  if (broker === undefined) throw new Error("there is no broker");
  await project.crash(broker);
  await traffic.more(50);
  const counted = await traffic.settle(() => readBackIds(member, before));
  const { lost, unseen, shownTwice, storedTwice } = compare(counted);
  expect({ lost, unseen, shownTwice, storedTwice }).toEqual(NOTHING_LOST);
  expect((await project.of("broker")).map(({ RestartCount }) => RestartCount)).toEqual([1]);
  await expectHealthy();
});

test("A.05 no daemon was started again by itself", async () => {
  const all = await project.containers();
  const again = all.filter(({ RestartCount, State }) => RestartCount > 0 || State.OOMKilled);
  expect(again.map(({ Config }) => Config.Labels["com.docker.compose.service"])).toEqual(["broker"]);
});
