/** The rail on which an instance says how it is: its subject, its filter, and the shape of a report (§13.2). */
import { describe, expect, test } from "vitest";
import { parsePlaneSubject, planeGrants } from "../../shared/protocol/endpoint/planes.ts";
import { protocolFindings } from "../../shared/protocol/endpoint/protocol-findings.ts";
import type { ShownEndpoint } from "../../shared/protocol/endpoint/reads-shapes.ts";
import {
  MAX_STATUS_BYTES,
  parseStatusSubject,
  readStatusReport,
  statusReports,
  statusSubject,
} from "../../shared/protocol/endpoint/status-rail.ts";

const UID = "i".repeat(26);
const source = { endpoint: "com.example.echo", instanceId: UID, epoch: 4 };
const SUBJECT = `cotal.main.epr.com_example_echo.${UID}.4.svc.status`;
const bytes = (value: unknown) => new TextEncoder().encode(typeof value === "string" ? value : JSON.stringify(value));

describe("the subject", () => {
  test("PD.09 PA.09 is the instance's epoch-pinned record rail, within its serve grant, and reads back", () => {
    expect(statusSubject("main", source)).toBe(SUBJECT);
    expect(parseStatusSubject("main", SUBJECT)).toEqual(source);
    expect(parsePlaneSubject(SUBJECT)).toMatchObject({ plane: "epr", kind: "svc", qualifier: "status" });
    const { record } = planeGrants("main", source);
    expect(record).toBe(`cotal.main.epr.com_example_echo.${UID}.4.>`);
    expect(SUBJECT.startsWith(record.slice(0, -1))).toBe(true);
    expect(statusReports("main")).toBe("cotal.main.epr.*.*.*.svc.status");
  });

  test.each([
    ["another space", SUBJECT.replace("main", "other")],
    ["another kind", SUBJECT.replace(".svc.", ".goal.")],
    ["another qualifier", SUBJECT.replace(/status$/, "spec")],
    ["one token more", `${SUBJECT}.x`],
    ["one token less", SUBJECT.replace(/\.status$/, "")],
    ["a plane of events", SUBJECT.replace(".epr.", ".epe.")],
    ["an epoch that is no number", SUBJECT.replace(".4.", ".x.")],
    ["an epoch written in another way", SUBJECT.replace(".4.", ".04.")],
    ["an instance that is none", SUBJECT.replace(UID, "short")],
    ["an endpoint that is none", SUBJECT.replace("com_example_echo", "Com_Example")],
  ])("PA.09 %s is nobody's status", (_, subject) => {
    expect(parseStatusSubject("main", subject)).toBeUndefined();
  });
});

describe("a report", () => {
  test("holds a state and the spec that it saw; more may stand in it", () => {
    const report = { state: "ready", observedSpecRevision: 3, load: 0.5 };
    expect(readStatusReport(bytes(report), [])).toEqual({ ok: true, report });
  });

  test.each<[string, unknown, string[]]>([
    ["no JSON", "{", []],
    ["no object", "[]", []],
    ["without a state", { observedSpecRevision: 1 }, []],
    ["of an empty state", { state: "", observedSpecRevision: 1 }, []],
    ["of a state that is too long", { state: "s".repeat(65), observedSpecRevision: 1 }, []],
    ["without a revision", { state: "ready" }, []],
    ["of no lawful revision", { state: "ready", observedSpecRevision: 1.5 }, []],
    ["over the bound", { state: "ready", observedSpecRevision: 1, x: "x".repeat(MAX_STATUS_BYTES) }, []],
    ["that is a stored copy", { state: "ready", observedSpecRevision: 1 }, ["NATS-SEQUENCE"]],
  ])("PA.09 %s is refused, with a reason that repeats nothing of it", (_, body, headerNames) => {
    const read = readStatusReport(bytes(body), headerNames);
    expect(read).toMatchObject({ ok: false });
    expect(JSON.stringify(read)).not.toMatch(/sss|xxx/);
  });
});

describe("who speaks another protocol", () => {
  const entry = (v: number, state?: string): ShownEndpoint => ({
    endpoint: "com.example.echo",
    instanceId: UID,
    owner: "local",
    registrationRevision: 1,
    clusterDigests: [],
    protocol: { v },
    ...(state === undefined ? {} : { epoch: 1, state }),
  });

  test("W11.03 each that differs is named with its version and what to do; those that agree or have stopped are not", () => {
    expect(protocolFindings([entry(2, "ready"), entry(2), entry(3, "stopped"), entry(1, "stopped")])).toEqual([]);
    const found = protocolFindings([entry(2, "ready"), entry(3, "ready"), entry(1)]);
    expect(found.map(({ check, level }) => [check, level])).toEqual([
      ["protocol", "warning"],
      ["protocol", "warning"],
    ]);
    expect(found[0]?.message).toContain(`instance ${UID} of com.example.echo speaks protocol version 3`);
    expect(found[0]?.next).toContain("those who call it");
    expect(found[1]?.message).toContain("version 1");
    expect(found[1]?.next).toContain("bring it up to date");
  });
});
