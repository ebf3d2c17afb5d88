/** What an operator sees of the pruning of evidence. */
import { expect, test } from "vitest";
import { evidenceSayings } from "../../services/auth/say-evidence.ts";
import { createHealth } from "../../shared/daemon/health.ts";
import { createLog } from "../../shared/daemon/log.ts";
import { createMetrics } from "../../shared/daemon/metrics.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";

function made() {
  const lines: string[] = [];
  const health = createHealth();
  const metrics = createMetrics({ daemon: "auth", processMetrics: false });
  const log = createLog({
    service: "auth",
    level: "info",
    destination: { write: (line: string) => void lines.push(line) },
  });
  return { lines, health, metrics, ofSpace: evidenceSayings({ health, metrics, log }) };
}

const cause = new CotalError(ErrorCode.FailedPrecondition, "the evidence row natkey.UX is corrupt", {
  next: "find out who wrote it",
});

test("W131L.12 a fence is a failing check that names the row and what to do; opening the space again takes it back", () => {
  const { lines, health, ofSpace } = made();
  const { onFence } = ofSpace("main");
  expect(health.report()).toMatchObject({ status: "ok", checks: [] });
  onFence(cause);
  expect(health.report()).toMatchObject({
    status: "failing",
    checks: [
      { name: "plane:main", ok: false, detail: expect.stringContaining("natkey.UX") as string, next: cause.next },
    ],
  });
  const said = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(said).toEqual([expect.objectContaining({ level: "error", space: "main" })]);
  expect(lines.join("")).toContain("natkey.UX");
  ofSpace("other").onFence(cause);
  ofSpace("main");
  expect(health.report().checks.map(({ name }) => name)).toEqual(["plane:other"]);
});

test("W131L.12 rows seen and removed are counted, those of services apart, with the age of the oldest", async () => {
  const { metrics, ofSpace } = made();
  const { onPrune } = ofSpace("main");
  onPrune({ kind: "batch", seen: 256, pruned: 200 });
  onPrune({ kind: "batch", seen: 10, pruned: 1 });
  onPrune({ kind: "walked", service: 3, oldestExpiredSeconds: 75 });
  const text = await metrics.text();
  expect(text).toContain('cotal_auth_evidence_seen_total{space="main"} 266');
  expect(text).toContain('cotal_auth_evidence_pruned_total{space="main"} 201');
  expect(text).toContain('cotal_auth_evidence_service_rows{space="main"} 3');
  expect(text).toContain('cotal_auth_evidence_oldest_expired_seconds{space="main"} 75');
  onPrune({ kind: "stopped" });
  const after = await metrics.text();
  expect(after).toContain("evidence_seen_total{");
  expect(after).not.toContain("evidence_service_rows{");
});
