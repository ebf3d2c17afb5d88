/** Requests, replies and events (§13.3): bytes to a shape or to a named refusal. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CotalError, ErrorCode, Outcome, isErrorCode } from "../../shared/protocol/base/errors.ts";
import { DetailKind, isExtensionCode } from "../../shared/protocol/endpoint/error-codes.ts";
import {
  EndpointEvent,
  EndpointReply,
  EndpointRequest,
  authDigest,
  errorReply,
  replyError,
} from "../../shared/protocol/endpoint/envelope.ts";
import { readEvent, readReply, readRequest } from "../../shared/protocol/endpoint/read-envelope.ts";
import { nearMiss, nearMissBytes } from "../support/near-miss.ts";

const OWNER = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa";
const UID = "c".repeat(26);
const DIGEST = `sha256:${"0a".repeat(32)}`;

const request = {
  v: 1,
  id: "r-1",
  op: { endpoint: "com.acme", command: "run", inputDigest: DIGEST, outputDigest: DIGEST },
  class: "ephemeral",
  replyExpected: true,
  target: { owner: OWNER, actor: "bob", lifecycleUid: UID, mappingRevision: 4 },
  bind: { instanceId: UID, epoch: 3 },
  args: { deep: [{ er: null }] },
  from: { id: `${OWNER}.alice`, name: "alice", role: "planner" },
  deadlineMs: 5000,
  correlation: { traceparent: "00-x", tracestate: "a=b", baggage: "c=d" },
  auth: "slot",
};

const bytes = (value: unknown): Uint8Array =>
  new TextEncoder().encode(typeof value === "string" ? value : JSON.stringify(value));

/** The request with one field changed; `undefined` leaves it out. */
const read = (over: object) => readRequest(bytes({ ...request, ...over }));
const code = (over: object): string => {
  const reading = read(over);
  return reading.ok ? "ok" : `${reading.error.code} ${reading.error.outcome}`;
};

describe("W133.01 a request", () => {
  test("W133.01 reads as it was sent", () => {
    expect(readRequest(bytes(request))).toEqual({ ok: true, request });
  });

  test.each<[string, object]>([
    ["only what must be there", { op: { endpoint: "a", command: "run" }, target: undefined, bind: undefined }],
    ["no args, no correlation, no auth, no deadline", { args: undefined, correlation: undefined, auth: undefined }],
    ["args that are null", { args: null }],
    ["a goal", { goalId: "g-1" }],
    ["a journal", { class: "journal" }],
    ["a cast", { replyExpected: false, deadlineMs: undefined }],
    ["a target without mapping revision", { target: { owner: "local", actor: "b", lifecycleUid: UID } }],
    ["an unknown field", { later: 1, bind: { ...request.bind, later: 1 } }],
    ["an empty auth slot", { auth: "" }],
    ["the largest whole numbers", { deadlineMs: Number.MAX_SAFE_INTEGER }],
  ])("W133.01 with %s", (_what, over) => {
    expect(code(over)).toBe("ok");
  });

  test.each<[string, object]>([
    ["no version", { v: undefined }],
    ["version 0", { v: 0 }],
    ["version 2", { v: 2 }],
    ["version 1 as text", { v: "1" }],
    ["a version that is null", { v: null }],
    ["another version and no id", { v: 2, id: undefined }],
  ])("W133.01 %s is unsupported-version", (_what, over) => {
    expect(code(over)).toBe("unsupported-version not-executed");
  });

  test.each<[string, object]>([
    ["no id", { id: undefined }],
    ["an empty id", { id: "" }],
    ["an id of 65 characters", { id: "a".repeat(65) }],
    ["an id with a dot", { id: "a.b" }],
    ["a numeric id", { id: 7 }],
    ["no op", { op: undefined }],
    ["no endpoint", { op: { command: "run" } }],
    ["no command", { op: { endpoint: "a" } }],
    ["a command in capitals", { op: { endpoint: "a", command: "Run" } }],
    ["a digest of another kind", { op: { ...request.op, inputDigest: "md5:0" } }],
    ["a digest in capitals", { op: { ...request.op, outputDigest: DIGEST.toUpperCase() } }],
    ["no class", { class: undefined }],
    ["the class of a state", { class: "record" }],
    ["no word about a reply", { replyExpected: undefined }],
    ["a reply expected as text", { replyExpected: "true" }],
    ["a goal that is no id", { goalId: "a.b" }],
    ["a bind without epoch", { bind: { instanceId: UID } }],
    ["a bind to no instance", { bind: { instanceId: "x", epoch: 1 } }],
    ["a bind to half an epoch", { bind: { instanceId: UID, epoch: 1.5 } }],
    ["a bind to an epoch below 0", { bind: { instanceId: UID, epoch: -1 } }],
    ["no from", { from: undefined }],
    ["a from without name", { from: { id: "x" } }],
    ["a deadline of 0", { deadlineMs: 0 }],
    ["half a deadline", { deadlineMs: 1.5 }],
    ["a deadline past 2^53-1", { deadlineMs: 2 ** 53 }],
    ["a deadline as text", { deadlineMs: "5000" }],
    ["correlation as text", { correlation: "00-x" }],
    ["a traceparent past its bound", { correlation: { traceparent: "0".repeat(129) } }],
    ["a tracestate past its bound", { correlation: { tracestate: "0".repeat(513) } }],
    ["baggage past its bound", { correlation: { baggage: "0".repeat(8193) } }],
    ["an auth slot that is no text", { auth: {} }],
    ["an auth slot with a lone surrogate", { auth: "\ud800" }],
  ])("W133.01 %s is bad-request, and nothing ran", (_what, over) => {
    expect(code(over)).toBe("bad-request not-executed");
  });

  test.each(["", "{", "[]", "null", '"x"', "7", "\u0000", `${"[".repeat(50_000)}`, '{"v":1,"n":1e999}'])(
    "W133.01 the bytes %j are bad-request",
    (text) => {
      const reading = readRequest(bytes(text));
      expect(reading).toMatchObject({ ok: false, id: "", replyExpected: true, error: { code: "bad-request" } });
    },
  );

  test("W133.01 bytes that are no UTF-8, and a request that nests too deep", () => {
    const cut = bytes({ ...request, auth: "é" }).filter((byte) => byte !== 0xa9);
    expect(readRequest(cut)).toMatchObject({ ok: false, error: { code: "bad-request" } });
    const deep = JSON.parse(`${"[".repeat(200)}${"]".repeat(200)}`) as unknown;
    expect(code({ args: deep })).toBe("bad-request not-executed");
  });

  test("W133.04 a target stays as it was sent until the subject is asked", () => {
    expect(read({ target: { kind: "self" } })).toMatchObject({ ok: true, request: { target: { kind: "self" } } });
    expect(read({ target: null })).toMatchObject({ ok: true, request: { target: null } });
  });

  test("W133.07 a refusal knows the id to echo and whether anybody waits, as far as they can be read", () => {
    expect(read({ v: 2, replyExpected: false })).toMatchObject({ ok: false, id: "r-1", replyExpected: false });
    expect(read({ class: 1 })).toMatchObject({ ok: false, id: "r-1", replyExpected: true });
    expect(read({ class: 1, id: "*", replyExpected: "no" })).toMatchObject({ ok: false, id: "", replyExpected: true });
  });
});

describe("W133.06 the auth slot and correlation", () => {
  test("W133.06 the digest is over the bytes as carried", () => {
    // printf slot | sha256sum
    expect(authDigest("slot")).toBe("sha256:6558838331b742a6f1d5935b32b4612aecdbcc7254868c7eeece68fbd0149ea3");
    expect(authDigest("")).toBe("sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect(authDigest("\u00e9")).not.toBe(authDigest("e\u0301"));
    expect(new Set(["a", " a", "a ", "a\n", "A", '{"a":1}', '{ "a": 1 }'].map((slot) => authDigest(slot))).size).toBe(
      7,
    );
    expect(authDigest(undefined)).toBeUndefined();
  });

  test("W133.06 slot and correlation come through as they were, unknown members too", () => {
    const correlation = { traceparent: "not even one", later: "x" };
    expect(read({ auth: " eyJ.x.y\n", correlation })).toMatchObject({
      ok: true,
      request: { auth: " eyJ.x.y\n", correlation },
    });
  });
});

describe("W133.07 a reply", () => {
  const done = { v: 1, id: "r-1", ok: true, data: { x: 1 }, receipt: "signed" };
  const refusedReply = {
    v: 1,
    id: "r-1",
    ok: false,
    error: { code: "conflict", message: "x", outcome: "executed", details: [{ kind: "com.acme.why", at: 1 }] },
  };

  test.each<[string, object]>([
    ["with data", done],
    ["with data that is null", { ...done, data: null }],
    ["without data", { v: 1, id: "r-1", ok: true }],
    ["that refuses", refusedReply],
    ["that refuses and says little", { v: 1, id: "", ok: false, error: { code: "internal", message: "" } }],
    ["with a receipt for a refusal", { ...refusedReply, receipt: "signed" }],
    ["with a code of an extension", { ...refusedReply, error: { code: "com.acme.no-funds", message: "x" } }],
  ])("W133.07 %s", (_what, reply) => {
    expect(readReply(bytes(reply))).toEqual({ ok: true, reply });
  });

  const error = refusedReply.error;
  test.each<[string, object]>([
    ["data beside a refusal", { ...refusedReply, data: 1 }],
    ["an error beside a success", { ...done, error }],
    ["an error that is null beside a success", { ...done, error: null }],
    ["a refusal without error", { ...refusedReply, error: undefined }],
    ["no id", { ...done, id: undefined }],
    ["no word about success", { ...done, ok: undefined }],
    ["success as text", { ...done, ok: "true" }],
    ["a receipt that is no text", { ...done, receipt: {} }],
    ["an outcome that is none", { ...refusedReply, error: { ...error, outcome: "maybe" } }],
    ["a detail whose kind is not reverse-DNS", { ...refusedReply, error: { ...error, details: [{ kind: "why" }] } }],
    ["a code of two tokens", { ...refusedReply, error: { ...error, code: "not found" } }],
    ["a code of 65 bytes", { ...refusedReply, error: { ...error, code: `com.${"a".repeat(61)}` } }],
    ["no code", { ...refusedReply, error: { message: "x" } }],
  ])("W133.07 %s is no reply, and the effect unknown", (_what, reply) => {
    expect(readReply(bytes(reply))).toMatchObject({ ok: false, error: { code: "internal", outcome: "unknown" } });
  });

  test("W133.07 a reply of another version is named so; bytes that are none are internal", () => {
    const foreign = readReply(bytes({ ...done, v: 2 }));
    expect(foreign).toMatchObject({ ok: false, error: { code: "unsupported-version", outcome: "unknown" } });
    expect(readReply(new Uint8Array())).toMatchObject({ ok: false, error: { code: "internal", outcome: "unknown" } });
  });
});

describe("W133.10 the catalogue", () => {
  const CATALOGUE = (
    "bad-request unsupported-version op-mismatch class-mismatch target-mismatch sender-mismatch unauthenticated " +
    "permission-denied not-found already-exists conflict contract-mismatch contract-invalid failed-precondition " +
    "deadline-exceeded cancelled expired unavailable unimplemented resource-exhausted internal"
  ).split(" ");

  test("W133.10 has the 21 codes of §13.3 and no other", () => {
    expect(Object.values(ErrorCode)).toEqual(CATALOGUE);
  });

  test.each(CATALOGUE)("W133.10 %s goes over the wire and comes back with its outcome", (name) => {
    if (!isErrorCode(name)) throw new Error(`${name} is no code`);
    for (const outcome of Object.values(Outcome)) {
      const reading = readReply(bytes(errorReply("r", new CotalError(name, "why", { outcome, next: "do" }))));
      if (!reading.ok || reading.reply.ok) throw new Error("an error reply did not read as one");
      expect(reading.reply.error).toEqual({ code: name, message: "why", outcome, next: "do" });
      const back = replyError(reading.reply);
      expect([back.code, back.outcome, back.extension]).toEqual([name, outcome, undefined]);
    }
  });

  test("W133.10 an extension's code is reverse-DNS and of at most 64 bytes", () => {
    const longest = `com.${"a".repeat(60)}`;
    expect(["com.acme.no-funds", "ai.cotal.x", longest].filter((name) => !isExtensionCode(name))).toEqual([]);
    const wrong = [
      ...CATALOGUE,
      "teapot",
      "",
      `${longest}a`,
      "com.acme.é",
      "com acme",
      "com.acme.",
      ".acme",
      "com_a.b",
    ];
    expect(wrong.filter((name) => isExtensionCode(name))).toEqual([]);
    expect([...CATALOGUE, longest].filter((name) => Buffer.byteLength(name) > 64)).toEqual([]);
  });

  test("W133.10 an extension's code comes through beside the nearest of the catalogue", () => {
    const error = new CotalError(ErrorCode.FailedPrecondition, "no funds", { extension: "com.acme.no-funds" });
    const reply = errorReply("r", error);
    expect(reply.error.code).toBe("com.acme.no-funds");
    expect(replyError(reply)).toMatchObject({ code: "internal", extension: "com.acme.no-funds" });
    const unlawful = new CotalError(ErrorCode.FailedPrecondition, "x", { extension: "no funds" });
    expect(errorReply("r", unlawful).error.code).toBe("failed-precondition");
  });

  test("W133.10 the kinds of detail of this contract; a kind that is none is left out of the reply", () => {
    expect(Object.values(DetailKind)).toEqual([
      "ai.cotal.ep.bind-refused",
      "ai.cotal.ep.target-unmapped",
      "ai.cotal.ep.unbound-responder",
    ]);
    const details = [{ kind: DetailKind.TargetUnmapped }, { kind: "why" }];
    const reply = errorReply("r", new CotalError(ErrorCode.Expired, "x", { details }));
    expect(reply.error.details).toEqual([{ kind: "ai.cotal.ep.target-unmapped" }]);
    expect(readReply(bytes(reply)).ok).toBe(true);
  });
});

describe("W133.14 an event", () => {
  const subject = `cotal.main.epe.com_acme.${UID}.3.ev.build.done`;
  const event = { v: 1, topic: "ev.build.done", ts: 1_700_000_000_000, data: { n: 1 }, correlation: { baggage: "x" } };

  test("W133.14 comes with who published it, read off the subject", () => {
    expect(readEvent(subject, bytes(event))).toEqual({
      ok: true,
      subject: { space: "main", plane: "epe", endpoint: "com.acme", instanceId: UID, epoch: 3, topic: event.topic },
      event,
    });
    expect(readEvent(subject, bytes({ ...event, data: null, correlation: undefined, later: 1 })).ok).toBe(true);
  });

  test.each<[string, string, unknown]>([
    ["on a fact's subject", `cotal.main.epf.com_acme.ev.build.done`, event],
    ["on no subject of ours", "elsewhere", event],
    ["of another topic than its subject's", subject, { ...event, topic: "ev.build.failed" }],
    ["without topic", subject, { ...event, topic: undefined }],
    ["without time", subject, { ...event, ts: undefined }],
    ["of half a millisecond", subject, { ...event, ts: 1.5 }],
    ["without data", subject, { ...event, data: undefined }],
    ["whose correlation is text", subject, { ...event, correlation: "x" }],
    ["that is a list", subject, [event]],
    ["that is no JSON", subject, "{"],
  ])("W133.14 one %s is refused", (_what, on, value) => {
    expect(readEvent(on, bytes(value))).toMatchObject({ ok: false, error: { code: "bad-request" } });
  });

  test("W133.14 one of another version is unsupported-version", () => {
    const reading = readEvent(subject, bytes({ ...event, v: 2 }));
    expect(reading).toMatchObject({ ok: false, error: { code: "unsupported-version" } });
  });
});

describe("W133.01 W133.07 bytes never do more than be refused", () => {
  const reply = { v: 1, id: "r", ok: false, error: { code: "conflict", message: "x", details: [{ kind: "a.b" }] } };
  const event = { v: 1, topic: "ev.a.b", ts: 1, data: {} };

  test("W133.01 W133.07 W133.14 requests, replies and events", () => {
    fc.assert(
      fc.property(nearMissBytes([request, reply, { v: 1, id: "r", ok: true, data: [1] }, event]), (payload) => {
        const asked = readRequest(payload);
        const { id } = asked.ok ? asked.request : asked;
        expect(id).toMatch(/^[\w-]{0,64}$/);
        const fault = asked.ok ? Outcome.NotExecuted : asked.error.outcome;
        expect(fault).toBe("not-executed");
        const answered = readReply(payload);
        expect(answered.ok ? "unknown" : answered.error.outcome).toBe("unknown");
        expect(typeof readEvent(`cotal.main.epe.a.${UID}.1.ev.a.b`, payload).ok).toBe("boolean");
      }),
      { numRuns: 2000 },
    );
  });

  const schemaOf = (file: string): object =>
    JSON.parse(readFileSync(join(import.meta.dirname, "../../docs/schema", file), "utf8")) as object;

  test.each([
    { file: "endpoint-request.json", shape: EndpointRequest },
    { file: "endpoint-reply.json", shape: EndpointReply },
    { file: "endpoint-event.json", shape: EndpointEvent },
  ])("W133.01 W133.07 W133.14 docs/schema/$file says what the shape says", ({ file, shape }) => {
    const validate = new Ajv2020({ strict: false }).compile(schemaOf(file));
    fc.assert(
      fc.property(nearMiss([request, reply, event]), (value) => {
        // Over the wire, so no lone surrogate counts as one unit here and as another there.
        const sent: unknown = JSON.parse(JSON.stringify(value));
        fc.pre(!JSON.stringify(sent).includes("\\ud800"));
        expect(validate(sent)).toBe(shape.safeParse(sent).success);
      }),
      { numRuns: 1000 },
    );
  });
});
