/** What an operator is given agrees with itself: compose files, settings, alerts and what is written about them. */
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { NO_SUBJECT_CACHE, SYNC_INTERVAL } from "../../services/trust/server-config.ts";
import { MOST_LOGIN_SECONDS, REQUIRED_CONTROL_LINE, REQUIRED_PAYLOAD } from "../../shared/grants/gates.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const textOf = (...path: string[]): string => readFileSync(join(ROOT, ...path), "utf8");
const found = (pattern: RegExp, text: string): string[] => [
  ...new Set([...text.matchAll(pattern)].map(([, name = ""]) => name)),
];

const overlays = readdirSync(join(ROOT, "deploy")).filter((name) =>
  ["cluster.yml", "observability.yml", "public.yml", "second-space.yml"].includes(name),
);
const compose = [textOf("docker-compose.yml"), ...overlays.map((name) => textOf("deploy", name))].join("\n");

test("A.05 every variable that a compose file reads stands in .env.example, and every one there is read", () => {
  const read = found(/\$\{(COTAL_[A-Z_]+)/g, compose);
  const documented = found(/^#(COTAL_[A-Z_]+)=/gm, textOf(".env.example"));
  expect(overlays.length).toBe(4);
  expect(documented.toSorted()).toEqual(read.toSorted());
  expect(textOf(".env.example").match(/^(?!#|$).*/gm)).toBeNull();
});

/** The services of a compose file, each with its lines: nothing here needs more of YAML than its indentation. */
function servicesOf(...path: string[]): Map<string, string> {
  const [, section = ""] = /^services:\n([^]*?)(?=^\S|$(?![^]))/m.exec(textOf(...path)) ?? [];
  const parts = section.split(/^ {2}(?=[a-z])/m).slice(1);
  return new Map(parts.map((part) => [part.slice(0, part.indexOf(":")), part]));
}

const base = servicesOf("docker-compose.yml");
const of = (services: ReadonlyMap<string, string>, name: string): string => services.get(name) ?? "";
const DAEMONS = ["provisioner", "auth-plane", "auth-edge", "delivery"];

describe("A.05 what a container is given", () => {
  test("each service has a read-only root, no capability and bounded logs, in the overlays too", () => {
    const tight = /^x-tight[^]*?(?=\n\n)/m.exec(textOf("docker-compose.yml"))?.[0] ?? "";
    const daemon = /^x-daemon[^]*?(?=\n\n)/m.exec(textOf("docker-compose.yml"))?.[0] ?? "";
    expect(daemon).toContain("*tight");
    const own = overlays.flatMap((name) =>
      [...servicesOf("deploy", name)].filter(([, text]) => /^ {4}image:/m.test(text)),
    );
    const all = [...base, ...own];
    expect(all.map(([name]) => name)).toEqual(
      expect.arrayContaining([...DAEMONS, "broker", "trust", "cli", "grafana"]),
    );
    for (const [name, text] of all) {
      const said = /\*(?:tight|daemon)\b/.test(text) ? tight : text;
      const missing = ["read_only: true", "cap_drop: [ALL]", "no-new-privileges:true", "logging:"].filter(
        (line) => !said.includes(line),
      );
      expect([name, missing]).toEqual([name, []]);
    }
  });

  test("each daemon mounts its own keys, read-only, and no other's; who holds all of them is a one-shot", () => {
    const mounts = (name: string): string[] => found(/\b((?:state|desk|keys-[a-z]+):\/[^\s,\]]*)/g, of(base, name));
    expect(DAEMONS.map(mounts)).toEqual([
      ["keys-provisioner:/keys:ro"],
      ["keys-auth:/keys:ro"],
      ["keys-auth:/keys:ro"],
      ["keys-delivery:/keys:ro"],
    ]);
    expect([...base.keys()].filter((name) => mounts(name).some((one) => one.startsWith("state:")))).toEqual([
      "trust",
      "spaces",
    ]);
    for (const name of ["trust", "spaces"]) expect(of(base, name)).not.toContain("restart:");
  });

  test("each file that a compose file mounts is there, and each volume and network that it names is declared", () => {
    const declared = found(/^ {2}([a-z0-9-]+):(?: \{.*\})?$/gm, compose);
    // The operator's own certificate.
    const files = found(/(?:- |\[|")(\.\/[^:\s"]+):\//g, compose).filter((file) => file !== "./deploy/tls");
    expect(files.length).toBeGreaterThan(6);
    expect(files.filter((file) => !existsSync(join(ROOT, file)))).toEqual([]);
    const volumes = found(/(?:- |\[|, )([a-z][a-z0-9-]*):\//g, compose);
    expect(volumes.length).toBeGreaterThan(8);
    expect(volumes.filter((name) => !declared.includes(name))).toEqual([]);
    for (const list of found(/networks: \[([^\]]*)\]/g, compose)) {
      expect(list.split(", ").filter((name) => !["plane", "outside"].includes(name))).toEqual([]);
    }
    for (const program of found(/((?:services|cli)\/[a-z/]+\.(?:ts|js))/g, compose)) {
      expect([program, existsSync(join(ROOT, program))]).toEqual([program, true]);
    }
  });
});

test("A.03 more instances of a daemon have ports of their own, a name of their own, and time for a drain", () => {
  for (const name of DAEMONS) {
    expect(of(base, name)).not.toContain("container_name");
    for (const host of found(/:-((?:[\d.]+:)?[\d-]+)\}:\d/g, of(base, name))) expect(host).toMatch(/\d-\d/);
  }
  expect(found(/:-((?:[\d.]+:)?[\d-]+)\}:\d/g, of(base, "auth-edge"))).toHaveLength(2);
  const grace = Number(/^x-daemon[^]*?stop_grace_period: (\d+)s/m.exec(textOf("docker-compose.yml"))?.[1]);
  expect(grace * 1000).toBeGreaterThan(
    Number(/`COTAL_DRAIN_MS` \| `(\d+)`/.exec(textOf("docs", "configuration.md"))?.[1]),
  );
});

describe("A.06 the overlay of three brokers", () => {
  const cluster = servicesOf("deploy", "cluster.yml");
  const brokers = ["broker", "broker-2", "broker-3"];

  test("three copies of each stream, two of each daemon, and every server is known to all of them", () => {
    expect(of(cluster, "provisioner")).toContain('COTAL_REPLICAS: "3"');
    const servers = /&servers (\S+)/.exec(textOf("deploy", "cluster.yml"))?.[1]?.split(",");
    expect(servers).toEqual(brokers.map((name) => `nats://${name}:4222`));
    for (const name of [...DAEMONS, "spaces"]) expect(of(cluster, name)).toContain("COTAL_SERVERS: *servers");
    for (const name of DAEMONS) expect(of(cluster, name)).toContain("replicas: 2");
    expect(of(cluster, "trust")).toContain(`COTAL_BROKERS: "${brokers.join(",")}"`);
  });

  test("each broker has a name and a store of its own and one configuration; nothing is made before all are there", () => {
    for (const name of brokers) {
      const text = of(cluster, name);
      expect(text).toContain("nats-cluster.conf");
      if (name === "broker") continue;
      expect(text).toContain(`{ NATS_SERVER_NAME: ${name} }`);
      expect(text).toContain(`- ${name}-data:/data\n`);
      // The port of this machine is the first one's.
      expect(text).toContain("ports: !reset []");
      expect(of(cluster, "spaces")).toContain(`${name}: { condition: service_healthy }`);
    }
    expect(textOf("deploy", "nats-cluster.conf")).toContain("include nats-server.conf");
  });
});

test("an overlay changes services that there are, and what it adds has an image or is one of them", () => {
  for (const name of overlays) {
    for (const [service, text] of servicesOf("deploy", name)) {
      const isKnown = base.has(service) || /^ {4}(?:image: \S+:[\w.-]+$|extends: )/m.test(text);
      expect([name, service, isKnown]).toEqual([name, service, true]);
    }
  }
  const extended = found(/extends: \{ file: docker-compose\.yml, service: ([a-z-]+) \}/g, compose);
  expect(extended.filter((service) => !base.has(service))).toEqual([]);
});

test("the public overlay serves what it mounts, on the port that is published", () => {
  const edge = of(servicesOf("deploy", "public.yml"), "auth-edge");
  const [folder = "none"] = found(/deploy\/tls:(\/[a-z]+):ro/g, edge);
  expect(found(/TLS_(?:CERT|KEY): (\S+)/g, edge)).toEqual([`${folder}/fullchain.pem`, `${folder}/privkey.pem`]);
  const [port = "none"] = found(/COTAL_AUTH_PUBLIC: \$\{COTAL_AUTH_PUBLIC:-[\d.]+:(\d+)\}/g, edge);
  expect(of(base, "auth-edge")).toMatch(new RegExp(`COTAL_EXCHANGE_PUBLISH:-[^}]*\\}:${port}"`));
});

test("PH.01 the broker's configuration has the limits that every mint rests on (supplement H)", () => {
  const config = textOf("nats-server.conf");
  expect(config).toContain(`max_control_line: ${REQUIRED_CONTROL_LINE}`);
  expect(Number(/max_payload: (\d+)/.exec(config)?.[1])).toBeGreaterThanOrEqual(REQUIRED_PAYLOAD);
  // Said, and not left to a default: with TLS that follows `tls.timeout`, and is past what proves an end.
  const [login = "none"] = found(/^authorization \{ timeout: (\d+) \}$/gm, config);
  expect(Number(login)).toBeLessThanOrEqual(MOST_LOGIN_SECONDS);
  expect(config).toContain(NO_SUBJECT_CACHE);
  expect(config).toContain(SYNC_INTERVAL);
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

  test("A.02 each has a case in rules.test.yml that fires it, and a series or a moment beside it that does not", () => {
    const cases = textOf("deploy", "rules.test.yml")
      .split(/^ {2}- name: /m)
      .slice(1);
    const lacking = found(/alert: (\w+)/g, rules).filter((alert) => {
      const own = cases.filter((text) => text.includes(`alertname: ${alert}\n`));
      const moments = own.flatMap((text) => text.split(/^ {6}- eval_time: /m).slice(1));
      const fired = moments.filter((text) => text.includes("exp_alerts:"));
      const alerts = Math.max(0, ...fired.map((text) => text.split("exp_labels:").length - 1));
      const series = own.flatMap((text) => text.match(/series: /g) ?? []);
      return fired.length === 0 || (moments.length === fired.length && series.length <= alerts);
    });
    expect(lacking).toEqual([]);
  });

  test("A.02 every daemon is scraped, with the overlay too; a job that an alert is about is a service", () => {
    const jobs = found(/job_name: ([a-z-]+)/g, textOf("deploy", "prometheus.yml"));
    expect(jobs.toSorted()).toEqual([...DAEMONS, "prometheus"].toSorted());
    for (const job of DAEMONS)
      expect(textOf("deploy", "prometheus.yml")).toContain(`names: [${job}], type: A, port: 9464`);
    // The overlay's file is that one, and the broker.
    const [before = "", after = ""] = textOf("deploy", "prometheus-broker.yml").split(/ {2}- job_name: broker\n.*\n/);
    expect(before + after).toBe(textOf("deploy", "prometheus.yml"));
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
