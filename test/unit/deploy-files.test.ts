/** What an operator is given agrees with itself: compose files, settings, alerts and what is written about them. */
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { NO_SUBJECT_CACHE } from "../../services/trust/server-config.ts";
import { REQUIRED_CONTROL_LINE, REQUIRED_PAYLOAD } from "../../shared/grants/gates.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const textOf = (...path: string[]): string => readFileSync(join(ROOT, ...path), "utf8");
const found = (pattern: RegExp, text: string): string[] => [
  ...new Set([...text.matchAll(pattern)].map(([, name = ""]) => name)),
];

const overlays = readdirSync(join(ROOT, "deploy")).filter((name) =>
  ["cluster.yml", "observability.yml", "public.yml", "second-space.yml"].includes(name),
);
const compose = [textOf("docker-compose.yml"), ...overlays.map((name) => textOf("deploy", name))].join("\n");

test("every variable that a compose file reads stands in .env.example, and every one there is read", () => {
  const read = found(/\$\{(COTAL_[A-Z_]+)/g, compose);
  const documented = found(/^#(COTAL_[A-Z_]+)=/gm, textOf(".env.example"));
  expect(overlays.length).toBe(4);
  const ofOverlays = ["COTAL_SECOND_FACE_PORTS", "COTAL_GRAFANA_PUBLISH"];
  expect(documented.toSorted()).toEqual(read.filter((name) => !ofOverlays.includes(name)).toSorted());
  expect(textOf(".env.example").match(/^(?!#|$).*/gm)).toBeNull();
});

test("the broker's configuration has the limits that every mint rests on (supplement H)", () => {
  const config = textOf("nats-server.conf");
  expect(config).toContain(`max_control_line: ${REQUIRED_CONTROL_LINE}`);
  expect(Number(/max_payload: (\d+)/.exec(config)?.[1])).toBeGreaterThanOrEqual(REQUIRED_PAYLOAD);
  expect(config).toContain(NO_SUBJECT_CACHE);
  expect(config).toContain("type: full");
});

describe("alerts", () => {
  const rules = textOf("deploy", "rules.yml");

  test("docs/operating.md says of each what to do, and of no other", () => {
    const alerts = found(/alert: (\w+)/g, rules);
    expect(alerts.length).toBeGreaterThan(10);
    const answered = found(/`(Cotal[A-Z]\w+)`/g, textOf("docs", "operating.md"));
    expect(answered.toSorted()).toEqual(alerts.toSorted());
  });

  test("a job that one is about is scraped, and is a service", () => {
    const jobs = found(/job_name: ([a-z-]+)/g, textOf("deploy", "prometheus.yml"));
    const services = found(/^ {2}([a-z-]+):$/gm, textOf("docker-compose.yml"));
    expect(jobs.filter((job) => !services.includes(job))).toEqual([]);
    expect(found(/job="([a-z-]+)"/g, rules).filter((job) => !jobs.includes(job))).toEqual([]);
  });
});

test("the dashboard is one that Grafana takes: each panel has a query, a place and an id of its own", () => {
  type Panel = {
    readonly id: number;
    readonly targets: readonly { readonly expr: string }[];
    readonly gridPos: object;
  };
  const { panels } = JSON.parse(textOf("deploy", "grafana", "dashboard.json")) as { readonly panels: readonly Panel[] };
  expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
  expect(new Set(panels.map(({ gridPos }) => JSON.stringify(gridPos))).size).toBe(panels.length);
  expect(panels.filter(({ targets }) => targets.length === 0 || targets.some(({ expr }) => expr === ""))).toEqual([]);
});
