/** The `load` bench with a few agents: every metric is there, and nothing is owed. */
import { expect, test } from "vitest";
import type { BenchLine } from "../bench/line.ts";
import { load } from "../bench/load.ts";
import { emptySpread, merged, note, shareOf } from "../bench/spread.ts";

const FEW = { agents: 6, channels: 2, processes: 2, posts: 5, seconds: 2, bareSeconds: 2, warmSeconds: 1 };

test("load prints each metric, beside the bare side where there is one", { timeout: 90_000 }, async () => {
  const lines: BenchLine[] = [];
  await load((line) => lines.push(line), FEW);
  expect(lines.map(({ bench, metric, unit }) => `${bench} ${metric} ${unit}`.trim())).toEqual([
    "load sent_rate 1/s",
    "load shown_rate 1/s",
    "load shown_least 1/s",
    "load receipt_p50 ms",
    "load receipt_p99 ms",
    "load shown_p50 ms",
    "load shown_p99 ms",
    "load copies_behind posts",
    "load failed posts",
    "load missing",
    "load rss_broker MiB",
    "load rss_provisioner MiB",
    "load rss_delivery MiB",
    "load rss_agents MiB",
  ]);
  const of = (metric: string) => lines.find((line) => line.metric === metric);
  expect(of("sent_rate")).toMatchObject({ value: 6, bare: 6, ratio: 1 });
  // Half are posts, which two of three in the channel read, and the bare side's own author too.
  expect(of("shown_rate")).toMatchObject({ value: 9, bare: 12 });
  expect(of("failed")).toMatchObject({ value: 0 });
  expect(of("missing")).toMatchObject({ value: 0 });
});

test("a share is found to within two hundredths, over all that were noted apart", () => {
  const [low, high] = [emptySpread(), emptySpread()];
  for (let ms = 1; ms <= 90; ms += 1) note(low, 1);
  for (let ms = 1; ms <= 10; ms += 1) note(high, 250);
  const all = merged([low, high]);
  expect(shareOf(all, 0.5)).toBeCloseTo(1, 1);
  expect(Math.abs(shareOf(all, 0.99) - 250)).toBeLessThan(5);
});
