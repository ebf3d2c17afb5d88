/**
 * A space in containers, as whoever operates it meets it: up without an editor, agents that sign in from this
 * machine, every daemon scraped, scaled, started anew under traffic, killed, and stopped in order.
 *
 * The tests build on each other, in this order: one project, one life.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { signedIn } from "../../cli/signed-in.ts";
import { type Session, connect } from "../../shared/client/index.ts";
import { agentsOf, expectDurable } from "../support/agents.ts";
import { endAll, eventually, textsOf } from "../support/cli.ts";
import { type Compose, type Container, composeProject } from "../support/compose.ts";

vi.setConfig({ testTimeout: 300_000, hookTimeout: 900_000 });

const ROOT = join(import.meta.dirname, "..", "..");
const DAEMONS = ["provisioner", "auth-plane", "auth-edge", "delivery"] as const;
const ONE_SHOTS = ["trust", "spaces"] as const;
/** Volumes by service, and whether it may write: a daemon has its own keys and no other's. */
const MOUNTS: Readonly<Record<string, Readonly<Record<string, boolean>>>> = {
  trust: { state: true, "broker-trust": true, "broker-data": true },
  spaces: { state: true, desk: true, "keys-provisioner": true, "keys-auth": true, "keys-delivery": true },
  broker: { "broker-trust": false, "broker-data": true },
  provisioner: { "keys-provisioner": false },
  "auth-plane": { "keys-auth": false },
  "auth-edge": { "keys-auth": false },
  delivery: { "keys-delivery": false },
  prometheus: { prometheus: true },
};
/** However slow the machine is: nothing below measures time. */
const PATIENCE_MS = 120_000;

let project: Compose;
const agents = agentsOf(() => project);
beforeAll(async () => {
  project = await composeProject();
  await project.compose("up", "--detach", "--build", "--wait", "--wait-timeout", "600");
  await project.desk();
});
afterAll(async () => {
  await agents.closeAll();
  endAll();
  await project.down();
});

const serviceOf = ({ Config }: Container): string => Config.Labels["com.docker.compose.service"] ?? "";
const isIn = (names: readonly string[], one: Container): boolean => names.includes(serviceOf(one));

/** A session from this machine, over the loopback exchange as it is published now. */
async function sessionAs(actor: string): Promise<Session> {
  await project.desk();
  return agents.as(actor);
}

test("A.05 it is up without a setting; each container has its own keys, and nothing it could write to or become", async () => {
  const all = await project.containers();
  expect(all.map(serviceOf).toSorted()).toEqual([...DAEMONS, ...ONE_SHOTS, "broker", "prometheus"].toSorted());
  for (const one of all) {
    const service = serviceOf(one);
    const isOneShot = isIn(ONE_SHOTS, one);
    expect([service, one.State.Status, one.State.ExitCode]).toEqual([service, isOneShot ? "exited" : "running", 0]);
    const { ReadonlyRootfs, CapDrop, CapAdd, SecurityOpt, Memory, NanoCpus } = one.HostConfig;
    expect({ service, ReadonlyRootfs, CapDrop, CapAdd, SecurityOpt }).toEqual({
      service,
      ReadonlyRootfs: true,
      CapDrop: ["ALL"],
      CapAdd: null,
      SecurityOpt: ["no-new-privileges:true"],
    });
    expect(["node", "nobody", "1000:1000"]).toContain(one.Config.User);
    expect([service, isOneShot || (Memory > 0 && NanoCpus > 0)]).toEqual([service, true]);
    const volumes = one.Mounts.flatMap(({ Name, RW }) =>
      Name === undefined ? [] : [[Name.replace(`${project.name}_`, ""), RW]],
    );
    expect([service, Object.fromEntries(volumes)]).toEqual([service, MOUNTS[service]]);
  }
});

test("W12.04 two agents sign in from outside and write to each other, and a late joiner catches up", async () => {
  const { start, json } = project;
  const tails = ["alice", "bob"].map((actor) =>
    start("tail", "--as", actor, "--channel", "team.backend", "--dm", "--json", "--timeout", "240"),
  );
  for (const tail of tails) await tail.saying('"kind":"joined"', PATIENCE_MS);
  const here = await eventually(
    () => json("who"),
    (members) => members.length === 2,
    PATIENCE_MS,
  );
  const idOf = (name: string): string => String(here.find((member) => member["name"] === name)?.["id"]);
  await json("send", "#team.backend", "Can you review this?", "--as", "alice");
  await json("dm", idOf("bob"), "Direct note.", "--as", "alice");
  const messagesOf = (tail: (typeof tails)[number]) =>
    tail.items().filter(({ kind }) => kind === "channel" || kind === "dm");
  const bobs = await eventually(
    () => tails.slice(1).flatMap(messagesOf),
    (items) => items.length === 2,
    PATIENCE_MS,
  );
  expect(bobs.toSorted((a, b) => (a.kind < b.kind ? -1 : 1))).toMatchObject([
    { kind: "channel", channel: "team.backend", historical: false, from: { id: idOf("alice"), name: "alice" } },
    { kind: "dm", historical: false, from: { id: idOf("alice"), name: "alice" } },
  ]);
  const late = start("tail", "--as", "late", "--channel", "team.backend", "--json", "--timeout", "240");
  await late.saying('"historical":true', PATIENCE_MS);
  await json("send", "team.backend", "Welcome.", "--as", "alice");
  await late.saying("Welcome.", PATIENCE_MS);
  for (const tail of [...tails, late]) tail.process.kill("SIGINT");
  const lates = (await late.ended).items().filter(({ kind }) => kind === "channel");
  expect(lates.map(({ historical }) => historical)).toEqual([true, false]);
  expect(textsOf(lates)).toEqual(["Can you review this?", "Welcome."]);
});

test("the command line has a container too, beside the exchange", async () => {
  const out = await project.compose("run", "--rm", "-T", "--no-deps", "cli", "space", "show", "--json");
  expect(JSON.parse(out)).toMatchObject({ kind: "space", auth: "user" });
});

type Target = { readonly labels: { readonly job: string }; readonly health: string };
type Result = { readonly value: readonly [number, string] };

async function ask<T>(path: string): Promise<T> {
  const answer = (await (await fetch(`${project.prometheus}/api/v1/${path}`)).json()) as { readonly data: T };
  return answer.data;
}

/** Waits until Prometheus has scraped so many of each, and nothing else. */
async function expectScraped(counts: Readonly<Record<string, number>>): Promise<void> {
  const wanted = Object.entries({ ...counts, prometheus: 1 }).flatMap(([job, n]) => Array<string>(n).fill(`${job} up`));
  const found = await eventually(
    async () => {
      const { activeTargets } = await ask<{ readonly activeTargets: readonly Target[] }>("targets?state=active");
      return activeTargets.map(({ labels, health }) => `${labels.job} ${health}`).toSorted();
    },
    (seen) => seen.join() === wanted.toSorted().join(),
    PATIENCE_MS,
  );
  expect(found).toEqual(wanted.toSorted());
}

/** Waits for a figure: what was counted is seen at the next scrape. */
async function expectFigure(query: string, wanted: readonly number[]): Promise<void> {
  const found = await eventually(
    async () => {
      const { result } = await ask<{ readonly result: readonly Result[] }>(`query?query=${encodeURIComponent(query)}`);
      return result.map(({ value }) => Number(value[1]));
    },
    (figures) => figures.join() === wanted.join(),
    PATIENCE_MS,
  );
  expect([query, found]).toEqual([query, wanted]);
}

test("A.02 Prometheus sees every daemon up, and knows each metric that an alert or the dashboard names", async () => {
  await expectScraped({ provisioner: 1, "auth-plane": 1, "auth-edge": 1, delivery: 1 });
  const metadata = await ask<readonly { readonly metric: string }[]>("targets/metadata");
  const known = new Set(metadata.flatMap(({ metric }) => [metric, `${metric}_bucket`]));
  const text = ["rules.yml", "grafana/dashboard.json"]
    .map((file) => readFileSync(join(ROOT, "deploy", file), "utf8"))
    .join("\n");
  const named = [...new Set(text.match(/\b(?:cotal|process|nodejs)_[a-z0-9]+_[a-z0-9_]+/g) ?? [])];
  expect(named.length).toBeGreaterThan(15);
  expect(named.filter((metric) => !known.has(metric))).toEqual([]);
  const config = "/etc/prometheus/prometheus.yml";
  const checked = await project.compose("exec", "-T", "prometheus", "promtool", "check", "config", config);
  expect(checked).toContain("rules found");
});

test("A.03 more instances of each: newcomers come in by every edge, and one writes each member's copies", async () => {
  const scale = ["delivery=3", "auth-edge=2", "auth-plane=2"].flatMap((one) => ["--scale", one]);
  await project.compose("up", "--detach", "--no-recreate", "--wait", "--wait-timeout", "300", ...scale);
  await expectScraped({ provisioner: 1, "auth-plane": 2, "auth-edge": 2, delivery: 3 });
  await expectFigure("sum by (space) (cotal_auth_plane_held)", [1]);
  await expectFigure("sum by (space, group) (cotal_delivery_group_held)", [1]);
  const instances = await eventually(
    async () => (await project.json("endpoints", "--as", "alice")).filter(({ endpoint }) => endpoint === "delivery"),
    (all) => all.length === 3,
    PATIENCE_MS,
  );
  expect(new Set(instances.map(({ instanceId }) => instanceId)).size).toBe(3);
  // The broker asks either edge, and whichever is asked has to have each newcomer begun elsewhere.
  let came = 0;
  for (const edge of await project.of("auth-edge")) {
    await project.desk(edge);
    for (let n = 0; n < 3; n += 1, came += 1) {
      const credentials = signedIn({ actor: `newcomer_${came}`, state: project.state });
      const session = await connect({ servers: [project.server], credentials });
      await expectDurable(session, "general");
      await session.close();
    }
  }
  await expectFigure('count (sum by (instance) (cotal_auth_exchanges_total{job="auth-edge", result="ok"}) > 2)', [2]);
});

test("A.03 each service is started anew under traffic: what was acknowledged is surfaced, and once", async () => {
  const reader = await sessionAs("reader");
  const writer = await sessionAs("writer");
  await expectDurable(reader, "load");
  const seen: string[] = [];
  const reading = (async () => {
    for await (const item of reader.inbox()) if (item.kind === "chat") seen.push(item.id);
  })();
  const acked: string[] = [];
  const over = new AbortController();
  const writing = (async () => {
    for (let n = 0; !over.signal.aborted; n += 1) {
      // One that was not acknowledged is nobody's promise.
      const sent = await writer.send("load", `message ${n}`).catch(() => undefined);
      if (sent !== undefined) acked.push(sent.id);
      await sleep(20);
    }
  })();
  for (const service of ["delivery", "auth-edge", "auth-plane", "provisioner", "prometheus", "broker"]) {
    const before = acked.length;
    const { length } = await project.of(service);
    await project.compose("restart", "--timeout", "30", service);
    const again = ["--no-recreate", "--no-deps", "--scale", `${service}=${length}`, service];
    await project.compose("up", "--detach", "--wait", "--wait-timeout", "300", ...again);
    // Its published port may be another one then.
    if (service === "auth-edge") await project.desk();
    await expect.poll(() => acked.length, { timeout: PATIENCE_MS }).toBeGreaterThan(before + 20);
  }
  over.abort();
  await writing;
  await expect
    .poll(() => acked.filter((id) => !seen.includes(id)), { timeout: PATIENCE_MS, interval: 500 })
    .toEqual([]);
  expect(seen.length).toBe(new Set(seen).size);
  await reader.close();
  await writer.close();
  await reading;
});

test("A.05 no container was started again by itself, and none logged an error", async () => {
  const all = await project.containers();
  expect(all.filter(({ RestartCount, State }) => RestartCount > 0 || State.OOMKilled).map(serviceOf)).toEqual([]);
  expect(await project.errors()).toEqual([]);
});

test("A.03 every writer and every holder of the plane is killed at once: they come back, and no copy is lost", async () => {
  const away = await sessionAs("away");
  await expectDurable(away, "general");
  await away.close();
  const writer = await sessionAs("writer");
  for (const service of ["delivery", "auth-plane"]) {
    for (const one of await project.of(service)) await project.crash(one);
  }
  let last = 0;
  for (let n = 0; n < 10; n += 1) last = (await writer.send("general", `while away ${n}`)).seq ?? 0;
  await writer.close();
  expect(last).toBeGreaterThan(0);
  // Somebody writes copies again, and every member has those of the last post.
  await expectFigure(`max(cotal_delivery_fanout_position) >= bool ${last}`, [1]);
  const back = await sessionAs("away");
  await expectDurable(back, "general");
  const texts = new Set<string>();
  for await (const item of back.inbox()) {
    if (item.kind === "chat" && item.text.startsWith("while away")) texts.add(item.text);
    if (texts.size === 10) break;
  }
  await back.close();
  const newcomer = await eventually(
    () => sessionAs("after_the_kill").catch(() => undefined),
    (session) => session !== undefined,
    PATIENCE_MS,
  );
  await newcomer?.close();
  expect([texts.size, newcomer === undefined]).toEqual([10, false]);
  const restarts = await project.of("delivery");
  expect(restarts.map(({ RestartCount }) => RestartCount)).toEqual([1, 1, 1]);
});

test("A.02 a stop drains: every daemon ends with 0", async () => {
  await project.compose("stop", "--timeout", "60");
  const ended = (await project.containers()).filter((one) => isIn(DAEMONS, one));
  expect(ended.map((one) => [serviceOf(one), one.State.ExitCode])).toEqual(ended.map((one) => [serviceOf(one), 0]));
});
