/** Declarations of clusters (supplement A): what is taken, what is refused, and the documents that come of it. */
import { describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import {
  type Args,
  type ArgsIn,
  type ClusterDeclaration,
  type CommandDeclaration,
  type CommandName,
  type Result,
  defineCluster,
} from "../../shared/protocol/contract/declare.ts";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { ClusterDocument, CommandDocument, isClusterUrn } from "../../shared/protocol/contract/documents.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { refusal } from "../support/refusal.ts";

const ceiling = { maxBytes: 1024, maxDepth: 8, maxItems: 100 };
const command: CommandDeclaration = { name: "run", class: "ephemeral", effect: "read" };
const cluster = (over: Partial<ClusterDeclaration> = {}): ClusterDeclaration => ({
  urn: "com.example.jobs.v1",
  revision: 0,
  commands: [command],
  ...over,
});
const withCommand = (over: object): ClusterDeclaration =>
  cluster({ commands: [{ ...command, ...over } as CommandDeclaration] });
const compile = (...clusters: ClusterDeclaration[]) => compileContract(clusters, createValidators());

function expectRefused(declaration: ClusterDeclaration, words: string): void {
  for (const attempt of [() => defineCluster(declaration), () => compile(declaration)]) {
    const error = refusal(attempt);
    expect([error.code, error.message]).toEqual(["contract-invalid", expect.stringContaining(words)]);
  }
}

describe("a command", () => {
  test("PA.01: everything it declares stands in its document", () => {
    const { commands, clusters } = compile(
      cluster({
        attributes: [{ name: "load", schema: z.number() }],
        events: [{ name: "done", schema: z.looseObject({ id: z.string() }) }],
        commands: [
          {
            name: "stop",
            class: "journal",
            effect: "write",
            input: z.strictObject({ reason: z.string() }),
            modes: ["self", "owner"],
            capability: "stop-jobs",
            traits: [{ urn: "com.example.slow", value: { seconds: 3 } }],
            action: { readinessDeadlineMs: 30_000 },
            admissionCeiling: ceiling,
          },
          command,
        ],
      }),
    );
    const stop = commands.get("stop");
    expect(stop?.document).toEqual({
      name: "stop",
      class: "journal",
      effect: "write",
      inputDigest: stop?.input.digest,
      outputDigest: stop?.output.digest,
      targeted: true,
      modes: ["owner", "self"],
      capability: "stop-jobs",
      traits: [{ urn: "com.example.slow", value: { seconds: 3 } }],
      action: { readinessDeadlineMs: 30_000 },
      admissionCeiling: ceiling,
    });
    expect(commands.get("run")?.document).not.toHaveProperty("modes");
    expect(commands.get("run")?.document.targeted).toBe(false);
    const document = clusters[0]?.document;
    expect(document?.commands.map(({ name }) => name)).toEqual(["run", "stop"]);
    expect(Object.keys(document ?? {}).toSorted()).toEqual(["attributes", "commands", "events", "revision", "urn"]);
    expect([document?.attributes[0]?.name, document?.events[0]?.name]).toEqual(["load", "done"]);
    expect(ClusterDocument.safeParse(document).success).toBe(true);
  });

  test.each(["describe", "cancel", "lease", "commit", "resume"])(
    "W132.02: the name %s is the contract's own",
    (name) => {
      expectRefused(withCommand({ name }), "is no command's name, or one of");
    },
  );

  test.each(["", "Run", "run_it", "run it", "run.it", "r".repeat(33), "ünit", "*", ">"])(
    "W132.02: %j is no command's name",
    (name) => {
      expectRefused(withCommand({ name }), "is no command's name");
    },
  );

  test.each([["a"], ["0"], ["-"], ["a-b-0"], ["r".repeat(32)]])("W132.02: %j is one", (name) => {
    expect(compile(withCommand({ name })).commands.has(name)).toBe(true);
  });

  test.each<[string, object]>([
    ["is neither ephemeral nor journal", { class: "record" }],
    ["has neither the effect read nor write", { effect: undefined }],
    ["has neither the effect read nor write", { effect: "both" }],
    ["has no list of authorization modes", { modes: [] }],
    ["has no list of authorization modes", { modes: ["self", "self"] }],
    ["has no list of authorization modes", { modes: ["other"] }],
    ["needs a capability that is no token", { capability: "Stop Jobs" }],
    ["needs a capability that is no token", { capability: "" }],
    ["carries a malformed trait", { traits: [{ urn: "slow", value: 1 }] }],
    ["carries a malformed trait", { traits: [{ urn: "com.example.slow" }] }],
    [
      "carries a trait twice",
      {
        traits: [
          { urn: "com.example.slow", value: 1 },
          { urn: "com.example.slow", value: 2 },
        ],
      },
    ],
    ["is an action and not of the class journal", { action: {} }],
    [
      "has a malformed action marker",
      { action: { readinessDeadlineMs: 0 }, class: "journal", admissionCeiling: ceiling },
    ],
    ["has to have an admissionCeiling", { class: "journal" }],
    ["has to have an admissionCeiling", { admissionCeiling: ceiling }],
    ["has an admissionCeiling without", { class: "journal", admissionCeiling: { maxBytes: 1, maxDepth: 1 } }],
    ["has an admissionCeiling without", { class: "journal", admissionCeiling: { ...ceiling, maxItems: 0 } }],
    ["has an admissionCeiling without", { class: "journal", admissionCeiling: { ...ceiling, maxBytes: 2 ** 53 } }],
  ])("PA.01: a command that %s is refused (%j)", (words, over) => {
    expectRefused(withCommand(over), words);
  });

  test("PA.02: every published command says its effect, and no reader takes one without", () => {
    const document = compile(cluster()).commands.get("run")?.document;
    expect(document?.effect).toBe("read");
    const { effect: _, ...without } = document ?? { effect: "read" };
    expect(CommandDocument.safeParse(document).success).toBe(true);
    expect(CommandDocument.safeParse(without).success).toBe(false);
    expect(CommandDocument.safeParse({ ...without, effect: "none" }).success).toBe(false);
  });

  test("PA.05: a side that is left out is void, and the other is not", () => {
    const run = compile(withCommand({ input: z.strictObject({}) })).commands.get("run");
    expect(run?.output.root.value).toEqual({ type: "null" });
    expect(run?.input.root.value).toMatchObject({ type: "object" });
  });

  test("PA.04: a contract whose schema does not compile does not come to be", () => {
    const shape = z.strictObject({ a: z.string().regex(/^(?!x)/) });
    for (const declaration of [
      withCommand({ input: shape }),
      withCommand({ output: shape }),
      cluster({ events: [{ name: "e", schema: shape }] }),
      cluster({ attributes: [{ name: "a", schema: shape }] }),
    ]) {
      expect(refusal(() => compile(declaration)).code).toBe("contract-invalid");
    }
  });
});

describe("a cluster", () => {
  test.each(["com.example.jobs.v1", "ai.cotal.provisioner.v12", "com.a-b.C.v999999"])("PA.12: %s is a URN", (urn) => {
    expect(isClusterUrn(urn)).toBe(true);
  });

  test.each([
    "jobs",
    "jobs.v1x",
    "com.example.jobs",
    "com.example.jobs.v0",
    "com.example.jobs.v01",
    "com.example.jobs.V1",
    "com.example.jobs.1",
    "com_example.jobs.v1",
    "com..jobs.v1",
    ".com.jobs.v1",
    `com.${"a".repeat(59)}.v1`,
    "com.example.jobs.v1\n",
  ])("PA.12: %j has no version, or is no name: refused", (urn) => {
    expectRefused(cluster({ urn }), "has no URN");
  });

  test.each([-1, 0.5, 2 ** 53, Number.NaN, "1"])("PA.01: %j is no revision", (revision) => {
    expectRefused(cluster({ revision: revision as number }), "has a revision that is no whole number");
  });

  test("PA.01: contract integers go up to 2^53-1", () => {
    expect(compile(cluster({ revision: Number.MAX_SAFE_INTEGER })).clusters[0]?.document.revision).toBe(2 ** 53 - 1);
  });

  test("PA.01: a name stands once among its attributes, its commands and its events", () => {
    const schema = z.string();
    expectRefused(cluster({ commands: [command, { ...command, effect: "write" }] }), '"run" twice under commands');
    expectRefused(
      cluster({
        events: [
          { name: "e", schema },
          { name: "e", schema },
        ],
      }),
      '"e" twice under events',
    );
    expectRefused(
      cluster({
        attributes: [
          { name: "a", schema },
          { name: "a", schema },
        ],
      }),
      '"a" twice under attributes',
    );
    expectRefused(cluster({ events: [{ name: "E", schema }] }), "names something");
    const all = cluster({ attributes: [{ name: "run", schema }], events: [{ name: "run", schema }] });
    expect(compile(all).commands.size).toBe(1);
  });

  test("PA.01: a command is declared once across the whole contract", () => {
    const error = refusal(() => compile(cluster(), cluster({ urn: "com.example.other.v1" })));
    expect([error.code, error.message]).toEqual(["contract-invalid", 'the contract declares the command "run" twice']);
  });

  test("PA.01: a line of revisions stands once in a contract; another version of it may stand beside", () => {
    const error = refusal(() => compile(cluster(), cluster({ revision: 1, commands: [{ ...command, name: "walk" }] })));
    expect(error.message).toContain('the cluster "com.example.jobs.v1" twice');
    const both = compile(cluster(), cluster({ urn: "com.example.jobs.v2", commands: [{ ...command, name: "walk" }] }));
    expect(both.clusterDigests).toHaveLength(2);
  });
});

test("PA.01: a declaration's types are those of its shapes", () => {
  const jobs = defineCluster({
    urn: "com.example.jobs.v1",
    revision: 0,
    commands: [
      {
        name: "start",
        class: "ephemeral",
        effect: "write",
        input: z.strictObject({ id: z.string(), times: z.int().default(1) }),
        output: z.looseObject({ started: z.boolean() }),
      },
      { name: "stop", class: "ephemeral", effect: "write" },
    ],
  });
  type Jobs = typeof jobs;
  expectTypeOf<CommandName<Jobs>>().toEqualTypeOf<"start" | "stop">();
  expectTypeOf<Args<Jobs, "start">>().toEqualTypeOf<{ id: string; times: number }>();
  expectTypeOf<ArgsIn<Jobs, "start">>().toEqualTypeOf<{ id: string; times?: number | undefined }>();
  expectTypeOf<Result<Jobs, "start">["started"]>().toEqualTypeOf<boolean>();
  expectTypeOf<Args<Jobs, "stop">>().toEqualTypeOf<undefined>();
  expect(compile(jobs).commands.size).toBe(2);
});
