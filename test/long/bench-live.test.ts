/** The `live` bench on a few messages: every metric is measured on both sides. */
import { expect, test } from "vitest";
import type { BenchLine } from "../bench/line.ts";
import { live } from "../bench/live.ts";

const FEW = {
  rounds: 1,
  latency: 10,
  latencyRounds: 1,
  publish: 300,
  inbox: 100,
  history: 1100,
  members: 20,
  rosterRounds: 1,
};

test(
  "live prints each metric of the contract with the bare side's figure and the ratio",
  { timeout: 60_000 },
  async () => {
    const lines: BenchLine[] = [];
    await live((line) => lines.push(line), FEW);
    expect(lines.map(({ bench, metric, unit }) => `${bench} ${metric} ${unit}`)).toEqual([
      "live latency_p50 ms",
      "live latency_p99 ms",
      "live publish_rate 1/s",
      "live inbox_rate 1/s",
      "live history_rate 1/s",
      "live roster_ms ms",
    ]);
    for (const line of lines) {
      expect(line).toEqual({
        bench: "live",
        metric: expect.stringMatching(/^[a-z0-9_]+$/) as string,
        value: expect.any(Number) as number,
        unit: expect.stringMatching(/^(?:ms|1\/s)$/) as string,
        bare: expect.any(Number) as number,
        ratio: expect.any(Number) as number,
        n: 1,
      });
      expect(line.value).toBeGreaterThan(0);
      expect(line.bare).toBeGreaterThan(0);
    }
  },
);
