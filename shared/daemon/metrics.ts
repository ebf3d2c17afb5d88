/**
 * The metrics of one daemon, in a registry of its own.
 *
 * Invariants
 * 1. A name is `cotal_<daemon>_<thing>_<unit>`; a counter ends in `_total`; times are seconds.
 * 2. Label names are of a closed set. A label takes a bounded number of values; every further value
 *    becomes `other`, so no peer can grow the registry.
 * 3. Nothing that looks like a secret becomes a label value.
 */
import { Counter, Gauge, Histogram, Registry, collectDefaultMetrics } from "prom-client";
import { CotalError, ErrorCode } from "../protocol/base/errors.ts";
import { redactText } from "./redact.ts";

/** Every label that a metric of ours may carry. Never a principal, a channel, an id or a text. */
export const LABEL_NAMES = [
  "space",
  "result",
  "code",
  "reason",
  "command",
  "endpoint",
  "face",
  "class",
  "profile",
  "stream",
  "state",
  "duty",
  "group",
  "connection",
  "check",
  "loop",
] as const;
export type LabelName = (typeof LABEL_NAMES)[number];
export type Labels<L extends LabelName> = Readonly<Record<L, string>>;

/** What a value beyond the bound becomes. */
export const OTHER = "other";
const MAX_LABEL_LENGTH = 64;

export type MetricSpec<L extends LabelName> = {
  readonly name: string;
  readonly help: string;
  readonly labels?: readonly L[];
};

export type CounterMetric<L extends LabelName> = { readonly inc: (labels: Labels<L>, by?: number) => void };
export type GaugeMetric<L extends LabelName> = {
  readonly set: (labels: Labels<L>, value: number) => void;
  /** The series is gone, not zero: a space that was removed, a lease that is nobody's. */
  readonly remove: (labels: Labels<L>) => void;
};
export type HistogramMetric<L extends LabelName> = { readonly observe: (labels: Labels<L>, value: number) => void };

export type Metrics = {
  /** `cotal_<daemon>_`, for parts that don't know which daemon they are in. */
  readonly prefix: string;
  readonly counter: <L extends LabelName = never>(spec: MetricSpec<L>) => CounterMetric<L>;
  readonly gauge: <L extends LabelName = never>(spec: MetricSpec<L>) => GaugeMetric<L>;
  readonly histogram: <L extends LabelName = never>(
    spec: MetricSpec<L> & { readonly buckets?: readonly number[] },
  ) => HistogramMetric<L>;
  /** The exposition, and the content type that it must be served with. */
  readonly text: () => Promise<string>;
  readonly contentType: string;
};

export type MetricsOptions = {
  /** The daemon's name; `-` becomes `_`. */
  readonly daemon: string;
  /** Distinct values of one label of one metric. */
  readonly maxLabelValues?: number;
  /** Node's own process metrics (`process_*`, `nodejs_*`) too. */
  readonly processMetrics?: boolean;
};

/** From half a millisecond to half a minute. */
const SECONDS_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

type MetricKind = "counter" | "gauge" | "histogram";

export function createMetrics(options: MetricsOptions): Metrics {
  const { daemon, maxLabelValues = 100, processMetrics = true } = options;
  const prefix = `cotal_${daemon.replaceAll("-", "_")}_`;
  const registry = new Registry();
  if (processMetrics) collectDefaultMetrics({ register: registry });

  function base<L extends LabelName>(kind: MetricKind, spec: MetricSpec<L>) {
    checkName(kind, spec.name, prefix);
    if (registry.getSingleMetric(spec.name) !== undefined) throw wrongName(spec.name, "is taken");
    const labelNames = [...(spec.labels ?? [])];
    const stranger = labelNames.find((label) => !LABEL_NAMES.includes(label));
    if (stranger !== undefined) throw wrongName(spec.name, `has the label ${stranger}, which is not in LABEL_NAMES`);
    return {
      config: { name: spec.name, help: spec.help, labelNames, registers: [registry] },
      bound: boundValues(labelNames, maxLabelValues),
    };
  }

  return {
    prefix,
    counter: (spec) => {
      const { config, bound } = base("counter", spec);
      const counter = new Counter(config);
      return { inc: (labels, by = 1) => counter.inc(bound(labels), by) };
    },
    gauge: (spec) => {
      const { config, bound } = base("gauge", spec);
      const gauge = new Gauge(config);
      return {
        set: (labels, value) => gauge.set(bound(labels), value),
        remove: (labels) => gauge.remove(bound(labels)),
      };
    },
    histogram: (spec) => {
      const { config, bound } = base("histogram", spec);
      const histogram = new Histogram({ ...config, buckets: [...(spec.buckets ?? SECONDS_BUCKETS)] });
      return { observe: (labels, value) => histogram.observe(bound(labels), value) };
    },
    text: () => registry.metrics(),
    contentType: registry.contentType,
  };
}

/** Maps label values into their bound. The first `max` values of each label keep their names. */
function boundValues<L extends LabelName>(names: readonly L[], max: number): (labels: Labels<L>) => Record<L, string> {
  const seen = new Map(names.map((name) => [name, new Set<string>()]));
  return (labels) => {
    // Filled key by key below: every name of L is in `names`.
    const out = {} as Record<L, string>;
    for (const [name, values] of seen) {
      const value = labels[name];
      const fits = value.length <= MAX_LABEL_LENGTH && redactText(value) === value;
      if (fits && !values.has(value) && values.size < max) values.add(value);
      out[name] = values.has(value) ? value : OTHER;
    }
    return out;
  };
}

/** Endings that Prometheus gives a meaning of its own, or that are not its base units. */
const WRONG_ENDING: Readonly<Record<string, string>> = {
  count: "the exposition adds _count itself",
  sum: "the exposition adds _sum itself",
  bucket: "the exposition adds _bucket itself",
  ms: "measure in _seconds",
  millis: "measure in _seconds",
  milliseconds: "measure in _seconds",
  minutes: "measure in _seconds",
  percent: "measure a _ratio from 0 to 1",
  kb: "measure in _bytes",
  mb: "measure in _bytes",
};

function checkName(kind: MetricKind, name: string, prefix: string): void {
  const rest = name.startsWith(prefix) ? name.slice(prefix.length) : "";
  if (!/^[a-z][a-z0-9]*(?:_[a-z0-9]+)+$/.test(rest)) throw wrongName(name, `is not ${prefix}<thing>_<unit>`);
  const unit = rest.slice(rest.lastIndexOf("_") + 1);
  const wrong = WRONG_ENDING[unit];
  if (wrong !== undefined) throw wrongName(name, `ends in _${unit}: ${wrong}`);
  if ((unit === "total") !== (kind === "counter"))
    throw wrongName(name, "must end in _total if, and only if, it counts");
}

/** A wrong name is a fault of ours, found at the first start. */
function wrongName(name: string, why: string): CotalError {
  return new CotalError(ErrorCode.Internal, `the metric ${name} ${why}`);
}
