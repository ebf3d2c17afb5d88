/** What a session refuses to send, and what the messages it builds look like. */
import { randomBytes } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createComposer, namesIn } from "../../shared/client/compose.ts";
import { type LocalCredentials, resolveIdentity } from "../../shared/client/identity.ts";
import { ErrorCode } from "../../shared/protocol/base/errors.ts";
import { principal } from "../../shared/protocol/base/principals.ts";
import { type CotalMessage, CotalMessage as Schema } from "../../shared/protocol/chat/message.ts";
import type { Part } from "../../shared/protocol/chat/parts.ts";
import { refusal } from "../support/refusal.ts";

const open: LocalCredentials = { kind: "open", actor: "alice" };
const me = resolveIdentity({ credentials: open, name: "Alice", role: "planner" }, randomBytes);
const compose = createComposer(me, randomBytes, () => 1_700_000_000_000);
const read = (payload: string): CotalMessage => JSON.parse(payload) as CotalMessage;
const loose = (parts: unknown): Part[] => parts as Part[];

describe("messages", () => {
  test("W4.01: each kind has exactly one routing field, and the published schema accepts it", () => {
    const bob = principal("local", "bob");
    const built = [compose.chat("general", "hi"), compose.dm(bob, "hi"), compose.ask("reviewer", "hi")];
    const fields = built.map(({ payload }) => {
      const message = read(payload);
      expect(Schema.safeParse(message).success).toBe(true);
      return (["channel", "to", "toService"] as const).filter((field) => message[field] !== undefined);
    });
    expect(fields).toEqual([["channel"], ["to"], ["toService"]]);
  });

  test("the sender, its role and the space are the session's, and no id comes twice", () => {
    const message = read(compose.chat("general", "hi").payload);
    expect(message).toMatchObject({
      space: "main",
      ts: 1_700_000_000_000,
      from: { id: "local.alice", name: "Alice", role: "planner" },
    });
    const ids = new Set(Array.from({ length: 2000 }, () => compose.chat("general", "hi").id));
    expect(ids.size).toBe(2000);
    expect([...ids].every((id) => /^[a-z2-7]{26}$/.test(id))).toBe(true);
  });

  test("a typed # is dropped and a segment sanitised; the subject is the message's channel", () => {
    const out = compose.chat("#team.back end", "hi");
    expect(out.subject).toBe("cotal.main.chat.local.alice.team.back_end");
    expect(read(out.payload).channel).toBe("team.back_end");
  });
});

describe("refusals before anything is published", () => {
  test("W3.06: a role is refused in every other spelling, held or asked", () => {
    for (const role of ["re view", "*", "a.b", ">", "", "é", "r".repeat(65)]) {
      expect(refusal(() => compose.ask(role, "hi")).code).toBe(ErrorCode.BadRequest);
      expect(refusal(() => resolveIdentity({ credentials: open, role }, randomBytes)).code).toBe(ErrorCode.BadRequest);
    }
  });

  test("W3.08: nothing is sent under a reserved prefix", () => {
    for (const channel of ["$JS.API.STREAM.DELETE.CHAT_main", "$KV.b.k", "$SYS.REQ", "$O.b.C.x", "_INBOX.x.y"]) {
      const error = refusal(() => compose.chat(channel, "hi"));
      expect(error).toMatchObject({ code: ErrorCode.BadRequest, outcome: "not-executed" });
    }
  });

  test("a wildcard, an empty segment and 4097 characters are no channel; 4096 are one", () => {
    for (const channel of ["team.*", ">", "team.>", "", "a..b", "c".repeat(4097)]) {
      expect(refusal(() => compose.chat(channel, "hi")).code).toBe(ErrorCode.BadRequest);
    }
    expect(read(compose.chat("c".repeat(4096), "hi").payload).channel).toHaveLength(4096);
  });

  test("W5.03: a value that JSON can't hold is refused with its path", () => {
    const send = (data: unknown) => refusal(() => compose.chat("general", loose([{ kind: "data", data }])));
    expect(send({ a: [1, Number.NaN] }).message).toContain("data.a[1]");
    expect(send({ a: { b: undefined } }).message).toContain("data.a.b");
    expect(send([new Date(0)]).message).toContain("data[0]");
    expect(send({ m: new Map() }).message).toContain("data.m");
    expect(send(undefined).message).toContain("data");
  });

  test("W5.02 W11.04: a bare kind that is not the core's is not sent, a reverse-DNS one is", () => {
    expect(refusal(() => compose.chat("general", loose([{ kind: "snapshot" }]))).code).toBe(ErrorCode.BadRequest);
    const out = compose.chat("general", [{ kind: "com.acme.snapshot", rows: 3 }]);
    expect(read(out.payload).parts).toEqual([{ kind: "com.acme.snapshot", rows: 3 }]);
  });

  test("parts that are no list, and options that are no text, are refused", () => {
    expect(refusal(() => compose.chat("general", loose({}))).code).toBe(ErrorCode.BadRequest);
    expect(refusal(() => compose.chat("general", loose([null]))).code).toBe(ErrorCode.BadRequest);
    const replyTo = 7 as unknown as string;
    expect(refusal(() => compose.chat("general", "hi", { replyTo })).code).toBe(ErrorCode.BadRequest);
  });
});

describe("mentions", () => {
  const mentioned = (content: string, mentions?: readonly string[]) =>
    read(compose.chat("general", content, mentions === undefined ? {} : { mentions }).payload).mentions;

  test("are lowercased, listed once, and taken from a text that gives no list", () => {
    expect(mentioned("hi @Bob, and @bob and @carol_2.")).toEqual(["bob", "carol_2"]);
    expect(mentioned("hi @Bob", ["@Dora", "dora", "EVE"])).toEqual(["dora", "eve"]);
    expect(mentioned("mail me: a@b.example")).toBeUndefined();
    expect(mentioned("hi @bob", [])).toBeUndefined();
  });

  test("of more than 64 peers, or of what is no name, are refused", () => {
    const many = Array.from({ length: 65 }, (_, n) => `peer${n}`);
    expect(refusal(() => mentioned("hi", many)).code).toBe(ErrorCode.BadRequest);
    expect(refusal(() => mentioned("hi", [5 as unknown as string])).code).toBe(ErrorCode.BadRequest);
    expect(refusal(() => mentioned("hi", [""])).code).toBe(ErrorCode.BadRequest);
  });

  test("any text has a lawful list of names", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 300 }), (text) => {
        const names = namesIn(text);
        expect(names.length).toBeLessThanOrEqual(64);
        expect(names.every((name) => name.length > 0 && name.length <= 128 && !name.includes("@"))).toBe(true);
      }),
    );
  });
});
