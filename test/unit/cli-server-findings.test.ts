/** What the doctor says of the broker's servers: faults that no server of this machine has. */
import { expect, test } from "vitest";
import { serverFindings } from "../../cli/server-findings.ts";
import { MOST_LOGIN_SECONDS, REQUIRED_CONTROL_LINE, REQUIRED_PAYLOAD } from "../../shared/grants/gates.ts";

const GOOD = {
  name: "n1",
  version: "2.14.1",
  maxControlLine: REQUIRED_CONTROL_LINE,
  maxPayload: REQUIRED_PAYLOAD,
  loginSeconds: MOST_LOGIN_SECONDS,
  store: { used: 10, most: 100, syncSeconds: 1 },
};
const of = (changed: object) =>
  serverFindings({
    servers: [
      { ...GOOD, name: "n0" },
      { ...GOOD, ...changed },
    ],
  });

test("A.08 servers that are well are no finding, also where none says how much it may store", () => {
  for (const changed of [{}, { store: undefined }, { store: { ...GOOD.store, most: 0 } }])
    expect(of(changed)).toEqual([]);
});

test.each([
  ["a version below the floor", { version: "2.11.9" }, "broker version", "error", /n1.*2\.11\.9/, /upgrade/],
  [
    "a disk that fills",
    { store: { ...GOOD.store, used: 80 } },
    "broker disk",
    "warning",
    /n1 has 80 %/,
    /max_file_store/,
  ],
  ["a disk that is full", { store: { ...GOOD.store, used: 95 } }, "broker disk", "error", /n1 has 95 %/, /limits set/],
  [
    "a disk that is written late",
    { store: { ...GOOD.store, syncSeconds: 120 } },
    "broker disk",
    "warning",
    /n1 has acknowledged in the last 120 s/,
    /sync_interval: "1s"/,
  ],
  [
    "a short control line",
    { maxControlLine: 4096 },
    "broker limits",
    "error",
    /n1: max_control_line is 4096/,
    /reload/,
  ],
  ["a small payload", { maxPayload: 1024 }, "broker limits", "error", /n1: max_payload is 1024/, /max_payload to/],
  [
    "a login that may take long",
    { loginSeconds: 6 },
    "broker limits",
    "error",
    /n1: a login may take 6 s/,
    /timeout: 2/,
  ],
] as const)("A.08 %s is told with its server and what to do", (_, changed, check, level, message, next) => {
  expect(of(changed)).toEqual([
    { check, level, message: expect.stringMatching(message) as unknown, next: expect.stringMatching(next) as unknown },
  ]);
});

test("A.08 a server that has not shown itself is told beside what the others are", () => {
  const findings = serverFindings({ servers: [{ ...GOOD, maxPayload: 1 }], gap: "1 of 3 answered" });
  expect(findings.map(({ check }) => check)).toEqual(["broker servers", "broker limits"]);
  expect(findings[0]?.message).toContain("1 of 3 answered");
});

test("an answer of another shape is refused", () => {
  expect(() => serverFindings({ servers: [{ name: 1 }] })).toThrow("expected string");
});
