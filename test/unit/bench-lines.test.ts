/** The line that every bench prints: what scripts read from `npm run bench -- NAME --json`. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { benchLine, median, percentile, tableRow } from "../bench/line.ts";
import { inTurn } from "../bench/rounds.ts";

const RATE = { metric: "publish_rate", unit: "1/s", aim: ">= 0.65", note: "beside one account" };

describe("a line of a bench", () => {
  test("has exactly bench, metric, value, unit, bare, ratio and n, in that order", () => {
    const line = benchLine("live", RATE, [30, 10, 20], [40, 20, 80]);
    expect(Object.keys(line)).toEqual(["bench", "metric", "value", "unit", "bare", "ratio", "n"]);
    expect(line).toEqual({
      bench: "live",
      metric: "publish_rate",
      value: 20,
      unit: "1/s",
      bare: 40,
      ratio: 0.5,
      n: 3,
    });
  });

  test("says null for bare and ratio where nothing bare corresponds", () => {
    expect(benchLine("idle", RATE, [7])).toMatchObject({ value: 7, bare: null, ratio: null, n: 1 });
  });

  test("keeps four digits, and the whole of a large number", () => {
    expect(benchLine("live", RATE, [0.123456], [45_678.9])).toMatchObject({ value: 0.1235, bare: 45_679 });
  });

  test("of nothing is refused", () => {
    expect(() => benchLine("live", RATE, [])).toThrow("a median of nothing");
  });

  test("shows the aim and what the bare side is in the table alone", () => {
    const row = tableRow(benchLine("live", RATE, [20], [40]), RATE);
    expect(row).toContain("aim >= 0.65");
    expect(row).toContain("beside one account");
  });
});

test("the median of an even number of rounds lies between the two in the middle", () => {
  expect(median([4, 1, 3, 2])).toBe(2.5);
});

test("a percentile is a value that was measured", () => {
  const values = Array.from({ length: 100 }, (_, at) => 100 - at);
  expect(percentile(values, 0.5)).toBe(50);
  expect(percentile(values, 0.99)).toBe(99);
  expect(percentile([7], 0.99)).toBe(7);
});

test("rounds alternate, the first side changes, and the first round does not count", async () => {
  const ran: string[] = [];
  const side = (name: string) => () => {
    ran.push(name);
    return Promise.resolve(ran.length);
  };
  const { ours, bare } = await inTurn(2, side("ours"), side("bare"));
  expect(ran).toEqual(["ours", "bare", "bare", "ours", "ours", "bare"]);
  expect(ours).toEqual([4, 5]);
  expect(bare).toEqual([3, 6]);
});

test.each([[[]], [["nothing"]], [["live", "more"]], [["toString"]]])(
  "bench %j is a matter of usage and ends with 2",
  (args) => {
    const main = join(import.meta.dirname, "..", "bench", "main.ts");
    const { status, stdout, stderr } = spawnSync(process.execPath, [main, ...args], { encoding: "utf8" });
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toContain("usage: npm run bench -- live | idle | callout | call | fanout | ends | load [--json]");
  },
);
