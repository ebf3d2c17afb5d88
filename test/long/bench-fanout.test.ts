/** The `fanout` bench on a few copies: every metric is measured, and no line speaks of a broker that isn't there. */
import { expect, test } from "vitest";
import { fanout } from "../bench/fanout.ts";
import type { BenchLine } from "../bench/line.ts";

const FEW = {
  rounds: 1,
  copies: 200,
  members: [10, 100, 1000],
  channels: [1, 5],
  latency: 10,
  away: 300,
  returns: 1,
  backlog: [100, 400],
};

test(
  "fanout prints each metric of the contract, and none of brokers that are not installed",
  { timeout: 240_000 },
  async () => {
    const lines: BenchLine[] = [];
    await fanout((line) => lines.push(line), FEW, { PATH: "" });
    const named = (hasBare: boolean) =>
      lines.filter(({ bare }) => (bare !== null) === hasBare).map(({ metric, unit }) => `${metric} ${unit}`);
    expect(named(true)).toEqual([
      "copies_rate_10 1/s",
      "copies_rate_100 1/s",
      "copies_rate_1000 1/s",
      "copies_rate_channels_1 1/s",
      "copies_rate_channels_5 1/s",
      "inbox_p50 ms",
      "inbox_p99 ms",
      "catchup_rate 1/s",
      "rss_delivery_100 MiB",
      "rss_delivery_400 MiB",
      "rss_delivery_peak MiB",
    ]);
    expect(named(false)).toEqual(["lost_on_kill %", "rss_delivery_0 MiB"]);
    const zero = lines.filter(({ value }) => value === 0).map(({ metric }) => metric);
    expect(zero).toEqual(["lost_on_kill"]);
    for (const line of lines) expect(line).toMatchObject({ bench: "fanout", n: 1 });
  },
);
