/**
 * Writes the figures of docs/performance.md from the lines of a bench: `node test/bench/performance.ts FILE`, where
 * the file holds what `npm run bench -- fanout --json` printed. The text around them is written by hand.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { FANOUT_SIZES } from "./fanout-sizes.ts";
import type { BenchLine } from "./line.ts";

const PAGE = join(import.meta.dirname, "..", "..", "docs", "performance.md");
const BEGIN = "<!-- figures -->\n";
const END = "<!-- /figures -->";
const NONE = "–";

const lines = readFileSync(process.argv[2] ?? "", "utf8")
  .split("\n")
  .filter((line) => line.startsWith("{"))
  .map((line) => JSON.parse(line) as BenchLine);
const byMetric = new Map(lines.map((line) => [line.metric, line]));

const shown = (value: number | null | undefined, digits = 0): string =>
  value === null || value === undefined
    ? NONE
    : value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
const value = (metric: string, digits = 0): string => shown(byMetric.get(metric)?.value, digits);
const bare = (metric: string, digits = 0): string => shown(byMetric.get(metric)?.bare, digits);
const ratio = (metric: string): string => shown(byMetric.get(metric)?.ratio, 2);
/** Ours as so many times the other's. */
function times(metric: string, peer: string): string {
  const [one, other] = [byMetric.get(metric)?.value, byMetric.get(`peer_${peer}_${metric}`)?.value];
  return one === undefined || other === undefined || other === 0 ? NONE : shown(one / other, 2);
}

const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map((_, at) => (at === 0 ? "---" : "---:")), ...rows].map((row) => `| ${row.join(" | ")} |`).join("\n");

function chart(title: string, axis: string, at: readonly number[], metric: (n: number) => string): string {
  const found = at.map((n) => byMetric.get(metric(n)));
  const series = (of: (line: BenchLine | undefined) => number | null | undefined): string =>
    found.map((line) => Math.round(of(line) ?? 0)).join(", ");
  return [
    "```mermaid",
    "xychart-beta",
    `  title "${title}"`,
    `  x-axis "${axis}" [${at.join(", ")}]`,
    '  y-axis "copies a second"',
    `  bar [${series((line) => line?.value)}]`,
    `  line [${series((line) => line?.bare)}]`,
    "```",
  ].join("\n");
}

const BESIDE = ["rabbitmq", "mosquitto"] as const;
const HEAD = ["ours", "bare broker", "ours / bare", "RabbitMQ", "ours / RabbitMQ", "Mosquitto"];
const row = (name: string, metric: string, digits = 0): string[] => [
  name,
  value(metric, digits),
  bare(metric, digits),
  ratio(metric),
  value(`peer_rabbitmq_${metric}`, digits),
  times(metric, "rabbitmq"),
  value(`peer_mosquitto_${metric}`, digits),
];

const { members, channels, backlog, away } = FANOUT_SIZES;
const figures = [
  "## Copies a second",
  table(
    ["members of the channel", ...HEAD],
    members.map((n) => row(shown(n), `copies_rate_${n}`)),
  ),
  chart("By members (line: bare broker)", "members of one channel", members, (n) => `copies_rate_${n}`),
  table(
    ["channels, ten members each", "ours", "bare broker", "ours / bare"],
    channels
      .map((n) => `copies_rate_channels_${n}`)
      .map((metric, at) => [shown(channels[at]), value(metric), bare(metric), ratio(metric)]),
  ),
  chart("By channels (line: bare broker)", "channels", channels, (n) => `copies_rate_channels_${n}`),
  "## To the member",
  table(
    ["", ...HEAD],
    [
      row("from a post to the inbox, p50 ms", "inbox_p50", 2),
      row("the same, p99 ms", "inbox_p99", 2),
      row(`catching up on ${shown(away)}, copies a second`, "catchup_rate"),
    ],
  ),
  "## Kept",
  table(
    ["by a `kill -9` of the broker", "ours", "RabbitMQ", "Mosquitto"],
    [
      [
        "lost, of what was confirmed",
        `${value("lost_on_kill")} %`,
        ...BESIDE.map((name) => `${value(`peer_${name}_lost_on_kill`)} %`),
      ],
    ],
  ),
  "## Memory of the delivery service",
  table(
    ["copies that wait", "resident MiB"],
    [
      ["0", value("rss_delivery_0")],
      ...backlog.map((n) => [shown(n), value(`rss_delivery_${n}`)]),
      ["the most it ever was", value("rss_delivery_peak")],
    ],
  ),
].join("\n\n");

const page = readFileSync(PAGE, "utf8");
const [from, to] = [page.indexOf(BEGIN) + BEGIN.length, page.indexOf(END)];
writeFileSync(PAGE, `${page.slice(0, from)}\n${figures}\n\n${page.slice(to)}`);
