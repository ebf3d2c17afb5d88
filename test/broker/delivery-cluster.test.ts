/**
 * The eviction oracle in a cluster of three real brokers: whom it sees there, and that a server which does
 * not answer keeps it from every proof. The broker's own behaviour that it rests on is pinned here too.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { join } from "node:path";
import { type NatsConnection, connect } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type LiveView, createLive } from "../../services/delivery/feed/live.ts";
import { type Gather, gatherOver } from "../../shared/broker/gather.ts";
import { type Look, look } from "../../services/delivery/oracle/look.ts";
import { type Oracle, createOracle, kickOver } from "../../services/delivery/oracle/oracle.ts";
import { serversOf } from "../../shared/broker/servers.ts";
import { dialedAuth } from "../../shared/broker/authenticator.ts";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { inboxPrefix, sys } from "../../shared/protocol/base/broker-subjects.ts";
import { channelsHeard } from "../../shared/protocol/chat/membership-feed.ts";
import { type Principal, dotForm } from "../../shared/protocol/base/principals.ts";
import { type Credential, readCredsFile } from "../../shared/trust/creds.ts";
import { DeliveryFile, DeliverySpaceFile } from "../../shared/trust/delivery-folder.ts";
import { readKept, trustPaths } from "../../shared/trust/folder.ts";
import { type TestCluster, startCluster } from "../support/broker-cluster.ts";
import { eventually } from "../support/cli.ts";
import { daemonCredential, freshHolder } from "../support/holders.ts";

let cluster: TestCluster;
let system: Connection;
let front: Connection;
let oracle: Oracle;
let observing: () => { readonly gather: Gather; readonly account: string };
let lookFor: (...principals: readonly Principal[]) => Promise<Look>;
const opened: Connection[] = [];
const guests: NatsConnection[] = [];

const OWNER = `u_${"c".repeat(26)}`;
const person = (actor: string): Principal => ({ owner: OWNER, actor });

async function dial(server: number, credential: Credential): Promise<Connection> {
  const connection = await openConnection({
    servers: [cluster.brokers[server]?.url ?? ""],
    authenticator: { jwt: () => credential.jwt, sign: credential.sign },
    inboxPrefix: inboxPrefix(credential.view.uid, credential.view.inboxNonce),
    name: "test",
    reconnect: { kind: "bounded", attempts: 0 },
  });
  opened.push(connection);
  return connection;
}

/** Somebody in front, on that server, who does not come back by himself. */
async function comes(actor: string, server: number): Promise<NatsConnection> {
  const scope = { ...freshHolder(OWNER, actor), space: "main" };
  const { jwt, sign } = await daemonCredential(cluster, "observer", "front", scope);
  const nc = await connect({
    servers: cluster.brokers[server]?.url ?? "",
    reconnect: false,
    timeout: 3000,
    authenticator: dialedAuth({ jwt: () => jwt, sign }, actor).authenticate,
  });
  guests.push(nc);
  return nc;
}

beforeAll(async () => {
  cluster = await startCluster(3);
  const folder = trustPaths(cluster.state).delivery("main");
  const accounts = readKept(join(folder, DeliveryFile.Space), (text) => DeliverySpaceFile.parse(JSON.parse(text)));
  system = await dial(0, readCredsFile(join(folder, DeliveryFile.Evictor)));
  const me = freshHolder(OWNER, "delivery");
  const scope = { ...me, space: "main", instanceId: me.holder.uid, epoch: 1 };
  front = await dial(0, await daemonCredential(cluster, "delivery", "front", scope));
  const gather = gatherOver(system);
  const parts = {
    gather,
    accounts: [accounts.front, accounts.store, accounts.auth],
    self: () => ({ server: front.nc.info?.server_id ?? "", cid: front.nc.info?.client_id ?? 0 }),
  };
  const observer = await dial(0, readCredsFile(join(folder, DeliveryFile.Observer)));
  observing = () => ({ gather: gatherOver(observer), account: accounts.front });
  lookFor = (...principals) => look(parts, new Set(principals.map(dotForm)));
  oracle = createOracle({
    look: (names) => look(parts, new Set(names)),
    kick: kickOver(gather),
    me: me.holder.principal,
    now: () => performance.now(),
    // Nobody signs in here while something is proved.
    pause: () => sleep(300),
  });
  await eventually(
    () => serversOf(gather),
    ({ gap }) => gap === undefined,
    60_000,
  );
}, 90_000);

afterAll(async () => {
  await Promise.all([...opened, ...guests].map((connection) => connection.close()));
  await cluster?.stop();
});

describe("while all servers answer", () => {
  test("W131.10 W131.07 connections on every server are ended, each by its own server, and the principal is gone", async () => {
    const alice = person("alice");
    const there = [await comes("alice", 0), await comes("alice", 1), await comes("alice", 2)];
    const bob = await comes("bob", 2);
    const seen = await lookFor(alice);
    expect([seen.gap, new Set(seen.found.get(dotForm(alice))?.map(({ server }) => server)).size]).toEqual([
      undefined,
      3,
    ]);
    expect(await oracle.evict([alice])).toEqual([{ ...alice, state: "gone", found: 3, closed: 3 }]);
    await Promise.all(there.map((nc) => nc.closed()));
    expect(bob.isClosed()).toBe(false);
    expect(await oracle.liveness([person("bob")])).toMatchObject([{ state: "live", found: 1 }]);
  }, 60_000);

  test("facts: a KICK without a reply subject ends nobody; each server counts the active ones and its JetStream group", async () => {
    const carol = await comes("carol", 1);
    const server = carol.info?.server_id ?? "";
    system.nc.publish(sys.server(server, "KICK"), JSON.stringify({ cid: carol.info?.client_id }));
    await system.nc.flush();
    await sleep(500);
    expect(carol.isClosed()).toBe(false);
    const answers = await gatherOver(system)(sys.ping("STATSZ"), "", (sofar) => sofar.length === 3);
    const stats = answers.map((one) =>
      one.json<{ statsz: { active_servers: number; jetstream: { meta: { cluster_size: number } } } }>(),
    );
    expect(stats.map(({ statsz }) => [statsz.active_servers, statsz.jetstream.meta.cluster_size])).toEqual([
      [3, 3],
      [3, 3],
      [3, 3],
    ]);
    await carol.close();
  }, 30_000);
});

describe("W8.19 the live half of the membership feed", () => {
  const patterns = ({ hearings }: LiveView, actor: string): string[] =>
    hearings.filter(({ id }) => id === dotForm(person(actor))).flatMap((one) => one.patterns);

  test("is seen on every server; one that is frozen keeps what it last said, and the gap says that it is missing", async () => {
    for (const [server, channel] of ["zero", "one", "two"].entries()) {
      const nc = await comes("reader", server);
      nc.subscribe(`cotal.main.chat.*.*.${channel}`);
      await nc.flush();
    }
    const { gather, account } = observing();
    const live = createLive({ gather, account, heard: channelsHeard("main"), now: () => performance.now() });
    const whole = await live();
    expect([patterns(whole, "reader").toSorted(), whole.gap]).toEqual([["one", "two", "zero"], undefined]);
    cluster.brokers[2]?.freeze();
    try {
      await expect.poll(async () => (await live()).gap, { timeout: 30_000 }).toMatch(/3 servers .* 2 answered/);
      expect(patterns(await live(), "reader").toSorted()).toEqual(["one", "two", "zero"]);
      // Who looks for the first time knows nothing of it, and says what is missing.
      const fresh = await createLive({ gather, account, heard: channelsHeard("main"), now: () => 0 })();
      expect(patterns(fresh, "reader").toSorted()).toEqual(["one", "zero"]);
      expect(fresh.gap).toMatch(/3 servers .* 2 answered/);
    } finally {
      cluster.brokers[2]?.thaw();
    }
    await expect.poll(async () => (await live()).gap, { timeout: 60_000 }).toBeUndefined();
  }, 120_000);
});

describe("while one does not answer", () => {
  const nobody = person("nobody");

  test("PH.01 A.01 a space is made once the last server of a forming cluster has come", async () => {
    cluster.brokers[2]?.freeze();
    const comes = sleep(2000).then(() => cluster.brokers[2]?.thaw());
    await expect(
      cluster.trust("space", "--space", "lab", "--server", cluster.brokers[0]?.url ?? ""),
    ).resolves.toContain('"space":"lab"');
    await comes;
  });

  test("W131.10 PF.04 one that was stopped is missing for as long as the JetStream group counts it", async () => {
    const [, , third] = cluster.brokers;
    process.kill(third?.pid() ?? 0, "SIGTERM");
    const why = async () => (await oracle.liveness([nobody]))[0]?.why;
    await expect.poll(why, { timeout: 40_000 }).toMatch(/JetStream group of the cluster has 3 servers, and 2 answered/);
    await third?.restart();
    await expect.poll(async () => (await oracle.liveness([nobody]))[0]?.state, { timeout: 60_000 }).toBe("gone");
  }, 120_000);

  test("W131.10 PF.04 one that is frozen: unknown, with what is missing; when it is back, gone", async () => {
    const dora = await comes("dora", 1);
    cluster.brokers[2]?.freeze();
    try {
      const [missing, seen] = await oracle.evict([nobody, person("dora")]);
      expect(missing).toMatchObject({ state: "unknown", found: 0, closed: 0 });
      expect(missing?.why).toMatch(/3 servers .* 2 answered/);
      // What can be seen is ended all the same; that it is all of it is not said.
      expect(seen).toMatchObject({ state: "unknown", found: 1, closed: 1 });
      await dora.closed();
    } finally {
      cluster.brokers[2]?.thaw();
    }
    await expect.poll(async () => (await oracle.liveness([nobody]))[0]?.state, { timeout: 30_000 }).toBe("gone");
  }, 90_000);
});
