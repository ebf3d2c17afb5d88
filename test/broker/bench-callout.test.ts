/** The `callout` bench on a few connects: every metric is measured on both sides, with one process and with two. */
import { expect, test } from "vitest";
import { callout } from "../bench/callout.ts";
import type { BenchLine } from "../bench/line.ts";

const FEW = { rounds: 1, crowd: { people: 2, actors: 2 }, connects: 40, latency: 10, exchanges: 10 };

test(
  "callout prints each metric of the contract with the bare side's figure and the ratio",
  { timeout: 120_000 },
  async () => {
    const lines: BenchLine[] = [];
    await callout((line) => lines.push(line), FEW);
    const one = [
      "callout connect_rate 1/s",
      "callout connect_p50 ms",
      "callout connect_p99 ms",
      "callout exchange_rate 1/s",
    ];
    const two = one.map((line) => line.replace(/(?<=_(?:rate|p50|p99))/, "_two"));
    expect(lines.map(({ bench, metric, unit }) => `${bench} ${metric} ${unit}`)).toEqual([...one, ...two]);
    for (const line of lines) {
      expect(line).toMatchObject({ n: 1, bare: expect.any(Number) as number, ratio: expect.any(Number) as number });
      expect(line.value).toBeGreaterThan(0);
      expect(line.bare).toBeGreaterThan(0);
    }
  },
);
