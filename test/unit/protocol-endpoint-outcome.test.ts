/** What is known of an effect, at the responder and at the caller (§13.3), and what counts as an answer (§13.2). */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Outcome } from "../../shared/protocol/base/errors.ts";
import { type Asked, readAnswer } from "../../shared/protocol/endpoint/answer.ts";
import { EndpointReply } from "../../shared/protocol/endpoint/envelope.ts";
import { deriveReply } from "../../shared/protocol/endpoint/grammar.ts";
import { type Observed, type Seam, outcomeOf, responderOutcome } from "../../shared/protocol/endpoint/outcome.ts";
import { nearMissBytes, nearMissText } from "../support/near-miss.ts";

const OUTCOMES = ["executed", "not-executed", "unknown"] as const;

describe("W133.08 at the responder", () => {
  test.each<[Seam, Outcome | undefined, boolean, Outcome]>([
    ["before-dispatch", undefined, false, "not-executed"],
    ["before-dispatch", "executed", true, "not-executed"],
    ["in-handler", undefined, false, "unknown"],
    ["in-handler", undefined, true, "unknown"],
    ["in-handler", "not-executed", false, "not-executed"],
    ["in-handler", "not-executed", true, "unknown"],
    ["in-handler", "executed", true, "executed"],
    ["in-handler", "executed", false, "executed"],
    ["in-handler", "unknown", true, "unknown"],
    ["after-handler", undefined, true, "executed"],
    ["after-handler", "not-executed", false, "executed"],
    ["after-handler", "unknown", true, "executed"],
  ])("W133.08 %s, the handler says %s, an effect may have begun: %s: %s", (seam, stated, begun, outcome) => {
    expect(responderOutcome(seam, stated, begun)).toBe(outcome);
  });
});

const reply = (over: object): EndpointReply => EndpointReply.parse({ v: 1, id: "r", ...over });
const refused = (outcome?: Outcome) => reply({ ok: false, error: { code: "conflict", message: "x", outcome } });

describe("W133.09 at the caller", () => {
  test.each<[string, Observed, Outcome]>([
    ["never published", { seen: "unpublished" }, "not-executed"],
    ["a held success", { seen: "reply", reply: reply({ ok: true }) }, "executed"],
    ["a held refusal that says nothing", { seen: "reply", reply: refused() }, "unknown"],
    ["no responders, on the reserved sentinel", { seen: "no-responders", onSentinel: true }, "not-executed"],
    ["the same status on any other subject", { seen: "no-responders", onSentinel: false }, "unknown"],
    ["nothing at all", { seen: "nothing" }, "unknown"],
  ])("W133.09 %s", (_what, observed, outcome) => {
    expect(outcomeOf(observed)).toBe(outcome);
  });

  test.each(OUTCOMES)("W133.09 a held refusal that says %s is adopted", (outcome) => {
    expect(outcomeOf({ seen: "reply", reply: refused(outcome) })).toBe(outcome);
  });
});

const UID = "c".repeat(26);
const INSTANCE = "i".repeat(26);
const NONCE = "0123456789abcdefghij_-";
const asked: Asked = {
  space: "main",
  endpoint: "com.acme",
  id: "r",
  owner: "local",
  actor: "alice",
  uid: UID,
  nonce: NONCE,
};
const bind = { instanceId: INSTANCE, epoch: 3 };
const bound: Asked = { ...asked, bind };
const from = (over: object = {}, of: Asked = asked) => deriveReply(of, { ...bind, ...over });
const bytes = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));
const done = { v: 1, id: "r", ok: true, data: 1 };
const bindRefused = {
  v: 1,
  id: "r",
  ok: false,
  error: {
    code: "failed-precondition",
    message: "x",
    outcome: "not-executed",
    details: [{ kind: "ai.cotal.ep.bind-refused" }],
  },
};

describe("W132.12 W132.14 W133.07 what counts as an answer", () => {
  test("W132.12 who answered is read off the subject, whatever the payload says", () => {
    const claims = { ...done, instanceId: "j".repeat(26), epoch: 99 };
    expect(readAnswer(asked, from(), bytes(claims))).toMatchObject({ ok: true, by: bind, reply: done });
    expect(readAnswer(asked, from(), bytes(claims))).toHaveProperty("by", bind);
  });

  test.each<[string, string]>([
    ["another caller's", from({}, { ...asked, actor: "bob" })],
    ["another lifecycle's", from({}, { ...asked, uid: "d".repeat(26) })],
    ["another call's", from({}, { ...asked, nonce: `${NONCE}x` })],
    ["another endpoint's", from({}, { ...asked, endpoint: "com.acme.x" })],
    ["another space's", from({}, { ...asked, space: "lab" })],
    ["the versioned rail's", from({}, { ...asked, generation: "0".repeat(32) })],
    ["no reply's", "elsewhere"],
  ])("W132.12 a message on %s subject is no answer, and says nothing", (_what, subject) => {
    const answer = readAnswer(asked, subject, bytes(done));
    expect(answer).toMatchObject({ ok: false, error: { code: "internal", outcome: "unknown" } });
  });

  test("W133.07 an answer echoes the id", () => {
    const answer = readAnswer(asked, from(), bytes({ ...done, id: "other" }));
    expect(answer).toMatchObject({ ok: false, error: { code: "internal", outcome: "unknown" } });
  });

  test("W133.07 who refuses what he could not read echoes none; an effect always has an id", () => {
    const unread = {
      v: 1,
      id: "",
      ok: false,
      error: { code: "bad-request", message: "too long", outcome: "not-executed" },
    };
    expect(readAnswer(asked, from(), bytes(unread))).toMatchObject({ ok: true, by: bind, reply: unread });
    expect(readAnswer(asked, from(), bytes({ ...done, id: "" }))).toMatchObject({
      ok: false,
      error: { code: "internal" },
    });
  });

  test("W133.09 an empty status on the reply subject proves nothing", () => {
    const answer = readAnswer(asked, from(), new Uint8Array());
    expect(answer).toMatchObject({ ok: false, error: { code: "internal", outcome: "unknown" } });
  });

  test.each([
    { what: "an earlier epoch", by: { epoch: 2 }, code: "expired" },
    { what: "a later epoch", by: { epoch: 4 }, code: "expired" },
    { what: "another instance", by: { instanceId: "j".repeat(26) }, code: "failed-precondition" },
  ])("W132.12 W133.09 $what answers a bound call: rejected, and what it says of the effect is kept", ({ by, code }) => {
    const details = [{ kind: "ai.cotal.ep.unbound-responder", ...bind, ...by }];
    const success = readAnswer(bound, from(by), bytes(done));
    expect(success).toMatchObject({ ok: false, error: { code, outcome: "executed", details } });
    const denial = readAnswer(bound, from(by), bytes({ ...bindRefused, error: { ...bindRefused.error, details: [] } }));
    expect(denial).toMatchObject({ ok: false, error: { code, outcome: "not-executed", details } });
    const silent = readAnswer(
      bound,
      from(by),
      bytes({ ...done, ok: false, data: undefined, error: { code, message: "" } }),
    );
    expect(silent).toMatchObject({ ok: false, error: { code, outcome: "unknown" } });
  });

  test("W132.13 another incarnation that refuses the bind is believed", () => {
    const answer = readAnswer(bound, from({ epoch: 4 }), bytes(bindRefused));
    expect(answer).toEqual({ ok: true, by: { ...bind, epoch: 4 }, reply: bindRefused });
  });

  test("W132.14 the bound incarnation that refuses its own bind is not", () => {
    const answer = readAnswer(bound, from(), bytes(bindRefused));
    expect(answer).toMatchObject({ ok: false, error: { code: "internal", outcome: "unknown" } });
    expect(readAnswer(bound, from(), bytes(done)).ok).toBe(true);
  });

  test("W132.12 W133.07 near misses never throw, and what passes is this call's", () => {
    fc.assert(
      fc.property(nearMissText([from()]), nearMissBytes([done, bindRefused]), (subject, payload) => {
        const answer = readAnswer(bound, from(), payload);
        expect(answer.ok ? answer.reply.id : "r").toBe("r");
        const elsewhere = readAnswer(bound, subject, bytes(done));
        expect(elsewhere.ok ? subject : from()).toBe(from());
      }),
      { numRuns: 1000 },
    );
  });
});
