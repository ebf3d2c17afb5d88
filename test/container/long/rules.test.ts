/** Each alert of deploy/rules.yml provoked, and not by what is near it: its cases, evaluated by Prometheus' own promtool. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "..", "..", "..");
/** The one that the compose project runs. */
const [, image = ""] =
  /image: (prom\/prometheus:\S+)/.exec(readFileSync(join(ROOT, "docker-compose.yml"), "utf8")) ?? [];
const PULL_MS = 300_000;

test("A.02 every alert fires for what it is about, and for nothing that is near it", { timeout: PULL_MS }, () => {
  const mounted = ["--volume", `${join(ROOT, "deploy")}:/rules:ro`];
  const promtool = ["run", "--rm", "--network", "none", "--entrypoint", "promtool", ...mounted, image];
  const out = execFileSync("docker", [...promtool, "test", "rules", "/rules/rules.test.yml"], { encoding: "utf8" });
  expect(out).toContain("SUCCESS");
});
