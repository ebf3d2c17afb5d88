/** Growth within a line of revisions (supplement A, "Compatibility"): what is one, and what is a new version. */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { artifactOf } from "../../shared/protocol/contract/artifact.ts";
import { schemaClosure } from "../../shared/protocol/contract/closure.ts";
import { type ClusterRevision, checkGrowth, clusterChanges } from "../../shared/protocol/contract/compatibility.ts";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { type ClusterDeclaration, type CommandDeclaration } from "../../shared/protocol/contract/declare.ts";
import { type Side, schemaChanges } from "../../shared/protocol/contract/schema-growth.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { zodClosure } from "../../shared/protocol/contract/zod-schema.ts";
import { named, present } from "../support/named.ts";
import { refusal } from "../support/refusal.ts";

const changes = (before: unknown, after: unknown, side: Side = "input", others: readonly unknown[] = []) =>
  schemaChanges(schemaClosure(before, others), schemaClosure(after, others), side);
const both = (before: unknown, after: unknown) => [changes(before, after, "input"), changes(before, after, "output")];

describe("a schema", () => {
  const base = { type: "object", properties: { a: { type: "string" } }, required: ["a"] };

  test("PA.12: an added field with a default is growth, on both sides", () => {
    const after = { ...base, properties: { ...base.properties, b: { type: "integer", default: 3 } } };
    expect(both(base, after)).toEqual([[], []]);
    expect(both({ ...base, additionalProperties: false }, { ...after, additionalProperties: false })).toEqual([[], []]);
    expect(both({ ...base, additionalProperties: {} }, { ...after, additionalProperties: {} })).toEqual([[], []]);
    expect(both({ type: "object" }, { type: "object", properties: { b: { default: null } } })).toEqual([[], []]);
  });

  test("PA.12: an added field without a default, or one that must be there, is not", () => {
    const added = (field: object, required = base.required) => ({
      ...base,
      required,
      properties: { ...base.properties, b: field },
    });
    expect(changes(base, added({ type: "integer" }))).toEqual(["/properties/b is new and has no default"]);
    expect(changes(base, added({ default: 1 }, ["a", "b"]))).toEqual(["/required has changed"]);
    expect(changes({ properties: {} }, { properties: { b: { default: 1 } }, required: ["b"] })).toEqual([
      "/required has come or gone",
    ]);
  });

  test("PA.12: the default may stand behind a reference", () => {
    const named = { type: "integer", default: 3 };
    const after = { ...base, properties: { ...base.properties, b: { $ref: artifactOf(named).digest } } };
    expect(changes(base, after, "input", [named])).toEqual([]);
  });

  test("PA.12: a field can't be added where unknown fields had a meaning", () => {
    const field = { b: { default: 1 } };
    for (const open of [
      { additionalProperties: { type: "integer" } },
      { patternProperties: { "^b": { type: "null" } } },
    ]) {
      expect(changes({ ...base, ...open }, { ...base, ...open, properties: { ...base.properties, ...field } })).toEqual(
        ["/properties/b can't be added there"],
      );
    }
  });

  test.each<[string, object, object]>([
    ["a field is gone", base, { ...base, properties: {} }],
    ["a field has another type", base, { ...base, properties: { a: { type: "integer" } } }],
    ["a field may be left out that had to be there", base, { type: "object", properties: base.properties }],
    ["a field has another default", { properties: { a: { default: 1 } } }, { properties: { a: { default: 2 } } }],
    ["a field has a default that it had not", { properties: { a: {} } }, { properties: { a: { default: 2 } } }],
    [
      "a field below has changed",
      { items: { properties: { x: { minimum: 1 } } } },
      { items: { properties: { x: { minimum: 2 } } } },
    ],
    ["a bound is wider", { maxLength: 3 }, { maxLength: 4 }],
    ["a bound is gone", { maxLength: 3 }, {}],
    ["a bound has come", {}, { maxLength: 3 }],
    ["it is closed", { properties: {} }, { properties: {}, additionalProperties: false }],
    ["it is opened", { properties: {}, additionalProperties: false }, { properties: {} }],
    ["a type is added", { type: "string" }, { type: ["string", "null"] }],
    ["the pattern is another", { pattern: "^a" }, { pattern: "^b" }],
    ["true has become false", { items: true }, { items: false }],
    ["a schema stands for true", { items: true }, { items: {} }],
    ["an alternative is gone", { anyOf: [{ type: "string" }, { type: "null" }] }, { anyOf: [{ type: "string" }] }],
    [
      "alternatives changed places",
      { anyOf: [{ type: "string" }, { type: "null" }] },
      { anyOf: [{ type: "null" }, { type: "string" }] },
    ],
    ["exactly one of more", { oneOf: [{ type: "string" }] }, { oneOf: [{ type: "string" }, { type: "null" }] }],
    ["all of more", { allOf: [{ type: "string" }] }, { allOf: [{ type: "string" }, { minLength: 1 }] }],
    ["a longer tuple", { prefixItems: [true] }, { prefixItems: [true, true] }],
    ["a value is gone", { enum: ["a", "b"] }, { enum: ["a"] }],
    ["the constant is another", { const: 1 }, { const: 2 }],
    ["a dependency is added", { dependentRequired: { a: ["b"] } }, { dependentRequired: { a: ["b", "c"] } }],
    ["a pattern of names is added", { patternProperties: { a: true } }, { patternProperties: { a: true, b: true } }],
    ["not of more", { not: { enum: ["a"] } }, { not: { enum: ["a", "b"] } }],
    ["a condition on more", { if: { enum: ["a"] } }, { if: { enum: ["a", "b"] } }],
    ["one of wider ones", { oneOf: [{ enum: ["a"] }] }, { oneOf: [{ enum: ["a", "b"] }] }],
    [
      "contains more",
      { contains: { enum: ["a"] }, maxContains: 1 },
      { contains: { enum: ["a", "b"] }, maxContains: 1 },
    ],
    ["a field below not", { not: { properties: {} } }, { not: { properties: { a: { default: 1 } } } }],
    [
      "another schema behind a reference",
      { $ref: "#/$defs/a", $defs: { a: { minimum: 1 } } },
      { $ref: "#/$defs/a", $defs: { a: { minimum: 2 } } },
    ],
    [
      "another schema behind a reference beside words",
      { type: "number", $ref: "#/$defs/a", $defs: { a: { minimum: 1 } } },
      { type: "number", $ref: "#/$defs/a", $defs: { a: { minimum: 2 } } },
    ],
    [
      "a default beside a reference",
      { properties: { a: { $ref: "#/$defs/a", default: 1 } }, $defs: { a: true } },
      { properties: { a: { $ref: "#/$defs/a", default: 2 } }, $defs: { a: true } },
    ],
  ])("PA.12: it is no growth that %s", (_, before, after) => {
    for (const side of both(before, after)) expect(side).not.toEqual([]);
  });

  test("PA.12: more values and alternatives may be taken, not given", () => {
    const [taken, given] = both({ enum: ["a", 1] }, { enum: [1, "b", "a"] });
    expect([taken, given]).toEqual([[], ["/enum has changed"]]);
    const [more, told] = both({ anyOf: [{ type: "string" }] }, { anyOf: [{ type: "string" }, { type: "null" }] });
    expect([more, told?.length]).toEqual([[], 1]);
    expect(
      changes({ items: { properties: { a: { enum: [1] } } } }, { items: { properties: { a: { enum: [1, 2] } } } }),
    ).toEqual([]);
  });

  test("PA.12: what stands behind a reference grows like what stands there, beside other words too", () => {
    const behind = (allowed: readonly string[]) => ({
      type: "string",
      $ref: "#/$defs/a",
      $defs: { a: { enum: allowed } },
    });
    expect(changes(behind(["a"]), behind(["a", "b"]))).toEqual([]);
    expect(changes(behind(["a", "b"]), behind(["a"]))).toEqual(["/$ref/enum has changed"]);
  });

  test("PA.12: words that only describe, the order of names and where a part stands change nothing", () => {
    const before = {
      title: "a",
      type: ["string", "null"],
      required: ["x", "y"],
      enum: [1, 2],
      properties: { p: { description: "d" } },
    };
    const after = {
      $comment: "b",
      type: ["null", "string"],
      required: ["y", "x"],
      enum: [2, 1],
      properties: { p: { examples: [1] } },
    };
    expect(both(before, after)).toEqual([[], []]);
    const moved = { items: { $ref: "#/$defs/part" }, $defs: { part: { type: "string" }, unused: true } };
    expect(both({ items: { type: "string" } }, moved)).toEqual([[], []]);
    expect(both(moved, { items: { type: "string" } })).toEqual([[], []]);
    const named = { type: "string" };
    expect(changes({ items: { $ref: artifactOf(named).digest } }, { items: named }, "output", [named])).toEqual([]);
  });

  test("PA.12: schemas that refer to themselves are compared to the end, and grow below", () => {
    const tree = (more: object) => ({
      properties: { name: { type: "string" }, ...more, sub: { items: { $ref: "#" } } },
    });
    expect(both(tree({}), tree({ note: { default: "" } }))).toEqual([[], []]);
    expect(changes(tree({}), tree({ note: {} }))).toEqual(["/properties/note is new and has no default"]);
  });

  test("PA.12: names like those of every object are names", () => {
    const before = { properties: { a: true } };
    expect(changes(before, { properties: { a: true, constructor: {}, toString: {} } })).toHaveLength(2);
    expect(changes(before, { properties: { a: true, constructor: { default: 1 } } })).toEqual([]);
    expect(changes({ properties: { constructor: true } }, { properties: {} })).toEqual([
      "/properties/constructor is gone",
    ]);
  });

  test("PA.12: a comparison that would not end is refused", () => {
    // Two circles of parts: every part of one is met by every part of the other.
    const crossed = (size: number, shift: number) => ({
      items: { $ref: `#/$defs/d${shift}` },
      $defs: named(
        Array.from({ length: size }, (_, index) => [
          `d${index}`,
          {
            properties: {
              x: { $ref: `#/$defs/d${(index + 1) % size}` },
              y: { $ref: `#/$defs/d${(index + 7) % size}` },
            },
          },
        ]),
      ),
    });
    expect(refusal(() => changes(crossed(199, 0), crossed(211, 3))).code).toBe("contract-invalid");
  });
});

describe("a cluster", () => {
  const validators = createValidators(() => 0);
  const ceiling = { maxBytes: 100, maxDepth: 4, maxItems: 10 };
  const start: CommandDeclaration = {
    name: "start",
    class: "ephemeral",
    effect: "write",
    input: z.strictObject({ id: z.string() }),
    output: z.looseObject({ ok: z.boolean() }),
    modes: ["self"],
    capability: "jobs",
    traits: [{ urn: "com.example.slow", value: 1 }],
  };
  const submit: CommandDeclaration = {
    name: "submit",
    class: "journal",
    effect: "write",
    admissionCeiling: ceiling,
    action: {},
  };
  const { modes: _modes, ...untargeted } = start;
  const { input: _input, ...idle } = start;
  const { action: _action, ...passive } = submit;
  const jobs: ClusterDeclaration = {
    urn: "com.example.jobs.v1",
    revision: 4,
    attributes: [{ name: "load", schema: z.number() }],
    commands: [start, submit],
    events: [{ name: "done", schema: z.looseObject({ id: z.string() }) }],
  };

  function revision(declaration: ClusterDeclaration): ClusterRevision {
    const { clusters, schemas } = compileContract([declaration], validators);
    const document = present(clusters[0]).document;
    return { document, schema: (digest) => present(schemas.get(digest)) };
  }
  const against = (over: Partial<ClusterDeclaration>) =>
    clusterChanges(revision(jobs), revision({ ...jobs, revision: 5, ...over }));
  const withStart = (over: Partial<CommandDeclaration>) => against({ commands: [{ ...start, ...over }, submit] });
  const withSubmit = (over: Partial<CommandDeclaration>) => against({ commands: [start, { ...submit, ...over }] });

  test("PA.12: it stays as it is, or grows under a higher revision", () => {
    expect(clusterChanges(revision(jobs), revision(jobs))).toEqual([]);
    expect(against({})).toEqual([]);
    const grown = against({
      attributes: [...(jobs.attributes ?? []), { name: "more", schema: z.string() }],
      events: [...(jobs.events ?? []), { name: "more", schema: z.string() }],
      commands: [
        { name: "list", class: "ephemeral", effect: "read" },
        {
          ...start,
          modes: ["self", "owner"],
          traits: [...(start.traits ?? []), { urn: "com.example.new", value: 1 }],
          input: z.strictObject({ id: z.string(), times: z.int().default(1) }),
          output: z.looseObject({ ok: z.boolean(), at: z.number().default(0) }),
        },
        { ...submit, admissionCeiling: { ...ceiling, maxBytes: 101 } },
      ],
    });
    expect(grown).toEqual([]);
  });

  test("PA.12: a change under the same revision, or a lower one, is refused", () => {
    const more = { commands: [start, submit, { name: "list", class: "ephemeral", effect: "read" } as const] };
    expect(against({ ...more, revision: 4 })).toEqual(["revision 4 does not follow 4"]);
    expect(against({ ...more, revision: 3 })).toEqual(["revision 3 does not follow 4"]);
    expect(against({ revision: 3 })).toEqual(["revision 3 does not follow 4"]);
  });

  test("PA.12: another version of the URN is another line", () => {
    expect(against({ urn: "com.example.jobs.v2" })).toEqual([
      "com.example.jobs.v2 is another line than com.example.jobs.v1",
    ]);
  });

  test.each<[string, () => string[], string]>([
    ["a command is gone", () => against({ commands: [submit] }), "start: is gone"],
    ["an event is gone", () => against({ events: [] }), "event done: is gone"],
    ["an attribute is gone", () => against({ attributes: [] }), "attribute load: is gone"],
    [
      "an attribute has another schema",
      () => against({ attributes: [{ name: "load", schema: z.string() }] }),
      "attribute load: /type has changed",
    ],
    ["a write becomes a read", () => withStart({ effect: "read" }), "start: its effect has changed"],
    ["a capability changes", () => withStart({ capability: "other" }), "start: its capability has changed"],
    [
      "a target is no longer named",
      () => against({ commands: [untargeted, submit] }),
      "start: its targeted has changed",
    ],
    ["a mode is gone", () => withStart({ modes: ["owner"] }), "start: the mode self is gone"],
    [
      "a trait is gone",
      () => withStart({ traits: [] }),
      "start: the trait com.example.slow is gone or has another value",
    ],
    [
      "a trait has another value",
      () => withStart({ traits: [{ urn: "com.example.slow", value: 2 }] }),
      "start: the trait com.example.slow is gone or has another value",
    ],
    ["an action is none any more", () => against({ commands: [start, passive] }), "submit: its action has changed"],
    [
      "a ceiling shrinks",
      () => withSubmit({ admissionCeiling: { ...ceiling, maxItems: 9 } }),
      "submit: its maxItems has shrunk",
    ],
    [
      "a field must be there",
      () => withStart({ input: z.strictObject({ id: z.string(), more: z.string() }) }),
      "start: input /required has changed",
    ],
    [
      "an added field has no default",
      () => withStart({ input: z.strictObject({ id: z.string(), more: z.string().optional() }) }),
      "start: input /properties/more is new and has no default",
    ],
    ["an answer loses a field", () => withStart({ output: z.looseObject({}) }), "start: output /properties/ok is gone"],
    ["an argument becomes void", () => against({ commands: [idle, submit] }), "start: input /type has changed"],
  ])("PA.12: it is no growth that %s", (_, found, change) => {
    expect(found()).toContain(change);
  });

  test("PA.12: the refusal says all of it, and where to go", () => {
    const after = revision({ ...jobs, revision: 5, commands: [], events: [] });
    const error = refusal(() => checkGrowth(revision(jobs), after));
    expect(error.code).toBe("contract-invalid");
    for (const part of ["com.example.jobs.v1", "start: is gone", "submit: is gone", "event done: is gone"]) {
      expect(error.message).toContain(part);
    }
    expect(error.next).toContain("new version in its URN");
    expect(checkGrowth(revision(jobs), revision({ ...jobs, revision: 9 }))).toBe(undefined);
  });
});

test("PA.12: what Zod makes of a grown shape has grown", () => {
  const before = z.strictObject({ a: z.string(), kind: z.enum(["x"]) });
  const after = z.strictObject({
    a: z.string().describe("words"),
    kind: z.enum(["x", "y"]),
    b: z.array(z.string()).default([]),
  });
  expect(schemaChanges(zodClosure(before), zodClosure(after), "input")).toEqual([]);
  expect(schemaChanges(zodClosure(after), zodClosure(before), "input")).not.toEqual([]);
});
