/** What somebody submits as his contract (supplement A): nothing of it is believed, and it costs no more than its limits. */
import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { readSubmitted } from "../../services/provisioner/serving/submitted.ts";
import { type Artifact, artifactOf } from "../../shared/protocol/contract/artifact.ts";
import {
  type Closure,
  type SchemaClosure,
  documentClosure,
  schemaClosure,
} from "../../shared/protocol/contract/closure.ts";
import { compileContract, contractDocument } from "../../shared/protocol/contract/contract.ts";
import type { ClusterDeclaration } from "../../shared/protocol/contract/declare.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { VOID } from "../../shared/protocol/contract/zod-schema.ts";
import { RESERVED_COMMANDS } from "../../shared/protocol/endpoint/names.ts";
import { failure } from "../support/refusal.ts";
import { heapMiB } from "../support/vitals.ts";

const nothing = () => Promise.resolve(undefined);
const validators = createValidators();
const textsOf = (...closures: readonly Closure[]): string[] => [
  ...new Set(closures.flatMap(({ manifest, members }) => [manifest, ...members.values()]).map(({ text }) => text)),
];
const hashOf = (text: string): string => `sha256:${createHash("sha256").update(text).digest("hex")}`;
/** As published. */
const storeOf = (artifacts: readonly Artifact[]) => {
  const bytes = new Map(artifacts.map(({ digest, text }) => [digest, new TextEncoder().encode(text)]));
  return (digest: string) => Promise.resolve(bytes.get(digest));
};

const DEPLOY: ClusterDeclaration = {
  urn: "com.acme.deploy.v1",
  revision: 3,
  attributes: [{ name: "load", schema: z.number() }],
  events: [{ name: "done", schema: z.looseObject({ id: z.string() }) }],
  commands: [
    {
      name: "run",
      class: "ephemeral",
      effect: "write",
      input: z.strictObject({ what: z.string() }),
      capability: "deploy",
    },
    { name: "stop", class: "ephemeral", effect: "write", modes: ["self", "owner"] },
    { name: "list", class: "ephemeral", effect: "read", output: z.array(z.string()) },
  ],
};
const contract = compileContract([DEPLOY], validators);
const texts = contract.artifacts.map(({ text }) => text);
const { clusterDigests } = contract;
/** What has to be read of it. The rest (what a command's digest names, and void) is made here, not read. */
const made = new Set(
  [
    VOID,
    ...[...contract.commands.values()].map(({ cluster, document }) =>
      documentClosure(contractDocument(cluster, document)),
    ),
  ].flatMap(({ manifest, root }) => [manifest.digest, root.digest]),
);
const read = contract.artifacts.filter(({ digest }) => !made.has(digest));

const command = {
  name: "run",
  class: "ephemeral",
  effect: "read",
  inputDigest: VOID.digest,
  outputDigest: VOID.digest,
  targeted: false,
};
type Loose = Readonly<Record<string, unknown>>;

/** A cluster's document as somebody might write it by hand. */
const clusterOf = (over: Loose = {}): Closure =>
  documentClosure({ urn: "com.acme.a.v1", revision: 0, attributes: [], commands: [command], events: [], ...over });
const withCommand = (over: Loose): Closure => clusterOf({ commands: [{ ...command, ...over }] });
/** A cluster that shows these schemas as attributes. */
const showing = (...schemas: readonly SchemaClosure[]): Closure =>
  clusterOf({ commands: [], attributes: schemas.map(({ digest }, at) => ({ name: `a${at}`, schemaDigest: digest })) });

const submit = (cluster: Closure, ...others: readonly Closure[]) =>
  readSubmitted([cluster.digest], textsOf(cluster, ...others), nothing);

/** What it hands back, or the code it is refused with. */
function refusedOr<T>(run: () => T): unknown {
  try {
    return run();
  } catch (error) {
    return (error as { code: string }).code;
  }
}

async function expectRefused(pending: Promise<unknown>, code: string, words: string): Promise<void> {
  const error = await failure(pending);
  expect([error.code, error.message]).toEqual([code, expect.stringContaining(words)]);
}

describe("a lawful contract", () => {
  test("PA.06 PA.07 is read whole, and what is to be published is all of it, each once", async () => {
    const submitted = await readSubmitted(clusterDigests, texts, nothing);
    expect(submitted.commands.map(({ name }) => name)).toEqual(["list", "run", "stop"]);
    expect(submitted.clusters.map(({ document, digest }) => [document.urn, document.revision, digest])).toEqual([
      ["com.acme.deploy.v1", 3, clusterDigests[0]],
    ]);
    expect(submitted.artifacts.map(({ digest }) => digest).toSorted()).toEqual(
      contract.artifacts.map(({ digest }) => digest),
    );
  });

  test("PA.07 what is published already need not be sent again, in part or at all", async () => {
    const published = storeOf(contract.artifacts);
    for (const sent of [[], texts.slice(0, 3), texts]) {
      const { artifacts } = await readSubmitted(clusterDigests, sent, published);
      expect(artifacts.map(({ digest }) => digest).toSorted()).toEqual(contract.artifacts.map(({ digest }) => digest));
    }
  });

  test("PA.01 several clusters are one contract; the same one named twice is one", async () => {
    const other = compileContract(
      [{ urn: "com.acme.b.v1", revision: 0, commands: [{ name: "b", class: "ephemeral", effect: "read" }] }],
      validators,
    );
    const all = [...texts, ...other.artifacts.map(({ text }) => text)];
    const both = [...clusterDigests, ...other.clusterDigests];
    const { clusters, commands } = await readSubmitted([...both, ...both], all, nothing);
    expect([clusters.length, commands.length]).toEqual([2, 4]);
  });

  test("PA.05 the void schema need not be sent", async () => {
    const cluster = clusterOf();
    expect((await submit(cluster)).artifacts.map(({ text }) => text)).toContain(VOID.root.text);
    expect((await submit(cluster, VOID)).commands).toHaveLength(1);
  });
});

describe("PA.06 bytes and digests", () => {
  test("PA.06 an artifact that was tampered with is not the one that was named: nothing of it is read", async () => {
    expect(read.length).toBeGreaterThan(8);
    for (const { digest, text } of read) {
      const changed = texts.map((one) => (one === text ? one.replace(/"([a-z])/, '"x$1') : one));
      const error = await failure(readSubmitted(clusterDigests, changed, nothing));
      expect([error.code, error.message]).toEqual(["contract-mismatch", expect.stringContaining(digest)]);
    }
    // What is made here anyway is then no part of the contract.
    for (const digest of made) {
      const changed = contract.artifacts.map((one) => (one.digest === digest ? `${one.text} ` : one.text));
      await expectRefused(readSubmitted(clusterDigests, changed, nothing), "bad-request", "belongs to none");
    }
  });

  test("PA.06 a published artifact that was tampered with is refused, whatever lies under its digest", async () => {
    const store = storeOf(contract.artifacts);
    for (const { digest } of read) {
      const tampered = async (wanted: string) => (wanted === digest ? new TextEncoder().encode("{}") : store(wanted));
      await expectRefused(readSubmitted(clusterDigests, [], tampered), "contract-mismatch", digest);
    }
  });

  test("PA.06 a member that is missing refuses, whichever it is", async () => {
    for (const { digest, text } of read) {
      const less = texts.filter((one) => one !== text);
      await expectRefused(readSubmitted(clusterDigests, less, nothing), "contract-mismatch", digest);
    }
  });

  test("PA.07 what belongs to none of the clusters refuses: the store keeps for ever", async () => {
    const stray = artifactOf({ type: "string", $comment: "stray" });
    await expectRefused(readSubmitted(clusterDigests, [...texts, stray.text], nothing), "bad-request", stray.digest);
    // Nor can one be hidden in a manifest that lists more than its root reaches.
    const schema = schemaClosure({ type: "string" });
    const wide = artifactOf({ v: 1, root: schema.root.digest, members: [schema.root.digest, stray.digest].toSorted() });
    const cluster = clusterOf({ commands: [], attributes: [{ name: "a", schemaDigest: wide.digest }] });
    const sent = [...textsOf(cluster), wide.text, stray.text, schema.root.text];
    await expectRefused(
      readSubmitted([cluster.digest], sent, nothing),
      "contract-invalid",
      "exactly what its root reaches",
    );
  });

  test("PA.06 another spelling of the same document, half a character, and no JSON are refused", async () => {
    const [first = ""] = texts;
    for (const odd of [` ${first}`, `${first}\n`, JSON.stringify(JSON.parse(first), null, 1), "\uD800", "{", ""]) {
      const error = await failure(readSubmitted(clusterDigests, [...texts, odd], nothing));
      expect([odd.slice(0, 20), error.code]).toEqual([odd.slice(0, 20), "bad-request"]);
    }
  });

  test("PA.01 a digest of something that is no cluster is refused", async () => {
    const schema = schemaClosure({ type: "string" });
    await expectRefused(submit(schema), "contract-invalid", "is no cluster");
    await expectRefused(
      readSubmitted([schema.root.digest], [schema.root.text], nothing),
      "contract-invalid",
      "no manifest",
    );
    await expectRefused(submit(clusterOf({ urn: "deploy" })), "contract-invalid", "is no cluster");
    await expectRefused(submit(clusterOf({ revision: -1 })), "contract-invalid", "is no cluster");
  });
});

describe("PA.01 what a document may declare", () => {
  test("PA.01 a command or a cluster that stands twice refuses, within one cluster and across two", async () => {
    await expectRefused(
      submit(clusterOf({ commands: [command, { ...command, effect: "write" }] })),
      "contract-invalid",
      '"run" twice',
    );
    const [one, two] = [clusterOf(), clusterOf({ urn: "com.acme.b.v1" })];
    const twice = readSubmitted([one.digest, two.digest], textsOf(one, two), nothing);
    await expectRefused(twice, "contract-invalid", 'the command "run" twice');
    const again = withCommand({ name: "other" });
    const lines = readSubmitted([one.digest, again.digest], textsOf(one, again), nothing);
    await expectRefused(lines, "contract-invalid", 'the cluster "com.acme.a.v1" twice');
  });

  test("PA.01 names that every endpoint keeps for the contract are not declared by anybody", async () => {
    for (const name of [...RESERVED_COMMANDS, "Run", "a.b", "", "x".repeat(33), "*", ">"]) {
      expect([name, (await failure(submit(withCommand({ name })))).code]).toEqual([name, "contract-invalid"]);
    }
  });

  const ceiling = { maxBytes: 1, maxDepth: 1, maxItems: 1 };
  test.each([
    ["a journal command without an admission ceiling", { class: "journal" }],
    ["an ephemeral one with a ceiling", { admissionCeiling: ceiling }],
    ["an action that is no journal command", { action: {} }],
    [
      "a trait twice",
      {
        traits: [
          { urn: "com.acme.x", value: 1 },
          { urn: "com.acme.x", value: 2 },
        ],
      },
    ],
    ["modes, each once", { targeted: true, modes: ["self", "self"] }],
    ["modes and no target", { targeted: false, modes: ["self"] }],
    ["a target and no modes", { targeted: true }],
    ["an effect that nobody knows", { effect: "none" }],
    ["no effect", { effect: null }],
    ["a class that nobody knows", { class: "session" }],
    ["a capability that is no token", { capability: "a.b" }],
  ])("PA.01 refuses %s", async (_what, over) => {
    expect((await failure(submit(withCommand(over)))).code).toBe("contract-invalid");
  });

  test("PA.01 a journal command with its ceiling, an action, and a targeted command are taken", async () => {
    const commands = [
      { ...command, name: "a", class: "journal", admissionCeiling: ceiling, action: { readinessDeadlineMs: 5 } },
      { ...command, name: "b", targeted: true, modes: ["self", "owner"] },
      { ...command, name: "c", traits: [{ urn: "com.acme.x", value: { a: [1] } }], later: true },
    ];
    expect((await submit(clusterOf({ commands }))).commands.map(({ name }) => name)).toEqual(["a", "b", "c"]);
  });

  test("PA.01 an attribute or an event that stands twice refuses", async () => {
    for (const field of ["attributes", "events"]) {
      const list = [1, 2].map(() => ({ name: "load", schemaDigest: VOID.digest }));
      await expectRefused(submit(clusterOf({ [field]: list })), "contract-invalid", '"load" twice');
    }
  });
});

describe("PA.04 what it may cost", () => {
  test("PA.04 more commands than a credential carries are refused before a schema is read", async () => {
    const many = (count: number) =>
      clusterOf({
        commands: Array.from({ length: count }, (_, at) => ({
          ...command,
          name: `c${at}`,
          inputDigest: at === 0 ? `sha256:${"0".repeat(64)}` : VOID.digest,
        })),
      });
    await expectRefused(submit(many(193)), "contract-invalid", "193 commands");
    await expectRefused(submit(many(192)), "contract-mismatch", "missing");
  });

  test("PA.04 more schemas than a contract has use for are refused before one is read", async () => {
    const cluster = clusterOf({
      events: Array.from({ length: 512 }, (_, at) => ({
        name: `e${at}`,
        schemaDigest: `sha256:${at.toString(16).padStart(64, "0")}`,
      })),
    });
    await expectRefused(submit(cluster), "contract-invalid", "513 schemas");
  });

  test("PA.04 a document over 256 KiB, a closure over 1 MiB", async () => {
    const text = JSON.stringify({ $comment: "x".repeat(256 * 1024) });
    const big = hashOf(text);
    const manifest = artifactOf({ v: 1, root: big, members: [big] });
    const cluster = clusterOf({ attributes: [{ name: "a", schemaDigest: manifest.digest }] });
    await expectRefused(
      readSubmitted([cluster.digest], [...textsOf(cluster), manifest.text, text], nothing),
      "contract-invalid",
      "over the limit of 262144",
    );
    const parts = Array.from({ length: 5 }, (_, at) => artifactOf({ $comment: `${at}${"x".repeat(250_000)}` }));
    const root = artifactOf({ anyOf: parts.map(({ digest }) => ({ $ref: digest })) });
    const members = [root, ...parts];
    const wide = artifactOf({ v: 1, root: root.digest, members: members.map(({ digest }) => digest).toSorted() });
    const holder = clusterOf({ attributes: [{ name: "a", schemaDigest: wide.digest }] });
    await expectRefused(
      readSubmitted([holder.digest], [...textsOf(holder), wide.text, ...members.map(({ text: one }) => one)], nothing),
      "contract-invalid",
      "over the limit of 1048576",
    );
  });

  test("PA.04 nesting past every stack is refused, in a schema and in a cluster", async () => {
    const deep = (depth: number) => `${'{"not":'.repeat(depth)}{}${"}".repeat(depth)}`;
    for (const depth of [32, 5_000, 40_000]) {
      const text = deep(depth);
      const digest = hashOf(text);
      const manifest = artifactOf({ v: 1, root: digest, members: [digest] });
      const cluster = clusterOf({ attributes: [{ name: "a", schemaDigest: manifest.digest }] });
      const sent = [...textsOf(cluster), manifest.text, text];
      const schema = await failure(readSubmitted([cluster.digest], sent, nothing));
      const asCluster = await failure(readSubmitted([manifest.digest], [manifest.text, text], nothing));
      expect([depth, schema.code, asCluster.code]).toEqual([depth, "contract-invalid", "contract-invalid"]);
    }
  });

  test.each([
    ["nested repetition", "(a+)+$"],
    ["nested groups", "^(([a-z])+.)+[A-Z]([a-z])+$"],
    ["alternatives that overlap", "(a|aa)+$"],
    ["many optional parts", "^(a?){50}a{50}$"],
    ["a look ahead", "(?=a)"],
    ["a reference back", "(a)\\1"],
    ["a large bound", "x{1,100000}"],
    ["500 groups", `${"(".repeat(500)}a${")*".repeat(500)}`],
    ["no pattern", "["],
  ])("PA.04 a pattern with %s is refused, or judges a hostile text within its bounds", async (_what, pattern) => {
    const raw = documentClosure({ type: "string", pattern });
    const cluster = clusterOf({ commands: [], attributes: [{ name: "a", schemaDigest: raw.digest }] });
    const codes = await submit(cluster, raw).then(
      ({ clusters: [only] }) => {
        const compiled = validators.of(only?.schemas.get(raw.digest) ?? VOID);
        const texts = [`${"a".repeat(50)}!`, `${"a".repeat(5000)}!`];
        return texts.map((text) => refusedOr(() => compiled.check(text).length));
      },
      (error: unknown) => [(error as { code: string }).code],
    );
    expect(codes.filter((code) => code !== 1 && code !== 0 && code !== "contract-invalid")).toEqual([]);
  });

  test("PA.04 a schema that refers to itself without a step, and one that fetches, are refused", async () => {
    for (const schema of [
      { $ref: "#" },
      { $ref: "https://example.com/schema.json" },
      { $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } },
    ]) {
      const raw = documentClosure(schema);
      const cluster = clusterOf({ commands: [], attributes: [{ name: "a", schemaDigest: raw.digest }] });
      expect((await failure(submit(cluster, raw))).code).toBe("contract-invalid");
    }
  });

  test("PA.04 many schemas that each keep their own budget have one together", async () => {
    // Each takes some tens of milliseconds to compile.
    const heavy = Array.from({ length: 200 }, (_, at) =>
      schemaClosure({
        properties: Object.fromEntries(
          Array.from({ length: 12 }, (_one, which) => [`p${which}`, { pattern: `[a-z]{0,900}x${at}y${which}` }]),
        ),
      }),
    );
    await expectRefused(submit(showing(...heavy), ...heavy), "contract-invalid", "to compile");
  }, 120_000);

  test("PA.04 closures that share their members are counted each, by all that is read for them", async () => {
    const shared = Array.from({ length: 4 }, (_, at) => ({ $comment: `${at}${"x".repeat(240_000)}`, type: "null" }));
    const refs = shared.map((one) => ({ $ref: artifactOf(one).digest }));
    const all = Array.from({ length: 40 }, (_, at) => schemaClosure({ $comment: `${at}`, anyOf: refs }, shared));
    await expectRefused(submit(showing(...all), ...all), "contract-invalid", "bytes of schemas");
  }, 30_000);

  test("PA.04 while somebody's contract is read, everybody else has his turn", async () => {
    const schemas = Array.from({ length: 100 }, (_, at) =>
      schemaClosure({ type: "object", properties: { [`turn${at}`]: {} } }),
    );
    let turns = 0;
    let reading = true;
    const other = async (): Promise<void> => {
      while (reading) {
        await new Promise((resolve) => setImmediate(resolve));
        turns += 1;
      }
    };
    const beside = other();
    await submit(showing(...schemas), ...schemas);
    reading = false;
    await beside;
    expect(turns).toBeGreaterThanOrEqual(100);
  });

  test("PA.04 10,000 distinct schemas leave no memory behind", async () => {
    const run = async (from: number, to: number): Promise<number> => {
      for (let at = from; at < to; at += 400) {
        const schemas = Array.from({ length: 400 }, (_, one) =>
          schemaClosure({ type: "object", properties: { [`p${at + one}`]: { type: "string", maxLength: 5 } } }),
        );
        await submit(showing(...schemas), ...schemas);
      }
      return heapMiB();
    };
    const early = await run(0, 2_000);
    const late = await run(2_000, 10_000);
    expect(late - early).toBeLessThan(20);
  }, 120_000);
});
