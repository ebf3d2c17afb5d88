/** Which schemas a contract may hold (supplement A): the profile, the limits at their edges, hostile ones. */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { artifactOf } from "../../shared/protocol/contract/artifact.ts";
import { documentClosure, fetchSchemaClosure, schemaClosure } from "../../shared/protocol/contract/closure.ts";
import { zodClosure, zodSchema } from "../../shared/protocol/contract/zod-schema.ts";
import { named } from "../support/named.ts";
import { failure, refusal } from "../support/refusal.ts";

const KIB = 1024;
const parsed = (text: string): unknown => JSON.parse(text);

/** A schema whose canonical form has exactly so many bytes. */
const ofSize = (size: number, seed = "") => {
  const empty = `{"description":"${seed}"}`.length;
  return { description: `${seed}${"x".repeat(size - empty)}` };
};

/** A document in which exactly so many objects lie within one another. */
const nested = (depth: number): object =>
  Array.from({ length: depth - 1 }).reduce<object>((inner) => ({ not: inner }), {});

function refusesSchema(schema: unknown, others: readonly unknown[] = []): string {
  const error = refusal(() => schemaClosure(schema, others));
  expect(error.code).toBe("contract-invalid");
  expect(error.next).toBeTruthy();
  return error.message;
}
const expectRefused = refusesSchema;

describe("limits", () => {
  test("PA.04: a document of 256 KiB is taken, one byte more is not", () => {
    expect(schemaClosure(ofSize(256 * KIB)).root.bytes).toBe(256 * KIB);
    expect(refusesSchema(ofSize(256 * KIB + 1))).toContain("262145 bytes");
    // Bytes count, not characters.
    expectRefused({ description: "é".repeat(128 * KIB) });
  });

  test("PA.04: a closure of 1 MiB is taken, one byte more is not", () => {
    const parts = (last: number) => [
      ofSize(256 * KIB, "a"),
      ofSize(256 * KIB, "b"),
      ofSize(256 * KIB, "c"),
      ofSize(last, "d"),
    ];
    const root = (of: readonly object[]) => ({ allOf: of.map((part) => ({ $ref: artifactOf(part).digest })) });
    const rootBytes = artifactOf(root(parts(1000))).bytes;
    const exact = parts(256 * KIB - rootBytes);
    const closure = schemaClosure(root(exact), exact);
    expect([...closure.members.values()].reduce((sum, { bytes }) => sum + bytes, 0)).toBe(1024 * KIB);
    const over = parts(256 * KIB - rootBytes + 1);
    expect(refusesSchema(root(over), over)).toContain("1048577 bytes");
  });

  test("PA.04: a closure over the limit is not fetched to its end", async () => {
    const parts = Array.from({ length: 40 }, (_, index) => artifactOf(ofSize(200 * KIB, `n${index}`)));
    const members = parts.map(({ digest }) => digest).toSorted();
    const manifest = artifactOf({ v: 1, root: members[0], members });
    const kept = new Map([manifest, ...parts].map(({ digest, text }) => [digest, new TextEncoder().encode(text)]));
    let asked = 0;
    const error = await failure(
      fetchSchemaClosure(manifest.digest, (wanted) => {
        asked += 1;
        return Promise.resolve(kept.get(wanted));
      }),
    );
    expect(error.code).toBe("contract-invalid");
    expect(asked).toBe(1 + 6);
  });

  test("PA.04: 32 objects within one another are taken, 33 are not", () => {
    expect(schemaClosure(nested(32)).members.size).toBe(1);
    expect(refusesSchema(nested(33))).toContain("nests deeper than 32");
    expectRefused({ const: parsed("[".repeat(32) + "]".repeat(32)) });
    // Deep enough to end the stack of whoever walks it.
    expectRefused(parsed('{"not":'.repeat(30_000) + "true" + "}".repeat(30_000)));
    expect(refusal(() => documentClosure(nested(33))).code).toBe("contract-invalid");
  });

  /** `length` references that follow one another, by way of `link`. */
  const chain = (length: number, link: (ref: object) => object = (ref) => ref) => ({
    ...link({ $ref: "#/$defs/d1" }),
    $defs: named(
      Array.from({ length: length - 1 }, (_, index) => [`d${index + 1}`, link({ $ref: `#/$defs/d${index + 2}` })]),
      [[`d${length}`, { type: "null" }]],
    ),
  });

  test("PA.04: 32 references that follow one another are taken, 33 are not", () => {
    expect(schemaClosure(chain(32)).members.size).toBe(1);
    expect(refusesSchema(chain(33))).toContain("more than 32 references");
    expectRefused(chain(5000));
    const inPlace = [
      (ref: object) => ({ allOf: [true, ref] }),
      (ref: object) => ({ anyOf: [ref] }),
      (ref: object) => ({ oneOf: [ref] }),
      (ref: object) => ({ not: ref }),
      // oxlint-disable-next-line unicorn/no-thenable
      (ref: object) => ({ if: true, then: ref }),
      (ref: object) => ({ if: ref }),
      (ref: object) => ({ if: false, else: ref }),
      (ref: object) => ({ dependentSchemas: { a: ref } }),
    ];
    for (const link of inPlace) {
      expect(schemaClosure(chain(32, link)).members.size).toBe(1);
      expectRefused(chain(33, link));
    }
  });

  test("PA.04: a chain goes from artifact to artifact as well", () => {
    const family: object[] = [{ type: "null" }];
    for (let index = 0; index < 33; index += 1) family.unshift({ $ref: artifactOf(family[0]).digest });
    expect(schemaClosure(family[1], family).members.size).toBe(33);
    expectRefused(family[0], family);
  });

  test("PA.04: references below a step into the data are no chain, a circle in place is one without end", () => {
    expect(schemaClosure(chain(100, (ref) => ({ properties: { next: ref } }))).members.size).toBe(1);
    expect(schemaClosure({ properties: { child: { $ref: "#" } }, items: { $ref: "#" } }).members.size).toBe(1);
    expectRefused({ $ref: "#" });
    expectRefused({ anyOf: [{ type: "null" }, { allOf: [{ $ref: "#" }] }] });
    expectRefused({ $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/b" }, b: { not: { $ref: "#/$defs/a" } } } });
    // Not reached from the root, and refused all the same.
    expectRefused({ $defs: { a: { $ref: "#/$defs/a" } } });
  });
});

describe("a closed bundle", () => {
  test.each([
    "https://example.com/schema.json",
    "http://127.0.0.1/",
    "file:///etc/passwd",
    "https://json-schema.org/draft/2020-12/schema",
    "other.json",
    "other.json#/a",
    "//example.com/x",
    "",
    "#anchor",
    "#/$defs/a%62",
    "#/$defs/a b",
    "# ",
    "sha256:abc",
    `SHA256:${"a".repeat(64)}`,
    `sha256:${"A".repeat(64)}`,
    `sha256:${"a".repeat(64)}#/$defs/x`,
    `sha256:${"a".repeat(64)}#`,
    "urn:x:y",
    "data:application/json,true",
  ])("PA.04: the reference %j is refused: nothing is fetched by an address", ($ref) => {
    expectRefused({ $ref, $defs: { ab: true, "a b": true } });
  });

  test("PA.04: an artifact that is not there is refused, whatever is fetched elsewhere", () => {
    expect(refusesSchema({ $ref: `sha256:${"a".repeat(64)}` })).toContain("is missing");
  });

  test.each([
    ["nothing", "#/$defs/none"],
    ["a value that is no schema", "#/const"],
    ["a name in a list of names", "#/required/0"],
    ["the map of definitions itself", "#/$defs"],
    ["an inherited member", "#/constructor"],
    ["an inherited member of a map", "#/$defs/toString"],
    ["the prototype", "#/$defs/__proto__"],
  ])("PA.04: a pointer to %s is refused", (_, $ref) => {
    expectRefused({ anyOf: [{ $ref }], const: { type: "null" }, required: ["a"], $defs: { a: true } });
  });

  test("PA.04: pointers with escapes reach what they name", () => {
    const schema = { $defs: { "a/b": { type: "null" }, "c~d": { type: "string" } }, items: { $ref: "#/$defs/a~1b" } };
    expect(schemaClosure({ ...schema, contains: { $ref: "#/$defs/c~0d" } }).members.size).toBe(1);
    expectRefused({ ...schema, contains: { $ref: "#/$defs/a/b" } });
  });
});

describe("the profile", () => {
  test.each([
    "$id",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$recursiveAnchor",
    "$vocabulary",
    "$async",
    "$data",
    "id",
    "definitions",
    "dependencies",
    "additionalItems",
    "contentSchema",
    "discriminator",
    "nullable",
    "minimun",
    "Type",
    "x-anything",
    "cotal-spend",
    "toString",
    "constructor",
    "hasOwnProperty",
  ])("PA.04: the keyword %s is refused, at the root and below", (name) => {
    for (const value of ["sha256:x", true, {}, 1]) {
      expect(refusesSchema({ [name]: value })).toContain(name);
      expectRefused({ properties: { a: { items: { [name]: value } } } });
    }
  });

  test("PA.04: a name is a name wherever it stands: only keywords are looked at", () => {
    const names = { $id: true, minimun: {}, constructor: { type: "string" }, toString: false };
    expect(
      schemaClosure({ properties: names, required: ["constructor", "$id"], const: { $ref: 1 } }).members.size,
    ).toBe(1);
  });

  test.each([
    '{"__proto__":{"type":"null"}}',
    '{"properties":{"__proto__":{"type":"null"}}}',
    '{"patternProperties":{"__proto__":true}}',
    '{"dependentSchemas":{"__proto__":true}}',
    '{"dependentRequired":{"__proto__":["a"]}}',
    '{"dependentRequired":{"a":["__proto__"]}}',
    '{"$defs":{"__proto__":true}}',
    '{"required":["__proto__"]}',
    '{"items":{"properties":{"__proto__":{"properties":{"polluted":{"default":1}}}}}}',
  ])("PA.04: %s is refused, and pollutes nothing", (text) => {
    expectRefused(parsed(text));
    expect(Object.keys(Object.prototype)).toEqual([]);
  });

  test.each([
    [{ type: "strin" }],
    [{ type: [] }],
    [{ type: ["string", "string"] }],
    [{ type: 5 }],
    [{ type: ["string", null] }],
    [{ items: [{ type: "string" }] }],
    [{ items: null }],
    [{ properties: [] }],
    [{ properties: { a: 1 } }],
    [{ allOf: [] }],
    [{ allOf: {} }],
    [{ allOf: [1] }],
    [{ prefixItems: [] }],
    [{ enum: [] }],
    [{ enum: "a" }],
    [{ required: ["a", "a"] }],
    [{ required: [1] }],
    [{ required: "a" }],
    [{ minLength: -1 }],
    [{ minLength: 1.5 }],
    [{ maxItems: 2 ** 53 }],
    [{ multipleOf: 0 }],
    [{ minimum: "1" }],
    [{ uniqueItems: 1 }],
    [{ pattern: 1 }],
    [{ format: "x".repeat(65) }],
    [{ dependentRequired: { a: "b" } }],
    [{ $ref: 1 }],
    [{ $schema: "http://json-schema.org/draft-07/schema#" }],
    [{ items: { $schema: "https://json-schema.org/draft/2020-12/schema" } }],
    ["string"],
    [null],
    [[]],
    [1],
  ])("PA.04: %j is no schema", (schema) => {
    expectRefused(schema);
  });

  test("PA.04: every keyword of the profile is taken", () => {
    const closure = schemaClosure({
      $schema: "https://json-schema.org/draft/2020-12/schema",
      $comment: "c",
      title: "t",
      description: "d",
      default: null,
      deprecated: false,
      readOnly: false,
      writeOnly: false,
      examples: [],
      format: "no-such-format",
      contentEncoding: "base64",
      contentMediaType: "text/plain",
      type: ["object", "array", "string", "number"],
      enum: [1],
      const: 1,
      multipleOf: 0.5,
      maximum: 1,
      exclusiveMaximum: 2,
      minimum: 1,
      exclusiveMinimum: 0,
      maxLength: 1,
      minLength: 0,
      pattern: "^a$",
      maxItems: 1,
      minItems: 0,
      uniqueItems: true,
      contains: true,
      minContains: 0,
      maxContains: 1,
      maxProperties: 1,
      minProperties: 0,
      required: [],
      dependentRequired: { a: ["b"] },
      dependentSchemas: { a: true },
      properties: { a: false },
      patternProperties: { "^b$": {} },
      propertyNames: {},
      additionalProperties: true,
      unevaluatedProperties: true,
      prefixItems: [true],
      items: true,
      unevaluatedItems: true,
      allOf: [true],
      anyOf: [true],
      oneOf: [true],
      not: false,
      if: true,
      // oxlint-disable-next-line unicorn/no-thenable
      then: true,
      else: true,
      $defs: { x: true },
      $ref: "#/$defs/x",
    });
    expect(closure.facts.get(closure.root.digest)?.patterns).toEqual(new Set(["^a$", "^b$"]));
    expect(schemaClosure(true).members.size).toBe(1);
  });
});

describe("from Zod", () => {
  test("PA.01: a shape becomes JSON Schema 2020-12 of what its reader takes", () => {
    expect(zodSchema(z.strictObject({ a: z.string(), b: z.int().min(0).default(3) }))).toEqual({
      $schema: "https://json-schema.org/draft/2020-12/schema",
      type: "object",
      properties: {
        a: { type: "string" },
        b: { type: "integer", minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 3 },
      },
      required: ["a"],
      additionalProperties: false,
    });
    expect(zodSchema(z.object({ a: z.string() }))).not.toHaveProperty("additionalProperties");
  });

  test("PA.01: a shape that refers to itself stays a closed bundle", () => {
    const tree = z.looseObject({
      name: z.string(),
      get children() {
        return z.array(tree);
      },
    });
    expect(zodClosure(tree).members.size).toBe(1);
  });

  test("PA.01: what has no JSON form is refused, not weakened", () => {
    for (const shape of [
      z.bigint(),
      z.date(),
      z.undefined(),
      z.object({ a: z.symbol() }),
      z.map(z.string(), z.string()),
    ]) {
      expect(refusal(() => zodClosure(shape)).code).toBe("contract-invalid");
    }
    // JSON Schema has no flags: this one would come out as another pattern.
    expect(refusal(() => zodClosure(z.object({ a: z.string().regex(/^a$/i) }))).code).toBe("contract-invalid");
    expect(zodClosure(z.string().regex(/^a$/u)).members.size).toBe(1);
  });
});
