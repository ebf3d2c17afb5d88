/** The endpoint rails' subjects and envelope (§13.2, §13.3), as far as the first rail has them. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import {
  AuthzMode,
  type Caller,
  RESERVED_COMMANDS,
  endpointName,
  endpointSubjects,
  endpointToken,
  parseReplySubject,
  parseRequestSubject,
} from "../../shared/protocol/endpoint/grammar.ts";
import { EndpointReply, EndpointRequest, errorReply, replyError } from "../../shared/protocol/endpoint/envelope.ts";
import { lifecycleUids, principals, spaces } from "../support/arbitraries.ts";
import { nearMiss, nearMissText } from "../support/near-miss.ts";
import { refusal } from "../support/refusal.ts";

const UID = "abcdefghijklmnopqrstuvwxyz";
const NONCE = "0123456789abcdefghij_-";
const me = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa.alice";
const alice: Caller = { principal: { owner: "u_aaaaaaaaaaaaaaaaaaaaaaaaaa", actor: "alice" }, uid: UID };
const main = endpointSubjects("main");

describe("endpoint names", () => {
  test("a dot becomes an underscore, and back", () => {
    expect(endpointToken("provisioner")).toBe("provisioner");
    expect(endpointToken("acme.build-farm.ci")).toBe("acme_build-farm_ci");
    const label = fc.stringMatching(/^[a-z0-9](?:[a-z0-9-]{0,6}[a-z0-9])?$/);
    fc.assert(
      fc.property(fc.array(label, { minLength: 1, maxLength: 4 }), (labels) => {
        const name = labels.join(".");
        expect(endpointName(endpointToken(name))).toBe(name);
      }),
    );
  });

  test.each(["", ".", "a.", "-a", "A", "a_b", "*", ">", "a b", "é", "a".repeat(65), "a..b"])("%j is none", (name) => {
    expect(refusal(() => endpointToken(name)).code).toBe("bad-request");
  });

  test("seven modes and five commands are reserved (H5, H39)", () => {
    expect(Object.values(AuthzMode).toSorted()).toEqual(["any", "child", "exact", "handle", "ledger", "owner", "self"]);
    expect(RESERVED_COMMANDS).toEqual(["describe", "cancel", "lease", "commit", "resume"]);
  });
});

describe("request and reply subjects", () => {
  test("spelled by hand", () => {
    expect(main.one("provisioner", "history", alice, NONCE)).toBe(
      `cotal.main.ep.one.provisioner.history.${me}.${UID}.${NONCE}`,
    );
    expect(main.inst("provisioner", UID, "history", alice, NONCE)).toBe(
      `cotal.main.ep.inst.provisioner.${UID}.history.${me}.${UID}.${NONCE}`,
    );
    expect(main.oneGrant("*", "describe", alice)).toBe(`cotal.main.ep.one.*.describe.${me}.${UID}.*`);
    expect(main.replyTo(alice, NONCE)).toBe(`cotal.main.ep.reply.*.*.*.${me}.${UID}.${NONCE}`);
    expect(main.replyGrant(alice)).toBe(`cotal.main.ep.reply.*.*.*.${me}.${UID}.*`);
    expect(main.serveOne("provisioner", "history")).toBe("cotal.main.ep.one.provisioner.history.>");
    expect(main.serveInst("provisioner", UID, "history")).toBe(`cotal.main.ep.inst.provisioner.${UID}.history.>`);
    expect(main.serveReply("provisioner", UID, 3)).toBe(`cotal.main.ep.reply.provisioner.${UID}.3.*.*.*.*`);
  });

  test("a request splits into what it was built from, and its reply is derived from it alone", () => {
    const nonces = fc.stringMatching(/^[A-Za-z0-9_-]{22,64}$/);
    fc.assert(
      fc.property(spaces, principals, lifecycleUids, nonces, fc.nat(), (space, principal, uid, nonce, epoch) => {
        const built = endpointSubjects(space);
        const from = { principal, uid };
        const base = { space, endpoint: "acme.ci", command: "run", ...principal, uid, nonce };
        const one = parseRequestSubject(built.one("acme.ci", "run", from, nonce));
        expect(one).toEqual({ ...base, route: "one" });
        const inst = parseRequestSubject(built.inst("acme.ci", UID, "run", from, nonce));
        expect(inst).toEqual({ ...base, route: "inst", instanceId: UID });
        if (one === undefined) throw new Error("unreachable");
        const reply = built.replies("acme.ci", { instanceId: UID, epoch })(one);
        expect(reply).toBe(
          `cotal.${space}.ep.reply.acme_ci.${UID}.${epoch}.${principal.owner}.${principal.actor}.${uid}.${nonce}`,
        );
        const tail = { ...principal, uid, nonce };
        expect(parseReplySubject(reply)).toEqual({ space, endpoint: "acme.ci", instanceId: UID, epoch, ...tail });
        expect(parseRequestSubject(reply)).toBeUndefined();
      }),
    );
  });

  test.each([
    `cotal.main.ep.one.provisioner.history.self.alice.${UID}.${NONCE}`,
    `cotal.main.ep.one.provisioner.history.handle.alice.${UID}.${NONCE}`,
    `cotal.main.ep.one.provisioner.history.acme.alice.${UID}.${NONCE}`,
    `cotal.main.ep.one.provisioner.history.${me}.${UID}`,
    `cotal.main.ep.one.provisioner.history.${me}.${UID}.${NONCE}.x`,
    `cotal.main.ep.one.provisioner.history.${me}.${UID}.short`,
    `cotal.main.ep.one.provisioner.History.${me}.${UID}.${NONCE}`,
    `cotal.main.ep.one.provisioner.history.${me}.${UID.toUpperCase()}.${NONCE}`,
    `cotal.main.ep.inst.provisioner.x.history.${me}.${UID}.${NONCE}`,
    `cotal.main.ep.inst.provisioner.history.${me}.${UID}.${NONCE}`,
    `cotal.main.ep.two.provisioner.history.${me}.${UID}.${NONCE}`,
    `cotal.main.ctl.one.provisioner.history.${me}.${UID}.${NONCE}`,
    `cotal..ep.one.provisioner.history.${me}.${UID}.${NONCE}`,
    `cotal.main.ep.one.provisioner.history.${me}.${UID}.${NONCE}${"x".repeat(2000)}`,
  ])("%s is no request", (subject) => {
    expect(parseRequestSubject(subject)).toBeUndefined();
  });

  test("an endpoint token that is no name is no endpoint", () => {
    const tokens = ["", "A", "a__b", "_a", "-a", "*", ">"];
    const subjects = tokens.map((token) => `cotal.main.ep.one.${token}.history.${me}.${UID}.${NONCE}`);
    expect(subjects.filter((subject) => parseRequestSubject(subject) !== undefined)).toEqual([]);
  });

  test.each([
    `cotal.main.ep.reply.provisioner.${UID}.x.${me}.${UID}.${NONCE}`,
    `cotal.main.ep.reply.provisioner.${UID}.-1.${me}.${UID}.${NONCE}`,
    `cotal.main.ep.reply.provisioner.${UID}.1.${me}.${UID}`,
    `cotal.main.ep.reply.provisioner..1.${me}.${UID}.${NONCE}`,
    `cotal.main.ep.one.provisioner.${UID}.1.${me}.${UID}.${NONCE}`,
    "",
  ])("%s is no reply", (subject) => {
    expect(parseReplySubject(subject)).toBeUndefined();
  });

  test("near misses split into lawful tokens or into nothing", () => {
    const seeds = [main.one("a.b", "history", alice, NONCE), main.inst("a", UID, "x", alice, NONCE)];
    fc.assert(
      fc.property(nearMissText(seeds), (subject) => {
        const split = parseRequestSubject(subject);
        fc.pre(split !== undefined);
        const { owner, actor, uid, nonce, command } = split ?? {
          owner: "",
          actor: "",
          uid: "",
          nonce: "",
          command: "",
        };
        expect(owner).toMatch(/^(local|u_[a-z2-7]{26})$/);
        expect(actor).toMatch(/^\w{1,64}$/);
        expect(uid).toMatch(/^[a-z0-9]{26,32}$/);
        expect(nonce).toMatch(/^[\w-]{22,64}$/);
        expect(command).toMatch(/^[a-z0-9-]{1,32}$/);
      }),
      { numRuns: 500 },
    );
  });

  test.each<[string, () => unknown]>([
    ["a command in capitals", () => main.one("a", "Describe", alice, NONCE)],
    ["a command that is a wildcard", () => main.oneGrant("a", "*", alice)],
    ["a wildcard endpoint to serve", () => main.serveOne("*", "describe")],
    ["a subject past 1024 bytes", () => main.one("a", "x", alice, "n".repeat(1000))],
  ])("%s is refused", (_what, build) => {
    expect(refusal(build).code).toBe("bad-request");
  });
});

describe("the envelope", () => {
  const request = {
    v: 1,
    id: "r1",
    op: { endpoint: "provisioner", command: "history" },
    class: "ephemeral",
    replyExpected: true,
    args: { channel: "general" },
    from: { id: me, name: "alice" },
    deadlineMs: 5000,
    correlation: { traceparent: "00-x" },
  };

  test("a request as §13.3 writes it; unknown fields are ignored (W11.01)", () => {
    expect(EndpointRequest.safeParse(request).success).toBe(true);
    expect(EndpointRequest.safeParse({ ...request, future: 1, op: { ...request.op, x: 1 } }).success).toBe(true);
  });

  test.each<[string, object]>([
    ["another version", { v: 2 }],
    ["a version as text", { v: "1" }],
    ["no id", { id: undefined }],
    ["an empty id", { id: "" }],
    ["an id of 65 characters", { id: "a".repeat(65) }],
    ["no command", { op: { endpoint: "a" } }],
    ["a digest of another kind", { op: { ...request.op, inputDigest: "md5:0" } }],
    ["another class", { class: "stream" }],
    ["no word about a reply", { replyExpected: undefined }],
    ["no from", { from: undefined }],
    ["a deadline of 0", { deadlineMs: 0 }],
    ["half a deadline", { deadlineMs: 1.5 }],
    ["a traceparent without end", { correlation: { traceparent: "0".repeat(129) } }],
  ])("%s is refused", (_what, change) => {
    expect(EndpointRequest.safeParse({ ...request, ...change }).success).toBe(false);
  });

  test("an error goes over the wire and comes back as it was", () => {
    const outcomes = fc.constantFrom("executed" as const, "not-executed" as const, "unknown" as const);
    const codes = fc.constantFrom(...Object.values(ErrorCode));
    fc.assert(
      fc.property(
        codes,
        fc.string(),
        fc.option(fc.string(), { nil: undefined }),
        outcomes,
        (code, message, next, outcome) => {
          const error = new CotalError(code, message, { outcome, ...(next === undefined ? {} : { next }) });
          const wire: unknown = JSON.parse(JSON.stringify(errorReply("r1", error)));
          const reply = EndpointReply.parse(wire);
          if (reply.ok) throw new Error("an error reply parsed as a success");
          const back = replyError(reply);
          expect([back.code, back.message, back.next, back.outcome]).toEqual([code, message, next, outcome]);
        },
      ),
    );
  });

  test("an error without an outcome is unknown, and a foreign code is internal", () => {
    const reply = EndpointReply.parse({ v: 1, id: "r", ok: false, error: { code: "teapot", message: "x" } });
    if (reply.ok) throw new Error("an error reply parsed as a success");
    expect(replyError(reply)).toMatchObject({ code: "internal", outcome: "unknown", message: "x" });
    expect(errorReply("r", new CotalError("conflict", "x"))).toMatchObject({ error: { outcome: "unknown" } });
  });

  test("W11.01: unknown fields of a reply are ignored, at every level", () => {
    const error = { code: "conflict", message: "x", mood: 1, details: [{ kind: "ai.example.more", later: true }] };
    for (const reply of [
      { v: 1, id: "r", ok: true, data: 1, later: { and: "more" } },
      { v: 1, id: "r", ok: false, error, later: 2 },
    ]) {
      expect(EndpointReply.safeParse(reply).success).toBe(true);
    }
  });

  test.each([
    {},
    null,
    [],
    "ok",
    { v: 1, id: "r" },
    { v: 1, id: "r", ok: "true" },
    { v: 2, id: "r", ok: true },
    { v: 1, id: "r", ok: false },
  ])("%j is no reply", (value) => {
    expect(EndpointReply.safeParse(value).success).toBe(false);
  });

  test("near misses parse or are refused, and what parses has its fields", () => {
    fc.assert(
      fc.property(nearMiss([request]), (value) => {
        const parsed = EndpointRequest.safeParse(value);
        const { id, op, from } = parsed.success ? parsed.data : request;
        expect([typeof id, typeof op.command, typeof from.id, typeof from.name]).toEqual(Array(4).fill("string"));
      }),
      { numRuns: 1000 },
    );
  });
});
