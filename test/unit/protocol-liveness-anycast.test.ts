/** Plane liveness as a caller grades it (§6.1), and the shapes of anycast takes (§8.1). */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Plane } from "../../shared/protocol/base/subjects.ts";
import {
  AnycastNotice,
  AnycastStatus,
  HolderName,
  TakeReply,
  TakeRequest,
  anycastKey,
  epochToken,
} from "../../shared/protocol/chat/anycast.ts";
import {
  LivenessAnswer,
  type LivenessGrade,
  type ProbeOutcome,
  gradeLiveness,
} from "../../shared/protocol/chat/liveness.ts";
import { nearMissBytes } from "../support/near-miss.ts";

const reply = (value: unknown): ProbeOutcome => ({
  kind: "reply",
  payload: new TextEncoder().encode(typeof value === "string" ? value : JSON.stringify(value)),
});
const grade = (outcome: ProbeOutcome) => gradeLiveness(Plane.Delivery, outcome);

describe("W61.09 caller grading", () => {
  test.each<[string, ProbeOutcome, LivenessGrade]>([
    ["no responders", { kind: "no-responders" }, { responder: "unbound" }],
    ["a timeout, a refusal, a broken link", { kind: "failed" }, { responder: "unknown" }],
    ["bound", reply({ plane: "delivery", responder: "bound", instance: "i" }), { responder: "bound", instance: "i" }],
    ["bound, from nobody in particular", reply({ plane: "delivery", responder: "bound" }), { responder: "bound" }],
    ["stale", reply({ plane: "delivery", responder: "stale", x: 1 }), { responder: "stale" }],
    ["unbound by its own word", reply({ plane: "delivery", responder: "unbound" }), { responder: "unbound" }],
    ["the other plane", reply({ plane: "manager", responder: "bound" }), { responder: "unknown" }],
    ["a plane that is none", reply({ plane: "auth", responder: "bound" }), { responder: "unknown" }],
    ["an empty instance", reply({ plane: "delivery", responder: "bound", instance: "" }), { responder: "unknown" }],
    ["a state that is none", reply({ plane: "delivery", responder: "fine" }), { responder: "unknown" }],
    ["no JSON", reply("bound"), { responder: "unknown" }],
    ["nothing", reply(""), { responder: "unknown" }],
    ["no UTF-8", { kind: "reply", payload: new Uint8Array([0xff]) }, { responder: "unknown" }],
  ])("%s", (_what, outcome, expected) => {
    expect(grade(outcome)).toEqual(expected);
  });

  test("only the broker says unbound without a readable answer: no other bytes do", () => {
    const good = { plane: "delivery", responder: "unbound", instance: "i" };
    fc.assert(
      fc.property(nearMissBytes([good]), (payload) => {
        const graded = grade({ kind: "reply", payload });
        let readable = false;
        try {
          readable = LivenessAnswer.safeParse(JSON.parse(Buffer.from(payload).toString())).success;
        } catch {
          // Not JSON, so not readable.
        }
        expect(graded.responder !== "unknown" && !readable).toBe(false);
      }),
      { numRuns: 500 },
    );
  });
});

describe("anycast shapes", () => {
  const take = { from: { id: "local.a", name: "Rev One" }, seq: 7, id: "m1", count: 1, epoch: "2026" };

  test("a take as §8.1 writes it", () => {
    expect(TakeRequest.safeParse({ ...take, future: 1 }).success).toBe(true);
  });

  test.each<[string, object]>([
    ["sequence 0", { seq: 0 }],
    ["half a sequence", { seq: 1.5 }],
    ["a sequence past what JSON holds", { seq: 2 ** 53 }],
    ["a count as text", { count: "1" }],
    ["no id", { id: undefined }],
    ["a numeric epoch", { epoch: 2026 }],
    ["a name with a slash", { from: { id: "a", name: "a/b" } }],
    ["no from", { from: null }],
  ])("a take with %s is refused", (_what, change) => {
    expect(TakeRequest.safeParse({ ...take, ...change }).success).toBe(false);
  });

  test("a holder's name is one line, without slashes or outer space", () => {
    expect(["Rev One", "名前", "n".repeat(128)].filter((name) => !HolderName.safeParse(name).success)).toEqual([]);
    const bad = ["", " a", "a ", "a/b", "a\\b", "a\nb", "\u2028", "\ud800", "n".repeat(129)];
    expect(bad.filter((name) => HolderName.safeParse(name).success)).toEqual([]);
  });

  test.each([
    [{ ok: true }, true],
    [{ ok: false, code: "taken", error: "by another" }, true],
    [{ ok: false, code: "other", error: "x" }, false],
    [{ ok: false }, false],
    [{}, false],
    [null, false],
  ])("the answer %j is lawful: %s", (answer, lawful) => {
    expect(TakeReply.safeParse(answer).success).toBe(lawful);
  });

  test.each([
    { state: "waiting", seq: 1, role: "r" },
    { state: "taken", seq: 1, role: "r", taker: { id: "local.a", name: "a" }, at: 0 },
    { state: "taken", seq: 1, role: "r", taker: { id: "a", name: "a" }, previous: { id: "b", name: "b" }, at: 0 },
    { state: "cancelled", seq: 1, role: "r", removal: "already-gone" },
    { state: "unknown", seq: 1 },
  ])("the status %j is lawful", (status) => {
    expect(AnycastStatus.safeParse(status).success).toBe(true);
    expect(AnycastStatus.safeParse({ ...status, seq: 0 }).success).toBe(false);
    expect(AnycastStatus.safeParse({ ...status, state: "lost" }).success).toBe(false);
  });

  test("a notice is one data object", () => {
    const cotalAnycastNotice = { seq: 3, role: "r", event: "redelivered", taker: { id: "a", name: "a" } };
    expect(AnycastNotice.safeParse({ cotalAnycastNotice }).success).toBe(true);
    expect(AnycastNotice.safeParse(cotalAnycastNotice).success).toBe(false);
  });

  test("a row's key holds the stream's creation time and the sequence", () => {
    expect(epochToken("2026-11-30T06:01:02.123456789Z")).toBe("20261130T060102123456789Z");
    expect(anycastKey("2026-11-30T06:01:02Z", 42)).toBe("r.20261130T060102Z.42");
  });
});
