/**
 * The observability overlay: Prometheus takes the rules, sees every target up, and answers each query of the
 * dashboard; so does Grafana, where its image is here or can be had.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { agentsOf, expectDurable } from "../../support/agents.ts";
import { endAll, eventually } from "../../support/cli.ts";
import { type Compose, composeProject } from "../../support/compose.ts";
import { checkout, wordedIn } from "../../support/documented.ts";
import { freePort } from "../../support/nats-server.ts";
import { take } from "../../support/sessions.ts";

vi.setConfig({ testTimeout: 420_000, hookTimeout: 900_000 });

const UP = wordedIn("operating.md", "docker compose up -d --wait");
const DAEMONS = ["provisioner", "auth-plane", "auth-edge", "delivery"] as const;
/** Brought up by who needs them. */
const ONE_SHOTS = ["trust", "spaces", ""] as const;
/** What comes from a registry and from nowhere else. */
const FROM_REGISTRY = { "broker-exporter": "prometheus-nats-exporter", grafana: "grafana-oss" } as const;
const PATIENCE_MS = 180_000;
const PULL_MS = 300_000;

const place = checkout();
let project: Compose;
const agents = agentsOf(() => project);
let grafana: string;
/** Services whose image can't be had on this machine. */
let without: readonly string[];

beforeAll(async () => {
  grafana = `127.0.0.1:${await freePort()}`;
  const files = "docker-compose.yml:deploy/observability.yml";
  writeFileSync(join(place.root, ".env"), `COMPOSE_FILE=${files}\nCOTAL_GRAFANA_PUBLISH=${grafana}\n`);
  project = await composeProject({ root: place.root });
  await project.compose("build");
  const images = (await project.compose("config", "--images")).split("\n");
  without = Object.entries(FROM_REGISTRY)
    .filter(([, name]) => !images.some((image) => image.includes(`/${name}:`) && isHere(image)))
    .map(([service]) => service);
  const all = (await project.compose("config", "--services")).split("\n");
  const named = without.length === 0 ? [] : all.filter((service) => ![...ONE_SHOTS, ...without].includes(service));
  if (without.length > 0) console.log(`NOT BROUGHT UP, for no image of it can be had here: ${without.join(", ")}`);
  await project.shell([UP, ...named].join(" "));
  await project.desk();
  // Something to be counted, of every kind.
  await project.json("actor", "grant", "worker", "--role", "work");
  const [member, worker] = [await agents.as("member"), await agents.as("worker", "work")];
  await expectDurable(member, "general");
  await worker.listen();
  await member.ask("work", "something to do");
  await take(worker, 1);
  await (await agents.as("alice")).send("general", "hello");
  await take(member, 1);
});
afterAll(async () => {
  await agents.closeAll();
  endAll();
  await project?.down();
  place.remove();
});

function isHere(image: string): boolean {
  for (const args of [
    ["image", "inspect", image],
    ["pull", "--quiet", image],
  ]) {
    try {
      execFileSync("docker", args, { stdio: "ignore", timeout: PULL_MS });
      return true;
    } catch {
      // Neither here nor to be had is what the caller is told.
    }
  }
  return false;
}

async function ask<T>(base: string, path: string): Promise<T> {
  const answer = await fetch(`${base}/api/v1/${path}`);
  const { data } = (await answer.json()) as { readonly data: T };
  return data;
}

type Target = { readonly labels: { readonly job: string }; readonly health: string; readonly lastError: string };
type Rules = {
  readonly groups: readonly {
    readonly rules: readonly { readonly name: string; readonly health: string; readonly lastError?: string }[];
  }[];
};

test("A.02 every target of the overlay is up, and every rule is evaluated without an error", async () => {
  const wanted = [...DAEMONS, "prometheus", ...(without.includes("broker-exporter") ? [] : ["broker"])];
  const scraped = await eventually(
    async () => {
      const { activeTargets } = await ask<{ readonly activeTargets: readonly Target[] }>(
        project.prometheus,
        "targets?state=active",
      );
      const seen = activeTargets.filter(({ labels }) => labels.job !== "broker" || wanted.includes("broker"));
      return seen.map(({ labels, health }) => `${labels.job} ${health}`).toSorted();
    },
    (seen) =>
      seen.join() ===
      wanted
        .map((job) => `${job} up`)
        .toSorted()
        .join(),
    PATIENCE_MS,
  );
  expect(scraped).toEqual(wanted.map((job) => `${job} up`).toSorted());
  const named = readFileSync(join(place.root, "deploy", "rules.yml"), "utf8").match(/alert: \w+/g) ?? [];
  const rules = await eventually(
    async () => (await ask<Rules>(project.prometheus, "rules")).groups.flatMap((group) => group.rules),
    (all) => all.length === named.length && all.every(({ health }) => health !== "unknown"),
    PATIENCE_MS,
  );
  expect(rules.map(({ name }) => `alert: ${name}`)).toEqual(named);
  expect(rules.filter(({ health, lastError = "" }) => health !== "ok" || lastError !== "")).toEqual([]);
});

type Panel = { readonly title: string; readonly targets: readonly { readonly expr: string }[] };
type Dashboard = { readonly uid: string; readonly panels: readonly Panel[] };

const dashboard = JSON.parse(
  readFileSync(join(place.root, "deploy", "grafana", "dashboard.json"), "utf8"),
) as Dashboard;

/** Panels of what a space that works does not have: a refusal, and the end of a credential that has to be proved. */
const RARE: readonly string[] = ["Refused and failed requests", "Looks at connections"];

/** Queries without a series, of those that have one in a space that works. */
async function emptyOf(base: string): Promise<string[]> {
  const queries = dashboard.panels
    .filter(({ title }) => !RARE.includes(title))
    .flatMap(({ title, targets }) => targets.map(({ expr }) => [title, expr.replaceAll("$space", ".*")] as const));
  const found = await Promise.all(
    queries.map(async ([title, expr]) => {
      const { result } = await ask<{ readonly result: readonly object[] }>(
        base,
        `query?query=${encodeURIComponent(expr)}`,
      );
      return result.length === 0 ? [`${title}: ${expr}`] : [];
    }),
  );
  return found.flat();
}

test("A.02 each query of the dashboard has a series, in Grafana too where there is one", async () => {
  const empty = await eventually(
    () => emptyOf(project.prometheus),
    (queries) => queries.length === 0,
    PATIENCE_MS,
  );
  expect(empty).toEqual([]);
  if (without.includes("grafana")) return;
  const served = await eventually(
    () => fetch(`http://${grafana}/api/dashboards/uid/${dashboard.uid}`).catch(() => undefined),
    (answer) => answer?.status === 200,
    PATIENCE_MS,
  );
  expect(await served?.json()).toMatchObject({ dashboard: { uid: dashboard.uid } });
  expect(await emptyOf(`http://${grafana}/api/datasources/proxy/uid/prometheus`)).toEqual([]);
});
