/**
 * One result line of a bench, as scripts read it: `bench, metric, value, unit, bare, ratio, n`.
 *
 * Invariants
 * 1. `value` and `bare` are medians over the same number of rounds, and `ratio` is value / bare;
 *    both are null where nothing bare corresponds.
 * 2. A line holds these seven fields and no other; a remark is for the table alone.
 */

export type BenchLine = {
  readonly bench: string;
  readonly metric: string;
  readonly value: number;
  readonly unit: string;
  readonly bare: number | null;
  readonly ratio: number | null;
  /** Rounds that each median is taken over. */
  readonly n: number;
};

/** What a metric is measured in, and what a reader of the figures should know. */
export type Metric = {
  readonly metric: string;
  readonly unit: string;
  readonly aim?: string;
  /** What the bare side is, and why its figure may be another than one knows. */
  readonly note?: string;
};

/** Takes a finished line. */
export type Report = (line: BenchLine, about: Metric) => void;

export function benchLine(
  bench: string,
  { metric, unit }: Metric,
  ours: readonly number[],
  bare: readonly number[] = [],
): BenchLine {
  const value = median(ours);
  const beside = bare.length === 0 ? null : median(bare);
  const ratio = beside === null || beside === 0 ? null : rounded(value / beside);
  return {
    bench,
    metric,
    value: rounded(value),
    unit,
    bare: beside === null ? null : rounded(beside),
    ratio,
    n: ours.length,
  };
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  const high = sorted[Math.floor(middle)];
  if (high === undefined) throw new Error("a median of nothing");
  return Number.isInteger(middle) ? ((sorted[middle - 1] ?? high) + high) / 2 : high;
}

/** Nearest rank: the smallest value that `share` of all don't exceed. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const found = sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
  if (found === undefined) throw new Error("a percentile of nothing");
  return found;
}

/** Four digits that count; a rate without its fractions. */
function rounded(value: number): number {
  return value >= 1000 ? Math.round(value) : Number(value.toPrecision(4));
}

const COLUMNS = [7, 22, 10, 6, 10, 7, 3] as const;
export const TABLE_HEAD = cells(["bench", "metric", "value", "unit", "bare", "ratio", "n"]);

export function tableRow(line: BenchLine, { aim, note }: Metric): string {
  const { bench, metric, value, unit, bare, ratio, n } = line;
  const row = cells([bench, metric, value, unit, bare ?? "-", ratio?.toFixed(2) ?? "-", n].map(String));
  const remarks = [aim === undefined ? "" : `aim ${aim}`, note ?? ""].filter((text) => text !== "");
  return [row, ...remarks].join("  ");
}

function cells(texts: readonly string[]): string {
  return texts.map((text, at) => (at < 2 ? text.padEnd(COLUMNS[at] ?? 0) : text.padStart(COLUMNS[at] ?? 0))).join(" ");
}
