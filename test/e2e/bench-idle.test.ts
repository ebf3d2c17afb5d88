/** The `idle` bench with one start and one kill: every metric is measured on the real plane. */
import { expect, test } from "vitest";
import { idle } from "../bench/idle.ts";
import type { BenchLine } from "../bench/line.ts";

test(
  "idle prints memory, start and recovery; where nothing bare corresponds, bare and ratio are null",
  { timeout: 90_000 },
  async () => {
    const lines: BenchLine[] = [];
    await idle((line) => lines.push(line), { starts: 1, kills: 1, restMs: 500 });
    const shape = lines.map(({ metric, unit, bare, n }) => [metric, unit, bare === null ? null : "bare", n]);
    expect(shape).toEqual([
      ["start_ms", "ms", null, 1],
      ["rss_provisioner", "MiB", "bare", 1],
      ["rss_auth", "MiB", "bare", 1],
      ["rss_delivery", "MiB", "bare", 1],
      ["rss_launcher", "MiB", "bare", 1],
      ["rss_broker", "MiB", "bare", 1],
      ["recover_ms_broker", "ms", null, 1],
      ["recover_ms_provisioner", "ms", null, 1],
    ]);
    for (const { bench, value, bare, ratio } of lines) {
      expect(bench).toBe("idle");
      expect(value).toBeGreaterThan(0);
      expect(ratio === null).toBe(bare === null);
    }
  },
);
