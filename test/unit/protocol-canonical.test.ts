/** Canonical JSON on RFC 8785's own vectors, and the digests taken over it. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  MAX_DEPTH,
  canonicalDigest,
  canonicalJson,
  digestHex,
  digestOf,
  isBounded,
  nonJsonPath,
} from "../../shared/protocol/base/canonical.ts";
import { refusal } from "../support/refusal.ts";

type Vectors = {
  readonly numbers: readonly (readonly [string, string | null])[];
  readonly objects: readonly { readonly name: string; readonly text: string; readonly canonical: string }[];
  readonly sampleBytes: string;
};

const vectors = JSON.parse(readFileSync(join(import.meta.dirname, "..", "vectors", "rfc8785.json"), "utf8")) as Vectors;

const double = (bits: string) => Buffer.from(bits, "hex").readDoubleBE();

describe("RFC 8785, appendix B: numbers", () => {
  test.each(vectors.numbers.filter(([, text]) => text !== null))("the double %s is %s", (bits, text) => {
    expect(canonicalJson(double(bits))).toBe(text);
    expect(canonicalJson({ n: [double(bits)] })).toBe(`{"n":[${text}]}`);
  });

  test.each(vectors.numbers.filter(([, text]) => text === null))("the double %s is refused", (bits) => {
    expect(refusal(() => canonicalJson(double(bits))).code).toBe("bad-request");
  });

  test("the table holds both zeros", () => {
    expect(vectors.numbers.filter(([, text]) => text === "0")).toHaveLength(2);
    expect(canonicalJson([-0, 0])).toBe("[0,0]");
  });
});

describe("RFC 8785, objects", () => {
  test.each(vectors.objects)("$name", ({ text, canonical }) => {
    expect(canonicalJson(JSON.parse(text))).toBe(canonical);
  });

  test("the sample's bytes are those of §3.2.4", () => {
    const sample: unknown = JSON.parse(vectors.objects[0]?.text ?? "");
    expect(Buffer.from(canonicalJson(sample)).toString("hex")).toBe(vectors.sampleBytes);
  });

  test.each([["\ud800"], ["a\udc00b"], ["\udc00\ud800"]])(
    "a lone surrogate is refused, as value and as name",
    (bad) => {
      expect(refusal(() => canonicalJson({ a: [bad] })).message).toContain("value.a[0]");
      expect(refusal(() => canonicalJson({ [bad]: 1 })).code).toBe("bad-request");
      expect(canonicalJson("\ud83d\ude00")).toBe('"😀"');
    },
  );
});

test("canonical text parses back to the value, and is the same for every order of members", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const text = canonicalJson(value);
      expect(canonicalJson(JSON.parse(text))).toBe(text);
      expect(canonicalJson(reversed(value))).toBe(text);
      expect(canonicalDigest(value)).toBe(digestOf(text));
    }),
  );
});

function reversed(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(reversed);
  const out: [string, unknown][] = Object.entries(value).map(([key, member]) => [key, reversed(member)]);
  return Object.fromEntries(out.toReversed());
}

describe("W5.03 the path of what JSON can't hold", () => {
  class Point {
    readonly x = 1;
  }
  const hidden = Object.defineProperty({ a: 1 }, "b", { value: 2, enumerable: false });
  const cycle: { self?: unknown } = {};
  cycle.self = cycle;
  // oxlint-disable-next-line no-sparse-arrays -- the hole is the point
  const holed = [1, , 3];

  test.each<[string, unknown, string]>([
    ["undefined at the top", undefined, "data"],
    ["a member that is undefined", { a: undefined }, "data.a"],
    ["NaN in a list", { a: [1, Number.NaN] }, "data.a[1]"],
    ["Infinity", [[Number.POSITIVE_INFINITY]], "data[0][0]"],
    ["a Date", { when: new Date(0) }, "data.when"],
    ["a class instance", { p: new Point() }, "data.p"],
    ["a Map", { m: new Map() }, "data.m"],
    ["bytes", { b: new Uint8Array(2) }, "data.b"],
    ["a function", { f: () => 1 }, "data.f"],
    ["a bigint", { n: 1n }, "data.n"],
    ["a symbol", { s: Symbol("s") }, "data.s"],
    ["a symbol as a name", { a: { [Symbol("s")]: 1 } }, "data.a"],
    ["a hidden member", { a: hidden }, "data.a"],
    ["a cycle", cycle, "data.self"],
    ["a hole in a list", holed, "data[1]"],
    ["a named member of a list", Object.assign([1], { extra: 2 }), "data"],
    ["a list of a class of its own", new (class extends Array<number> {})(2), "data"],
    ["a name that needs quotes", { "a b": [undefined] }, 'data["a b"][0]'],
    ["a lone surrogate", { a: "\ud800" }, "data.a"],
  ])("%s", (_what, value, path) => {
    expect(nonJsonPath(value, "data")).toBe(path);
    expect(refusal(() => canonicalJson(value, "data")).message).toBe(`${path} is not a JSON value`);
  });

  test("whatever JSON.parse makes is held, up to the depth that is allowed", () => {
    fc.assert(fc.property(fc.json(), (text) => nonJsonPath(JSON.parse(text), "data") === undefined));
    expect(nonJsonPath(nested(MAX_DEPTH), "data")).toBeUndefined();
    expect(isBounded(nested(MAX_DEPTH))).toBe(true);
    expect(nonJsonPath(nested(MAX_DEPTH + 1), "data")).toMatch(/^data(\[0\])+$/);
    expect(isBounded(nested(MAX_DEPTH + 1))).toBe(false);
    expect(isBounded(nested(100_000))).toBe(false);
    // A value that appears twice is no cycle.
    const twice = { a: 1 };
    expect(nonJsonPath([twice, twice], "data")).toBeUndefined();
  });

  test("an object without a prototype is JSON, and `__proto__` is an ordinary name", () => {
    expect(canonicalJson(Object.assign(Object.create(null), { b: 1, a: 2 }))).toBe('{"a":2,"b":1}');
    expect(canonicalJson(JSON.parse('{"__proto__":{"x":1}}'))).toBe('{"__proto__":{"x":1}}');
    expect(isBounded(JSON.parse('{"a":1e999}'))).toBe(false);
  });

  /** `[[[…]]]`: the innermost list lies `levels` deep. */
  function nested(levels: number): unknown {
    let value: unknown[] = [];
    for (let level = 0; level < levels; level += 1) value = [value];
    return value;
  }
});

test("W5.04 a digest is sha256 and lowercase hex over the raw bytes", () => {
  const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
  expect(digestOf("")).toBe(`sha256:${empty}`);
  expect(digestHex(digestOf(""))).toBe(empty);
  expect(canonicalDigest({ b: [], a: null })).toBe(
    `sha256:${createHash("sha256").update('{"a":null,"b":[]}').digest("hex")}`,
  );
  fc.assert(
    fc.property(fc.uint8Array(), (bytes) => {
      expect(digestOf(bytes)).toMatch(/^sha256:[0-9a-f]{64}$/);
      expect(digestOf(bytes)).toBe(digestOf(Uint8Array.from(bytes)));
    }),
  );
});
