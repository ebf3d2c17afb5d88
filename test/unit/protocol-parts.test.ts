/** Message parts: what a publisher refuses with its path, and what a reader shows. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { digestOf } from "../../shared/protocol/base/canonical.ts";
import { Part, checkParts, isPart, text, verifyArtifact } from "../../shared/protocol/chat/parts.ts";
import { nearMiss } from "../support/near-miss.ts";
import { refusal } from "../support/refusal.ts";

const DIGEST = digestOf("");
const artifact = { kind: "artifact", name: "patch.diff", mediaType: "text/x-diff", digest: DIGEST, size: 0 };
const VALID = [
  text("hello"),
  { kind: "data", data: { a: [1, null, "x"] } },
  artifact,
  { kind: "com.acme.snapshot", rows: [1, 2] },
];

const problem = (parts: readonly unknown[]) => refusal(() => checkParts(parts));

describe("W5.02 W11.04 a publisher sends the core kinds and reverse-DNS ones", () => {
  test.each(VALID)("$kind is sent", (part) => {
    expect(() => checkParts([part])).not.toThrow();
    expect(isPart(part)).toBe(true);
  });

  test.each([
    "snapshot",
    "Text",
    "",
    "x-y",
    ".acme",
    "acme.",
    "text ",
    "com.acme.",
    "cotal",
    "constructor",
    "__proto__",
  ])("the bare kind %j is refused on send and not shown on receipt", (kind) => {
    const { code, message } = problem([text("ok"), { kind, text: "x" }]);
    expect(code).toBe("bad-request");
    expect(message).toMatch(/^parts\[1\]\.kind/);
    expect(isPart({ kind, text: "x" })).toBe(false);
  });

  test("what is refused by its kind says what to use instead", () => {
    expect(problem([{ kind: "snapshot" }]).next).toContain("com.acme.snapshot");
  });

  test.each<[string, unknown, string]>([
    ["no object", 5, "parts[0] is not an object"],
    ["null", null, "parts[0] is not an object"],
    ["a list", [], "parts[0] is not an object"],
    ["undefined", undefined, "parts[0] is not a JSON value"],
    ["no kind", { text: "x" }, "parts[0].kind is missing"],
    ["a numeric kind", { kind: 7 }, "parts[0].kind is missing"],
    ["a text part without text", { kind: "text" }, "parts[0].text must be a string"],
    ["a text part with a number", { kind: "text", text: 7 }, "parts[0].text must be a string"],
    ["a data part without data", { kind: "data" }, "parts[0].data must be a JSON value"],
  ])("%s", (_what, part, message) => {
    expect(problem([part]).message).toBe(message);
  });

  test("a hole in the list is not skipped", () => {
    // oxlint-disable-next-line no-sparse-arrays -- the hole is the point
    expect(problem([text("a"), , text("b")]).message).toContain("parts[1]");
  });
});

describe("W5.03 a data part that JSON can't hold is refused with the path", () => {
  test.each<[unknown, string]>([
    [{ a: [1, Number.NaN] }, "parts[0].data.a[1]"],
    [undefined, "parts[0].data"],
    [{ when: new Date(0) }, "parts[0].data.when"],
    [{ n: 1n }, "parts[0].data.n"],
    [[undefined], "parts[0].data[0]"],
    [new Map(), "parts[0].data"],
    ["\ud800", "parts[0].data"],
  ])("%o at %s", (data, path) => {
    expect(problem([{ kind: "data", data }]).message).toBe(`${path} is not a JSON value`);
  });

  test("the members beside data, and those of other kinds, are held to the same", () => {
    expect(problem([{ kind: "com.acme.x", deep: { at: [new Date(0)] } }]).message).toContain("parts[0].deep.at[0]");
    expect(problem([{ kind: "text", text: "x", extra: () => 1 }]).message).toContain("parts[0].extra");
  });

  test("any JSON value is sent as it is", () => {
    fc.assert(fc.property(fc.jsonValue({ maxDepth: 5 }), (data) => checkParts([{ kind: "data", data }])));
  });
});

describe("W5.04 an artifact part refers to bytes by their digest", () => {
  test.each<[string, object, string]>([
    ["a digest in capitals", { digest: DIGEST.replace("e3b0", "E3B0") }, "digest"],
    ["a digest of another kind", { digest: `md5:${"0".repeat(64)}` }, "digest"],
    ["no digest", { digest: undefined }, "digest"],
    ["a negative size", { size: -1 }, "size"],
    ["a size as text", { size: "0" }, "size"],
    ["no name", { name: 5 }, "name"],
    ["no media type", { mediaType: null }, "mediaType"],
  ])("%s is refused", (_what, change, field) => {
    const part = JSON.parse(JSON.stringify({ ...artifact, ...change })) as { kind: string };
    expect(problem([part]).message).toMatch(new RegExp(`^parts\\[0\\]\\.${field} must be`));
    expect(isPart(part)).toBe(false);
  });

  test("a size of 2^50 is only a claim: it is shown and nothing is allocated", () => {
    const part = { ...artifact, size: 2 ** 50 };
    expect(isPart(part)).toBe(true);
    const before = process.memoryUsage().arrayBuffers;
    expect(() => verifyArtifact(part, new Uint8Array())).not.toThrow();
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(2 ** 28);
  });

  test("fetched bytes that have another digest are refused", () => {
    expect(() => verifyArtifact(artifact, new Uint8Array())).not.toThrow();
    const { code, next } = refusal(() => verifyArtifact(artifact, new Uint8Array([0])));
    expect(code).toBe("contract-mismatch");
    expect(next).toContain("do not use");
  });
});

test("W5.08 the reader's table of core kinds agrees with the published shape", () => {
  fc.assert(
    fc.property(nearMiss(VALID), (part) => {
      // What JSON carried: undefined, Infinity and deep nesting never reach this far.
      const wire: unknown = JSON.parse(JSON.stringify(part) ?? "null");
      fc.pre(typeof wire === "object" && wire !== null && "kind" in wire && typeof wire.kind === "string");
      const withKind = wire as { kind: string };
      expect({ part: wire, shown: isPart(withKind) }).toEqual({ part: wire, shown: Part.safeParse(wire).success });
    }),
    { numRuns: 2000 },
  );
});
