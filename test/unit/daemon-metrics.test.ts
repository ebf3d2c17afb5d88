/** Metrics: names that follow the rule, labels from a closed set, and a bounded number of values. */
import { describe, expect, test } from "vitest";
import { LABEL_NAMES, OTHER, createMetrics } from "../../shared/daemon/metrics.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { refusal } from "../support/refusal.ts";

const quiet = (maxLabelValues = 100) => createMetrics({ daemon: "test-one", processMetrics: false, maxLabelValues });

describe("A.02 names", () => {
  test("begin with the daemon and end with the unit", async () => {
    const metrics = quiet();
    expect(metrics.prefix).toBe("cotal_test_one_");
    metrics.counter({ name: "cotal_test_one_requests_total", help: "h" }).inc({});
    metrics.gauge({ name: "cotal_test_one_lag_messages", help: "h" }).set({}, 4);
    metrics.histogram({ name: "cotal_test_one_call_seconds", help: "h" }).observe({}, 0.2);
    const text = await metrics.text();
    expect(text).toContain("cotal_test_one_requests_total 1");
    expect(text).toContain("cotal_test_one_lag_messages 4");
    expect(text).toMatch(/cotal_test_one_call_seconds_bucket\{le="0.25"\} 1/);
  });

  test.each<["counter" | "gauge" | "histogram", string]>([
    ["counter", "requests_total"],
    ["counter", "cotal_other_requests_total"],
    ["counter", "cotal_test_one_requests"],
    ["counter", "cotal_test_one_total"],
    ["gauge", "cotal_test_one_lag_total"],
    ["gauge", "cotal_test_one_lag_ms"],
    ["gauge", "cotal_test_one_cpu_percent"],
    ["gauge", "cotal_test_one_heap_mb"],
    ["gauge", "cotal_test_one_Lag_seconds"],
    ["gauge", "cotal_test_one_lag__seconds"],
    ["gauge", "cotal_test_one_lag_seconds_"],
    ["histogram", "cotal_test_one_call_milliseconds"],
    ["histogram", "cotal_test_one_call_bucket"],
    ["histogram", "cotal_test_one_call_count"],
    ["histogram", "cotal_test_one_call_sum"],
  ])("a %s is not called %s", (kind, name) => {
    expect(refusal(() => quiet()[kind]({ name, help: "h" })).code).toBe("internal");
  });

  test("a name is taken once", () => {
    const metrics = quiet();
    metrics.gauge({ name: "cotal_test_one_lag_seconds", help: "h" });
    expect(refusal(() => metrics.gauge({ name: "cotal_test_one_lag_seconds", help: "h" })).message).toContain(
      "is taken",
    );
  });
});

describe("A.02 labels", () => {
  test("none that a peer chooses: no principal, channel, id or text", () => {
    const peers = ["principal", "owner", "actor", "channel", "id", "user", "message", "subject", "name", "role", "uid"];
    expect(peers.filter((label) => (LABEL_NAMES as readonly string[]).includes(label))).toEqual([]);
  });

  test("a label outside the set is refused", () => {
    const spec = { name: "cotal_test_one_x_total", help: "h", labels: ["principal" as "space"] };
    expect(refusal(() => quiet().counter(spec)).code).toBe("internal");
  });

  test("values past the bound, too long or secret become `other`", async () => {
    const metrics = quiet(3);
    const counter = metrics.counter({ name: "cotal_test_one_x_total", help: "h", labels: ["space"] });
    const seed = newKey("user").seedText();
    const jwt = "eyJ0eXAiOiJKV1Q.eyJqdGkiOiJYWFgifQ.c2ln";
    for (const space of ["a", "b", seed, jwt, "x".repeat(65), "c", "d", "e", "a"]) counter.inc({ space });
    const text = await metrics.text();
    const series = text.split("\n").filter((line) => line.startsWith("cotal_test_one_x_total{"));
    expect(series.toSorted()).toEqual(
      ['{space="a"} 2', '{space="b"} 1', '{space="c"} 1', `{space="${OTHER}"} 5`].map(
        (tail) => `cotal_test_one_x_total${tail}`,
      ),
    );
    expect(text).not.toContain(seed);
  });

  test("a thousand spaces don't grow the registry", async () => {
    const metrics = quiet();
    const gauge = metrics.gauge({ name: "cotal_test_one_lag_messages", help: "h", labels: ["space", "state"] });
    for (let n = 0; n < 1000; n += 1) gauge.set({ space: `s${n}`, state: `t${n}` }, n);
    const series = (await metrics.text()).split("\n").filter((line) => line.includes("{"));
    expect(series.length).toBeLessThanOrEqual(101);
  });

  test("a gauge that is gone shows no series", async () => {
    const metrics = quiet();
    const gauge = metrics.gauge({ name: "cotal_test_one_lag_messages", help: "h", labels: ["space"] });
    gauge.set({ space: "a" }, 1);
    gauge.remove({ space: "a" });
    expect(await metrics.text()).not.toContain('space="a"');
  });

  test("a value that would break the exposition is escaped by it", async () => {
    const metrics = quiet();
    metrics.counter({ name: "cotal_test_one_x_total", help: "h", labels: ["code"] }).inc({ code: 'a"\n}1' });
    const series = (await metrics.text()).split("\n").filter((line) => line.startsWith("cotal_test_one_x_total{"));
    expect(series).toEqual(['cotal_test_one_x_total{code="a\\"\\n}1"} 1']);
  });
});

test("two daemons of one process keep registries of their own", async () => {
  const [one, two] = [quiet(), quiet()];
  one.counter({ name: "cotal_test_one_x_total", help: "h" }).inc({}, 5);
  two.counter({ name: "cotal_test_one_x_total", help: "h" }).inc({});
  expect(await two.text()).toContain("cotal_test_one_x_total 1");
});

test("Node's own metrics come along unless they are switched off", async () => {
  expect(await createMetrics({ daemon: "x" }).text()).toContain("process_resident_memory_bytes");
  expect(await quiet().text()).not.toContain("process_");
});
