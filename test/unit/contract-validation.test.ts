/** Values against compiled schemas (supplement A): verdicts, budgets, hostile schemas and data, what is kept. */
import { Ajv2020 } from "ajv/dist/2020.js";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { artifactOf } from "../../shared/protocol/contract/artifact.ts";
import { schemaClosure } from "../../shared/protocol/contract/closure.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { VOID } from "../../shared/protocol/contract/zod-schema.ts";
import { named } from "../support/named.ts";
import { refusal } from "../support/refusal.ts";
import { heapMiB } from "../support/vitals.ts";

const parsed = (text: string): unknown => JSON.parse(text);

/** Nobody's budget is used up: verdicts only. */
const timeless = createValidators(() => 0);
const problems = (schema: unknown, value: unknown, others: readonly unknown[] = []) =>
  timeless.of(schemaClosure(schema, others)).check(value);
const isValid = (schema: unknown, value: unknown) => problems(schema, value).length === 0;

/** A clock of processor time that goes on by so many milliseconds at each reading. */
function ticking(perReading: number) {
  let readings = 0;
  return {
    cpuMs: () => readings++ * perReading,
    get readings() {
      return readings;
    },
  };
}

describe("verdicts", () => {
  test("PA.05: the void schema takes null and nothing at all", () => {
    const compiled = createValidators().of(VOID);
    expect([compiled.check(null), compiled.check(undefined)]).toEqual([[], []]);
    for (const value of [0, "", false, {}, []]) expect(compiled.check(value)).toHaveLength(1);
  });

  test("PA.05: elsewhere an absent value counts as null, and is no empty object", () => {
    expect(problems({ type: "object" }, undefined)).toHaveLength(1);
    expect(problems({ type: ["object", "null"] }, undefined)).toEqual([]);
  });

  test("PA.04: problems say where and what, and never show the value", () => {
    const schema = {
      type: "object",
      properties: { a: { type: "array", items: { type: "string", maxLength: 3 } }, k: { const: "right" } },
      required: ["a", "b"],
      additionalProperties: false,
    };
    const found = problems(schema, { a: ["ok", "sesame", 4], k: "sesame", other: "sesame" });
    expect(found.map(({ path }) => path).toSorted()).toEqual(["", "", "/a/1", "/a/2", "/k"]);
    expect(found.find(({ path }) => path === "/a/2")?.message).toBe("must be string");
    expect(JSON.stringify(found)).not.toContain("sesame");
  });

  test("PA.04: there are at most eight problems, each of bounded length", () => {
    const found = problems(
      { items: { type: "null" } },
      Array.from({ length: 500 }, () => 1),
    );
    expect(found).toHaveLength(8);
    const [long] = problems({ additionalProperties: { type: "null" } }, { ["k".repeat(5000)]: 1 });
    expect(long?.path.length).toBeLessThan(300);
  });

  test("PA.04: data is judged and never changed: no defaults, no coercion, nothing taken away", () => {
    const schema = {
      properties: { a: { type: "integer", default: 3 }, b: { type: "string" } },
      additionalProperties: true,
    };
    const value = { b: "1", c: [1] };
    const before = JSON.stringify(value);
    expect(problems(schema, value)).toEqual([]);
    expect(JSON.stringify(value)).toBe(before);
    expect(isValid({ type: "integer" }, "3")).toBe(false);
    expect(isValid({ type: "boolean" }, "true")).toBe(false);
    expect(isValid({ type: "array" }, "x")).toBe(false);
  });

  test("PA.04: format is an annotation, known or not", () => {
    expect(isValid({ type: "string", format: "email" }, "no address")).toBe(true);
    expect(isValid({ type: "string", format: "no-such-format" }, "x")).toBe(true);
    expect(isValid({ type: "string", format: "regex", contentEncoding: "base64" }, "(")).toBe(true);
  });

  test("PA.04: only members that a value has itself count", () => {
    for (const name of ["toString", "constructor", "hasOwnProperty", "valueOf", "isPrototypeOf"]) {
      expect(isValid({ required: [name] }, {})).toBe(false);
      expect(isValid({ required: [name] }, { [name]: 1 })).toBe(true);
      expect(isValid({ properties: { [name]: { type: "string" } } }, {})).toBe(true);
      expect(isValid({ properties: { [name]: { type: "string" } } }, { [name]: 1 })).toBe(false);
      expect(isValid({ properties: { [name]: true }, additionalProperties: false }, { [name]: 1 })).toBe(true);
      expect(isValid({ dependentRequired: { [name]: ["a"] } }, {})).toBe(true);
      expect(isValid({ dependentRequired: { a: [name] } }, { a: 1 })).toBe(false);
      expect(isValid({ dependentSchemas: { [name]: false } }, {})).toBe(true);
    }
    const own = parsed('{"__proto__":1}');
    expect(isValid({ additionalProperties: false }, own)).toBe(false);
    expect(isValid({ additionalProperties: { type: "string" } }, own)).toBe(false);
    expect(isValid({ maxProperties: 0 }, own)).toBe(false);
  });

  test("PA.04: values with members like those of every object are compared as data", () => {
    const odd = { valueOf: 1, toString: null, constructor: {}, hasOwnProperty: [] };
    expect(isValid({ const: odd }, structuredClone(odd))).toBe(true);
    expect(isValid({ const: odd }, { ...odd, valueOf: 2 })).toBe(false);
    expect(isValid({ enum: [1, odd] }, { valueOf: 1 })).toBe(false);
    expect(isValid({ uniqueItems: true }, [odd, structuredClone(odd)])).toBe(false);
    expect(isValid({ uniqueItems: true }, [parsed('{"__proto__":1}'), {}])).toBe(true);
  });

  test("PA.04: members in another order are equal, and no text is taken for a structure", () => {
    expect(isValid({ const: { a: 1, b: [2] } }, { b: [2], a: 1 })).toBe(true);
    expect(
      isValid({ uniqueItems: true }, [
        { a: 1, b: 2 },
        { b: 2, a: 1 },
      ]),
    ).toBe(false);
    expect(isValid({ uniqueItems: true }, ["1", 1, "null", null, "[]", [], "{}", {}, true, "true", [[]], ""])).toBe(
      true,
    );
    expect(isValid({ uniqueItems: true }, [0, -0])).toBe(false);
    expect(isValid({ enum: ["a,b"] }, ["a", "b"])).toBe(false);
    expect(isValid({ const: -0 }, 0)).toBe(true);
    expect(isValid({ uniqueItems: false }, [1, 1])).toBe(true);
  });

  test("PA.04: a value deeper than any message is refused, not walked", () => {
    const deep = parsed("[".repeat(200) + "]".repeat(200));
    expect(problems(true, deep)).toHaveLength(1);
    expect(problems({ $ref: "#/$defs/a", $defs: { a: { items: { $ref: "#/$defs/a" } } } }, deep)).toHaveLength(1);
    expect(problems(true, Number.NaN)).toHaveLength(1);
  });

  test("PA.04: artifacts that refer to each other are one schema", () => {
    const name = { type: "string", minLength: 2 };
    const person = { type: "object", properties: { name: { $ref: artifactOf(name).digest } }, required: ["name"] };
    const team = {
      type: "object",
      properties: { lead: { $ref: artifactOf(person).digest }, sub: { $ref: "#" } },
      additionalProperties: false,
    };
    const check = (value: unknown) => problems(team, value, [person, name]);
    expect(check({ lead: { name: "Bo" }, sub: { sub: {} } })).toEqual([]);
    expect(check({ sub: { lead: { name: "B" } } }).map(({ path }) => path)).toEqual(["/sub/lead/name"]);
    expect(check({ sub: { other: 1 } })).toHaveLength(1);
  });
});

describe("beside Ajv as it comes", () => {
  const leaf = fc.constantFrom<unknown>(
    true,
    false,
    { type: "string" },
    { type: ["integer", "null"] },
    { minimum: 1 },
    { maxLength: 1 },
    { const: { a: 1 } },
    { enum: ["a", 1, null, [1]] },
    { required: ["a"] },
    { uniqueItems: true },
    { dependentRequired: { a: ["b"] } },
    { minProperties: 1, maxProperties: 1 },
    { pattern: "^a" },
    { $ref: "#/$defs/d" },
  );
  const schemas = fc.letrec<{ schema: unknown }>((tie) => ({
    schema: fc.oneof(
      { maxDepth: 3, withCrossShrink: true },
      leaf,
      fc.record(
        {
          properties: fc.dictionary(fc.constantFrom("a", "b", "c"), tie("schema"), {
            maxKeys: 2,
            noNullPrototype: true,
          }),
          patternProperties: fc.record({ "^[ab]$": tie("schema") }),
          additionalProperties: tie("schema"),
          unevaluatedProperties: tie("schema"),
          propertyNames: fc.constantFrom<unknown>(true, { maxLength: 1 }, { const: "a" }),
          dependentSchemas: fc.record({ a: tie("schema") }),
          items: tie("schema"),
          prefixItems: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }),
          unevaluatedItems: tie("schema"),
          contains: tie("schema"),
          minContains: fc.constantFrom(0, 2),
        },
        { requiredKeys: [] },
      ),
      fc.record(
        {
          allOf: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }),
          anyOf: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }),
          oneOf: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }),
          not: tie("schema"),
          if: tie("schema"),
          // oxlint-disable-next-line unicorn/no-thenable
          then: tie("schema"),
          else: tie("schema"),
        },
        { requiredKeys: [] },
      ),
    ),
  })).schema;
  const values = fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 3 },
      fc.constantFrom<unknown>(null, true, 0, 1, 2, "a", "ab", ""),
      fc.array(tie("value"), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom("a", "b", "c"), tie("value"), { maxKeys: 3, noNullPrototype: true }),
    ),
  })).value;

  test("PA.04: the metered schema gives the verdicts of the schema", () => {
    fc.assert(
      fc.property(schemas, fc.array(values, { minLength: 1, maxLength: 8 }), (schema, tried) => {
        const whole = { allOf: [schema], $defs: { d: { type: ["string", "object"] } } };
        // Ajv 8.20 is wrong without these two: `contains` beside `prefixItems` takes an empty list, and its
        // optimiser drops variables that it needs.
        const plain = new Ajv2020({ strict: false, logger: false, allErrors: true, code: { optimize: false } }).compile(
          whole,
        );
        const compiled = timeless.of(schemaClosure(whole));
        for (const value of tried) expect(compiled.check(value).length === 0).toBe(plain(value));
      }),
      { numRuns: 300 },
    );
  }, 120_000);
});

describe("the budget of a compilation", () => {
  const schema = {
    type: "object",
    properties: { a: { type: "string" }, b: { type: "array", items: { type: "null" } } },
  };

  test("PA.04: 100 ms of processor time are taken, more is not", () => {
    const counting = ticking(0);
    createValidators(counting.cpuMs).of(schemaClosure(schema));
    const steps = counting.readings - 1;
    expect(steps).toBeGreaterThan(3);
    expect(
      createValidators(ticking(100 / steps - 1e-9).cpuMs)
        .of(schemaClosure(schema))
        .check({}),
    ).toEqual([]);
    const error = refusal(() => createValidators(ticking(100 / steps + 1e-6).cpuMs).of(schemaClosure(schema)));
    expect([error.code, error.message]).toEqual(["contract-invalid", expect.stringContaining("100 ms to compile")]);
  });

  test("PA.04: a schema that only just ran over it is given a second try", () => {
    let readings = 0;
    // A pause of half a second, once.
    const cpuMs = () => (readings++ < 2 ? 0 : 500);
    expect(createValidators(cpuMs).of(schemaClosure(schema)).check({ a: 1 })).toHaveLength(1);
  });

  test("PA.04: real work that takes too long ends soon after the budget", () => {
    const properties = named(
      Array.from({ length: 3000 }, (_, index) => [
        `p${index}`,
        { type: "object", properties: { a: { maxLength: 1 } } },
      ]),
    );
    const began = performance.now();
    expect(refusal(() => createValidators().of(schemaClosure({ properties }))).code).toBe("contract-invalid");
    expect(performance.now() - began).toBeLessThan(5000);
  });

  test("PA.04: many references to one large schema are one function, not many", () => {
    const fields = (count: number, schema: object) =>
      named(Array.from({ length: count }, (_, index) => [`f${index}`, schema]));
    const large = { properties: fields(100, { type: "string" }) };
    const schema = { properties: fields(150, { $ref: "#/$defs/large" }), $defs: { large } };
    const compiled = createValidators().of(schemaClosure(schema));
    expect(compiled.check({ f0: { f49: "x" }, f149: { f99: 1 } })).toHaveLength(1);
  });
});

describe("the budget of a validation", () => {
  /** Judges 2 to the power of 31 times, and has no more than 31 references in a row. */
  const fan = {
    anyOf: [{ type: "integer" }, { $ref: "#/$defs/d0" }],
    $defs: named(
      Array.from({ length: 30 }, (_, index) => {
        const next = { $ref: `#/$defs/d${index + 1}` };
        return [`d${index}`, { properties: { a: { allOf: [next, next] } } }];
      }),
      [["d30", { type: "string" }]],
    ),
  };
  const nest = (depth: number): unknown => (depth === 0 ? 1 : { a: nest(depth - 1) });

  test("PA.04: 10 ms of processor time are taken, more is not", () => {
    // Fifty thousand items: some hundred readings of the clock.
    const value = Array.from({ length: 50_000 }, () => 1);
    const closure = schemaClosure({ items: { type: "integer" } });
    const counting = ticking(0);
    const counted = createValidators(counting.cpuMs).of(closure);
    const before = counting.readings;
    expect(counted.check(value)).toEqual([]);
    const steps = counting.readings - before - 1;
    expect(steps).toBeGreaterThan(50);

    const at = (perReading: number) => {
      let now = 0;
      let step = 0;
      const compiled = createValidators(() => (now += step)).of(closure);
      step = perReading;
      return compiled;
    };
    expect(at(10 / steps - 1e-9).check(value)).toEqual([]);
    const error = refusal(() => at(10 / steps + 1e-6).check(value));
    expect([error.code, error.message]).toEqual(["contract-invalid", expect.stringContaining("10 ms to validate")]);
  });

  test("PA.04: an ordinary value reads no clock", () => {
    const counting = ticking(0);
    const compiled = createValidators(counting.cpuMs).of(
      schemaClosure({ properties: { a: { type: "string", pattern: "^[a-z]{1,32}$" } }, required: ["a"] }),
    );
    const before = counting.readings;
    expect(compiled.check({ a: "hello" })).toEqual([]);
    expect(compiled.check({ a: "HELLO" })).toHaveLength(1);
    expect(counting.readings).toBe(before);
  });

  const large = "x".repeat(600_000);
  const many = Array.from({ length: 60_000 }, (_, index) => index);
  /** Text in which no part comes again, so that no state of an automaton does. */
  const scrambled = (seed: number) =>
    Array.from({ length: 800 }, (_, index) =>
      (Math.imul(index + seed * 977, 0x9e3779b1) >>> 15) & 1 ? "a" : "b",
    ).join("");
  const hostile: readonly (readonly [string, unknown, unknown])[] = [
    ["a fan of references that doubles at each step into the data", fan, nest(31)],
    [
      "a fan of references that doubles at each step in place",
      {
        if: { type: "string" },
        // oxlint-disable-next-line unicorn/no-thenable
        then: { $ref: "#/$defs/d0" },
        $defs: named(
          Array.from({ length: 28 }, (_, index) => {
            const next = { $ref: `#/$defs/d${index + 1}` };
            return [`d${index}`, { anyOf: [next, next] }];
          }),
          [["d28", { type: "null" }]],
        ),
      },
      "x",
    ],
    [
      "a recursion that doubles at each level of a tree",
      {
        anyOf: [
          { properties: { a: { $ref: "#" } }, required: ["b"] },
          { properties: { a: { $ref: "#" } }, required: ["c"] },
        ],
      },
      nest(60),
    ],
    [
      "a text counted over and over",
      { allOf: Array.from({ length: 400 }, (_, index) => ({ maxLength: 600_000 + index })) },
      large,
    ],
    [
      "a large object looked through over and over",
      { allOf: Array.from({ length: 200 }, (_, index) => ({ additionalProperties: { minimum: -index } })) },
      named(many.slice(0, 20_000).map((index) => [`k${index}`, 1])),
    ],
    [
      "members counted over and over",
      { allOf: Array.from({ length: 300 }, (_, index) => ({ maxProperties: 70_000 + index })) },
      named(many.map((index) => [`k${index}`, 1])),
    ],
    [
      "items against a long choice of schemas",
      { items: { anyOf: Array.from({ length: 150 }, (_, index) => ({ const: `c${index}` })) } },
      many,
    ],
    [
      "deep items compared with each other",
      { allOf: Array.from({ length: 60 }, () => ({ uniqueItems: true })) },
      many.map((index) => [[[index]]]),
    ],
    [
      "a pattern against each of many members",
      {
        patternProperties: named(Array.from({ length: 60 }, (_, index) => [`^[a-z]{1,${index + 1}}$`, true])),
      },
      named(many.slice(0, 20_000).map((index) => [`k${index}`, 1])),
    ],
    [
      "a slow pattern against many texts",
      { items: { pattern: "[ab]*a[ab]{90}x" } },
      Array.from({ length: 300 }, (_, index) => scrambled(index)),
    ],
    [
      "unevaluated members gathered over and over",
      { allOf: Array.from({ length: 100 }, () => ({ unevaluatedProperties: { type: "integer" } })) },
      named(many.slice(0, 20_000).map((index) => [`k${index}`, 1])),
    ],
    [
      "contained items counted over and over",
      { allOf: Array.from({ length: 100 }, (_, index) => ({ contains: { const: -1 - index } })) },
      many,
    ],
  ];

  test.each(hostile)("PA.04: %s is ended", (_, schema, value) => {
    const compiled = createValidators().of(schemaClosure(schema));
    const began = performance.now();
    expect(refusal(() => compiled.check(value)).code).toBe("contract-invalid");
    // Twice 10 ms, and what a single step may take, on whatever machine this is.
    expect(performance.now() - began).toBeLessThan(2000);
    // It does not remember: an honest value is still judged.
    expect(Array.isArray(compiled.check(null))).toBe(true);
  });

  test("PA.04: a long list against a long choice takes no longer than the list", () => {
    const compiled = createValidators().of(schemaClosure({ items: { enum: many.map(String).slice(0, 10_000) } }));
    expect(compiled.check(many.slice(0, 10_000).map(String))).toEqual([]);
    expect(compiled.check(["-1"])).toHaveLength(1);
  });

  test("PA.04: an honest message of the largest size is within it", () => {
    const item = { id: "0190d2f4", at: 1_700_000_000_000, text: "y".repeat(200), tags: ["a", "b"] };
    const value = { items: Array.from({ length: 900 }, () => item) };
    expect(JSON.stringify(value).length).toBeGreaterThan(200_000);
    const compiled = createValidators().of(
      schemaClosure({
        type: "object",
        properties: {
          items: {
            type: "array",
            items: {
              type: "object",
              properties: {
                id: { type: "string", pattern: "^[0-9a-f]{1,32}$" },
                at: { type: "integer" },
                text: { type: "string", maxLength: 500 },
                tags: { type: "array", items: { type: "string" } },
              },
              required: ["id", "at", "text"],
            },
          },
        },
        required: ["items"],
      }),
    );
    expect(compiled.check(value)).toEqual([]);
  });
});

describe("what is kept", () => {
  test("PA.04: 256 compiled schemas are kept, the least recently used one goes", () => {
    const validators = createValidators(() => 0);
    const closures = Array.from({ length: 257 }, (_, index) => schemaClosure({ type: "string", minLength: index }));
    const made = closures.slice(0, 256).map((closure) => validators.of(closure));
    expect(validators.size).toBe(256);
    expect(closures.slice(0, 256).every((closure, index) => validators.of(closure) === made[index])).toBe(true);
    const [first, second, last] = [closures[0], closures[1], closures[256]].map((one) => one ?? VOID);
    validators.of(first ?? VOID);
    validators.of(last ?? VOID);
    expect(validators.size).toBe(256);
    expect(validators.of(first ?? VOID)).toBe(made[0]);
    expect(validators.of(second ?? VOID)).not.toBe(made[1]);
  });

  test("PA.04: 10,000 distinct schemas leave no more than 256, and no memory behind", () => {
    const validators = createValidators(() => 0);
    const run = (from: number, to: number) => {
      for (let index = from; index < to; index += 1) {
        const compiled = validators.of(
          schemaClosure({
            type: "object",
            properties: { a: { type: "string", pattern: `^${"a".repeat(20)}${index}$` } },
          }),
        );
        expect(compiled.check({ a: "b" })).toHaveLength(1);
      }
      return heapMiB();
    };
    const early = run(0, 2000);
    const late = run(2000, 10_000);
    expect(validators.size).toBe(256);
    expect(late - early).toBeLessThan(20);
  }, 120_000);

  test("PA.04: large schemas are kept by their size: a few push out the others", () => {
    const validators = createValidators(() => 0);
    for (let index = 0; index < 60; index += 1) {
      validators.of(schemaClosure({ $comment: `${index}${"x".repeat(250_000)}`, type: "null" }));
    }
    expect(validators.size).toBeGreaterThan(5);
    expect(validators.size).toBeLessThan(40);
  });

  test("PA.04: a schema that was refused is not kept", () => {
    const validators = createValidators();
    const closure = schemaClosure({ pattern: "(?=a)" });
    expect(refusal(() => validators.of(closure)).code).toBe("contract-invalid");
    expect(validators.size).toBe(0);
    expect(refusal(() => validators.of(closure)).code).toBe("contract-invalid");
  });
});
