/** The `call` bench on a few calls: every metric is measured, beside the bare side where there is one. */
import { expect, test } from "vitest";
import { call } from "../bench/call.ts";
import type { BenchLine } from "../bench/line.ts";

const FEW = {
  warm: 10,
  rounds: 1,
  latency: 10,
  rate: 200,
  scatters: 2,
  instances: 10,
  resolves: 3,
  flight: 1100,
  flights: 1,
};

test(
  "call prints each metric of the contract with the bare side's figure and the ratio",
  { timeout: 60_000 },
  async () => {
    const lines: BenchLine[] = [];
    await call((line) => lines.push(line), FEW);
    const withBare = [
      "call_floor_p50 ms",
      "call_p50 ms",
      "call_floor_rate 1/s",
      "call_rate 1/s",
      "call_rate_4 1/s",
      "describe_ms ms",
      "resolve_ms ms",
      "scatter_100_ms ms",
      "flight_10000_mb MB",
    ];
    const alone = ["resolve_cached_ms ms"];
    const named = (bare: boolean) =>
      lines.filter((line) => (line.bare !== null) === bare).map(({ metric, unit }) => `${metric} ${unit}`);
    expect(named(true)).toEqual(withBare);
    expect(named(false)).toEqual(alone);
    for (const { bench, value, n } of lines) {
      expect({ bench, n }).toEqual({ bench: "call", n: 1 });
      expect(value).toBeGreaterThanOrEqual(0);
    }
  },
);
