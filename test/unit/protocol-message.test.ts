/** `CotalMessage`: the vectors of §12, every reason to refuse a delivery, and the publisher's own check. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv } from "ajv";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseSubject } from "../../shared/protocol/base/subjects.ts";
import {
  CotalMessage,
  type ReadResult,
  RejectReason,
  checkMessage,
  readDelivery,
} from "../../shared/protocol/chat/message.ts";
import { nearMiss } from "../support/near-miss.ts";
import { refusal } from "../support/refusal.ts";

type Named = { readonly name: string; readonly message: unknown };
type Sample = Named & { readonly subject: string; readonly kind: string; readonly message: CotalMessage };
type Vectors = { readonly samples: Sample[]; readonly valid: Named[]; readonly invalid: Named[] };

const read = (...path: string[]): unknown =>
  JSON.parse(readFileSync(join(import.meta.dirname, "..", "..", ...path), "utf8"));
const { samples, valid, invalid } = read("test", "vectors", "messages.json") as Vectors;
const SUBJECT = "cotal.main.chat.local.a.general";
const base: CotalMessage = {
  id: "1",
  ts: 0,
  space: "main",
  from: { id: "local.a", name: "a" },
  channel: "general",
  parts: [{ kind: "text", text: "hi" }],
};

const bytes = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));
const receive = (message: unknown, subject = SUBJECT) => readDelivery(subject, bytes(message));
const reasonOf = (result: ReadResult) => (result.ok ? "surfaced" : result.reason);
const accepted = (result: ReadResult) => {
  if (!result.ok) throw new Error(`refused: ${result.reason}, ${result.detail}`);
  return result.delivery;
};

describe("W5.08 the checked-in schema is draft-07 and agrees with the shape", () => {
  const schema = read("docs", "schema", "message.json") as object;
  const validate = new Ajv({ strict: false }).compile(schema);

  test("it says its draft", () => {
    expect(schema).toHaveProperty("$schema", "http://json-schema.org/draft-07/schema#");
  });

  test.each([...samples, ...valid])("W5.01 valid: $name", ({ message }) => {
    expect(validate(message)).toBe(true);
    expect(CotalMessage.safeParse(message).success).toBe(true);
  });

  test.each(invalid)("W5.01 invalid: $name", ({ message }) => {
    expect(validate(message)).toBe(false);
    expect(CotalMessage.safeParse(message).success).toBe(false);
  });

  test("on near misses, schema and shape and reader say the same", () => {
    const corpus = [...samples, ...valid].map(({ message }) => message);
    fc.assert(
      fc.property(nearMiss(corpus), (message) => {
        const wire: unknown = JSON.parse(JSON.stringify(message) ?? "null");
        const shape = CotalMessage.safeParse(wire).success;
        expect({ wire, valid: validate(wire) }).toEqual({ wire, valid: shape });
        // A reader accepts all that is valid; a few messages more, whose bad parts it leaves out.
        const from = (wire as { from?: { id?: unknown } } | null)?.from?.id;
        const subject = typeof from === "string" ? `cotal.main.chat.${from}.general` : SUBJECT;
        const split = parseSubject(subject);
        fc.pre(shape && split !== undefined && /^(local|u_[a-z2-7]{26})\.\w{1,64}$/.test(split.sender));
        fc.pre(split?.sender === from);
        const result = readDelivery(subject, bytes(wire));
        const deepOrWide = !result.ok && result.reason === RejectReason.MalformedJson;
        expect({ wire, ok: result.ok || deepOrWide }).toEqual({ wire, ok: true });
      }),
      { numRuns: 2000 },
    );
  });
});

describe("W12.03 W4.02 the samples of §12", () => {
  test.each(samples)("$name round-trips with kind $kind", ({ subject, kind, message }) => {
    const delivery = accepted(receive(message, subject));
    expect(delivery.kind).toBe(kind);
    expect(delivery.from).toBe(message.from.id);
    expect(delivery.message).toEqual(message);
    expect(JSON.parse(JSON.stringify(delivery.message))).toEqual(message);
    expect(() => checkMessage(message)).not.toThrow();
  });
});

describe("W4.02 the kind comes from the subject", () => {
  test("a DM that names a channel is a DM", () => {
    const delivery = accepted(receive(base, "cotal.main.inst.local.b.local.a"));
    expect([delivery.kind, delivery.target]).toEqual(["dm", "local.b"]);
  });

  test("an anycast that names a recipient is an anycast", () => {
    const { channel: _, ...rest } = base;
    const delivery = accepted(receive({ ...rest, to: "local.zoe" }, "cotal.main.svc.reviewer.local.a"));
    expect([delivery.kind, delivery.target]).toEqual(["anycast", "reviewer"]);
  });
});

describe("W4.11 W5.09 every reason to refuse", () => {
  const text = (content: string) => readDelivery(SUBJECT, new TextEncoder().encode(content));

  test.each<[string, ReadResult, RejectReason]>([
    ["a subject that does not parse", receive(base, "cotal.main.chat.local.a"), "malformed-subject"],
    ["a retired subject", receive(base, "cotal.main.ctl.manager.local.a"), "malformed-subject"],
    [
      "W3.04 an nkey in the owner slot",
      receive(base, `cotal.main.chat.U${"A".repeat(55)}.a.general`),
      "malformed-subject",
    ],
    ["a literal wildcard as the channel", receive(base, "cotal.main.chat.local.a.team.*"), "malformed-subject"],
    ["no bytes", readDelivery(SUBJECT, new Uint8Array()), "malformed-json"],
    ["half a message", text('{"id":"1",'), "malformed-json"],
    ["text", text("hello"), "malformed-json"],
    ["bytes that are no UTF-8", readDelivery(SUBJECT, new Uint8Array([0x22, 0xff, 0x22])), "malformed-json"],
    ["nesting without end", text("[".repeat(100_000)), "malformed-json"],
    ["nesting past the bound", text(`${"[".repeat(300)}${"]".repeat(300)}`), "malformed-json"],
    ["a number past the range", text(JSON.stringify(base).replace('"ts":0', '"ts":1e999')), "malformed-json"],
    ["W5.05 no from", receive({ ...base, from: undefined }), "sender-mismatch"],
    ["W5.05 from that is text", receive({ ...base, from: "local.a" }), "sender-mismatch"],
    ["W5.05 from without an id", receive({ ...base, from: { name: "a" } }), "sender-mismatch"],
    ["W5.05 another sender", receive({ ...base, from: { id: "local.b", name: "b" } }), "sender-mismatch"],
    ["W5.05 the sender in the other form", receive({ ...base, from: { id: "local-a", name: "a" } }), "sender-mismatch"],
    ["W5.05 a numeric sender", receive({ ...base, from: { id: 7, name: "a" } }), "sender-mismatch"],
    ["null", text("null"), "malformed-envelope"],
    ["a list", text("[]"), "malformed-envelope"],
    ["a string, as a broker's answer might be", text('"+OK"'), "malformed-envelope"],
    ["W4.10 no id", receive({ ...base, id: undefined }), "malformed-envelope"],
    ["W4.10 a numeric id", receive({ ...base, id: 7 }), "malformed-envelope"],
    ["W4.10 an id that is null", receive({ ...base, id: null }), "malformed-envelope"],
    ["W4.01 no routing field", receive({ ...base, channel: undefined }), "malformed-envelope"],
    ["W4.01 two routing fields", receive({ ...base, to: "local.b" }), "malformed-envelope"],
    ["W4.01 three routing fields", receive({ ...base, to: "x", toService: "y" }), "malformed-envelope"],
    ["a routing field that is no text", receive({ ...base, channel: 5 }), "malformed-envelope"],
    ["no ts", receive({ ...base, ts: undefined }), "malformed-envelope"],
    ["a ts that is text", receive({ ...base, ts: "0" }), "malformed-envelope"],
    ["no space", receive({ ...base, space: undefined }), "malformed-envelope"],
    ["no name", receive({ ...base, from: { id: "local.a" } }), "malformed-envelope"],
    [
      "a role that is no text",
      receive({ ...base, from: { id: "local.a", name: "a", role: {} } }),
      "malformed-envelope",
    ],
    ["no parts", receive({ ...base, parts: undefined }), "malformed-envelope"],
    ["parts that are no list", receive({ ...base, parts: {} }), "malformed-envelope"],
    ["a part that is null", receive({ ...base, parts: [null] }), "malformed-envelope"],
    ["a part without a kind", receive({ ...base, parts: [{ text: "x" }] }), "malformed-envelope"],
    ["mentions that are no list", receive({ ...base, mentions: "bob" }), "malformed-envelope"],
    ["replyTo that is null", receive({ ...base, replyTo: null }), "malformed-envelope"],
    ["contextId that is a number", receive({ ...base, contextId: 1 }), "malformed-envelope"],
    ["W5.10 a stored copy", readDelivery(SUBJECT, bytes(base), ["Nats-Sequence"]), "stored-copy"],
  ])("%s", (_what, result, reason) => {
    expect(reasonOf(result)).toBe(reason);
  });

  test("the tokens are §5's three and our two", () => {
    expect(Object.values(RejectReason)).toEqual([
      "malformed-subject",
      "sender-mismatch",
      "malformed-json",
      "malformed-envelope",
      "stored-copy",
    ]);
  });

  test("no detail repeats what was received", () => {
    const secret = "hunter2hunter2";
    const poison = [
      receive({ ...base, id: { secret } }),
      receive({ ...base, from: { id: secret, name: secret } }),
      receive({ ...base, parts: [secret] }),
      text(secret),
      receive(base, `cotal.main.chat.${secret}`),
    ];
    for (const result of poison) {
      expect(result.ok).toBe(false);
      expect(JSON.stringify(result)).not.toContain(secret);
    }
  });

  test("the broker's own answers, aimed at a live subject, are refused", () => {
    const answers = [
      '{"stream":"CHAT_main","seq":1}',
      '{"type":"io.nats.jetstream.api.v1.stream_purge_response","success":true}',
      "",
      "+ACK",
    ];
    expect(answers.map((answer) => readDelivery(SUBJECT, new TextEncoder().encode(answer)).ok)).toEqual([
      false,
      false,
      false,
      false,
    ]);
  });
});

describe("W5.06 W11.01 what a reader ignores", () => {
  test("unknown fields at every level", () => {
    const message = {
      ...base,
      future: { v: 9 },
      constructor: 1,
      from: { ...base.from, avatar: "x" },
      parts: [{ kind: "text", text: "hi", lang: "en" }],
    };
    expect(accepted(receive(message)).message.parts).toEqual([{ kind: "text", text: "hi", lang: "en" }]);
  });

  test("W5.02 unknown bare kinds and core kinds without their shape are left out; extensions are handed on", () => {
    const parts = [
      { kind: "snapshot" },
      { kind: "text", text: "hi" },
      { kind: "com.acme.x", n: 1 },
      { kind: "text" },
      { kind: "artifact", name: "n" },
    ];
    expect(accepted(receive({ ...base, parts })).message.parts).toEqual([
      { kind: "text", text: "hi" },
      { kind: "com.acme.x", n: 1 },
    ]);
  });

  test("a mention that is no text is left out", () => {
    expect(accepted(receive({ ...base, mentions: ["bob", 5, null] })).message.mentions).toEqual(["bob"]);
  });

  test("W4.10 an empty id is a lawful envelope: whoever deduplicates leaves it alone", () => {
    expect(accepted(receive({ ...base, id: "" })).message.id).toBe("");
  });

  test("a field `__proto__` changes no prototype", () => {
    const raw = JSON.stringify(base).replace("{", '{"__proto__":{"to":"x"},');
    const { message } = accepted(readDelivery(SUBJECT, new TextEncoder().encode(raw)));
    expect(message.to).toBeUndefined();
    expect(Object.getPrototypeOf(message)).toBe(Object.prototype);
  });
});

describe("W4.01 W5.01 what a publisher refuses to send", () => {
  test.each<[string, object]>([
    ["no routing field", { channel: undefined }],
    ["two routing fields", { to: "local.b" }],
    ["three routing fields", { to: "local.b", toService: "r" }],
    ["an empty id", { id: "" }],
    ["no id", { id: undefined }],
    ["a numeric id", { id: 7 }],
    ["no ts", { ts: undefined }],
    ["ts as NaN", { ts: Number.NaN }],
    ["no from", { from: undefined }],
    ["from without a name", { from: { id: "local.a" } }],
    ["a mention that is no text", { mentions: ["bob", 5] }],
    ["parts that are no list", { parts: "hi" }],
    ["a bare kind", { parts: [{ kind: "snapshot" }] }],
    ["a value JSON can't hold", { parts: [{ kind: "data", data: [Number.NaN] }] }],
  ])("%s", (_what, change) => {
    const { code, outcome } = refusal(() => checkMessage({ ...base, ...change } as CotalMessage));
    expect([code, outcome]).toEqual(["bad-request", "not-executed"]);
  });

  test("what passes validates against the shape and is accepted on receipt", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), fc.string(), fc.array(fc.string()), (data, id, mentions) => {
        fc.pre(id !== "");
        const message: CotalMessage = { ...base, id, mentions, parts: [{ kind: "data", data: data as never }] };
        checkMessage(message);
        expect(CotalMessage.safeParse(JSON.parse(JSON.stringify(message))).success).toBe(true);
        expect(receive(message).ok).toBe(true);
      }),
    );
  });
});
