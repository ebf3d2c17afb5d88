/**
 * Registering a contract in a real space, with documents as somebody writes them by hand: what is refused
 * leaves no registration and no right behind, and what only grows moves the same instance on (supplement A).
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { leaderLast } from "../../shared/broker/reads.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { type Closure, documentClosure, schemaClosure } from "../../shared/protocol/contract/closure.ts";
import { VOID } from "../../shared/protocol/contract/zod-schema.ts";
import { RegisterAnswer } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { EndpointsAnswer } from "../../shared/protocol/endpoint/reads-shapes.ts";
import { GovernRow } from "../../shared/protocol/ledger/service-rows.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { headKey } from "../support/heads.ts";
import { tap } from "../support/probe.ts";
import { failure } from "../support/refusal.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";

const records = spaceNames("main").bucket.records;
let space: TestSpace;
let store: NatsConnection;
let service: Minted;

beforeAll(async () => {
  space = await startSpace();
  store = await space.store();
  service = await space.mint({ actor: "service", capabilities: ["serve"] });
}, 60_000);
afterAll(() => space.stop());

type Loose = Readonly<Record<string, unknown>>;

const command = {
  name: "run",
  class: "ephemeral",
  effect: "write",
  inputDigest: VOID.digest,
  outputDigest: VOID.digest,
  targeted: false,
};
const { effect: _effect, ...withoutEffect } = command;
const clusterOf = (over: Loose = {}): Closure =>
  documentClosure({ urn: "com.acme.job.v1", revision: 0, attributes: [], commands: [command], events: [], ...over });
const withCommands = (...commands: readonly Loose[]): Closure =>
  clusterOf({ commands: commands.map((over) => ({ ...command, ...over })) });
const textsOf = (...closures: readonly Closure[]): string[] => [
  ...new Set(closures.flatMap(({ manifest, members }) => [manifest, ...members.values()]).map(({ text }) => text)),
];

type Submission = {
  readonly clusters: readonly Closure[];
  readonly schemas?: readonly Closure[];
  readonly userKey?: string;
};

/** A name of its own, given to the service's owner. */
let names = 0;
async function assigned(): Promise<string> {
  names += 1;
  const endpoint = `com.example.job${names}`;
  await space.call("endpoint-assign", { endpoint, owner: "acme" });
  return endpoint;
}

async function register(endpoint: string, submission: Submission): Promise<RegisterAnswer> {
  const { clusters, schemas = [], userKey = newKey("user").publicKey } = submission;
  const artifacts = textsOf(...clusters, ...schemas);
  const clusterDigests = clusters.map(({ digest }) => digest).toSorted();
  return RegisterAnswer.parse(
    await space.call("register", { endpoint, userKey, clusterDigests, artifacts }, { as: service }),
  );
}

const listed = async (endpoint: string): Promise<unknown[]> =>
  EndpointsAnswer.parse(await space.call("endpoints", {})).endpoints.filter((one) => one.endpoint === endpoint);
async function headOf(endpoint: string): Promise<GovernRow | undefined> {
  const row = await leaderLast(store, bucketStream(records), kvKey(records, headKey(endpoint)));
  return row === undefined ? undefined : GovernRow.parse(JSON.parse(new TextDecoder().decode(row.data)));
}

const DEEP = { type: "object", properties: { a: { $ref: "#/$defs/x" } }, $defs: { x: { $ref: "#/$defs/x" } } };
const FETCHES = { $ref: "https://example.com/schema.json" };
const schemaDigest = (schema: unknown): string => {
  const { root, manifest } = documentClosure(schema);
  expect(root.text.length).toBeGreaterThan(0);
  return manifest.digest;
};

describe("what is refused", () => {
  const refusedContracts: readonly (readonly [what: string, Submission])[] = [
    ...["describe", "cancel", "resume", "lease", "commit"].map(
      (name) => [`W132.02 the reserved command ${name}`, { clusters: [withCommands({ name })] }] as const,
    ),
    ...["Run", "a.b", "a_b", "*", "x".repeat(33), ""].map(
      (name) => [`W132.02 the command ${JSON.stringify(name)}`, { clusters: [withCommands({ name })] }] as const,
    ),
    ["PA.01 a command that stands twice in a cluster", { clusters: [withCommands({}, { effect: "read" })] }],
    [
      "PA.01 a command that stands in two clusters",
      { clusters: [withCommands({}), clusterOf({ urn: "com.acme.more.v1" })] },
    ],
    ["PA.01 a journal command without a ceiling", { clusters: [withCommands({ class: "journal" })] }],
    ["PA.01 a target without modes", { clusters: [withCommands({ targeted: true })] }],
    ["PA.02 a command that does not say its effect", { clusters: [clusterOf({ commands: [withoutEffect] })] }],
    ["PA.02 a command of an effect that is none", { clusters: [withCommands({ effect: "delete" })] }],
    [
      "PA.04 a schema that refers to itself without a step",
      { clusters: [withCommands({ inputDigest: schemaDigest(DEEP) })], schemas: [documentClosure(DEEP)] },
    ],
    [
      "PA.04 a schema that would be fetched",
      { clusters: [withCommands({ inputDigest: schemaDigest(FETCHES) })], schemas: [documentClosure(FETCHES)] },
    ],
  ];

  test.each(refusedContracts)("%s: contract-invalid; no instance, no head, no credential", async (_, submission) => {
    const endpoint = await assigned();
    const error = await failure(register(endpoint, submission));
    expect([error.code, error.outcome]).toEqual(["contract-invalid", "not-executed"]);
    expect(await listed(endpoint)).toEqual([]);
    expect(await headOf(endpoint)).toBeUndefined();
  });

  test("PA.06 an artifact that was tampered with, and one that is missing: no instance, no head", async () => {
    const endpoint = await assigned();
    const whole = withCommands({});
    const userKey = newKey("user").publicKey;
    const ask = (artifacts: readonly string[]) =>
      failure(
        space.call("register", { endpoint, userKey, clusterDigests: [whole.digest], artifacts }, { as: service }),
      );
    const texts = textsOf(whole);
    const wrong = texts.map((text, at) => texts.with(at, text.replace('"', '" ')));
    for (const artifacts of [...wrong, ...texts.map((_, at) => texts.toSpliced(at, 1))]) {
      expect((await ask(artifacts)).outcome).toBe("not-executed");
    }
    expect(await listed(endpoint)).toEqual([]);
    expect(await headOf(endpoint)).toBeUndefined();
  });
});

test("PD.08 what a registration decides on is read at the leader, and nothing of it directly", async () => {
  const endpoint = await assigned();
  // Whatever else reads is not there to be heard.
  await space.delivery?.kill("SIGTERM");
  const asked = await tap(store, "$JS.API.>");
  await register(endpoint, { clusters: [withCommands({})] });
  await store.flush();
  const reads = asked.subjects().filter((subject) => /\.(?:MSG|DIRECT)\.GET\./.test(subject));
  asked.stop();
  space.delivery?.restart();
  await space.delivery?.ready();
  const { auth } = spaceNames("main").bucket;
  const at = (bucket: string) => `$JS.API.STREAM.MSG.GET.${bucketStream(bucket)}`;
  expect(new Set(reads)).toEqual(new Set([at(records), at(auth), `$JS.API.STREAM.MSG.GET.${spaceNames("main").epc}`]));
});

describe("what follows a registration", () => {
  const input = (...required: readonly string[]) =>
    schemaClosure({
      type: "object",
      properties: Object.fromEntries(["a", "b"].map((name) => [name, { type: "string", default: "" }])),
      required,
      additionalProperties: false,
    });
  const revision = (at: number, schema: ReturnType<typeof input>, over: Loose = {}): Submission => ({
    clusters: [clusterOf({ revision: at, commands: [{ ...command, inputDigest: schema.digest, ...over }] })],
    schemas: [schema],
  });

  test("PA.12 what has not only grown is refused within its line, and is free under another URN", async () => {
    const endpoint = await assigned();
    await register(endpoint, revision(1, input("a")));
    const before = await headOf(endpoint);
    const narrowed: readonly Submission[] = [
      revision(2, input("a", "b")),
      revision(2, input("a"), { name: "walk" }),
      revision(2, input("a"), { effect: "read" }),
      revision(2, input("a"), { capability: "job" }),
      revision(2, input("a"), { targeted: true, modes: ["self"] }),
      // Another content under the same revision.
      revision(1, input()),
    ];
    for (const submission of narrowed) {
      const error = await failure(register(endpoint, submission));
      expect([error.code, error.outcome]).toEqual(["contract-invalid", "not-executed"]);
    }
    expect(await headOf(endpoint)).toEqual(before);
    expect(await listed(endpoint)).toHaveLength(1);
    const other = clusterOf({
      urn: "com.acme.job.v2",
      commands: [{ ...command, inputDigest: input("a", "b").digest }],
    });
    await register(endpoint, { clusters: [other], schemas: [input("a", "b")] });
    expect((await headOf(endpoint))?.clusters.map(({ urn }) => urn)).toEqual(["com.acme.job.v1", "com.acme.job.v2"]);
  });

  test.each(["ai.cotal.guarded", "ai.cotal.priced"])(
    "PA.11 a registration that drops %s, or changes its value, is refused, in its own line and beside it; the head remembers",
    async (urn) => {
      const endpoint = await assigned();
      const governed = (at: number, traits: readonly object[] | undefined, line = "com.acme.job.v1"): Submission => ({
        clusters: [
          clusterOf({
            urn: line,
            revision: at,
            commands: [{ ...command, ...(traits === undefined ? {} : { traits }) }],
          }),
        ],
      });
      await register(endpoint, governed(1, [{ urn, value: { limit: 1 } }]));
      const before = await headOf(endpoint);
      expect(before?.bindings).toMatchObject([{ command: "run", traitUrn: urn }]);
      for (const line of ["com.acme.job.v1", "com.acme.job.v2"]) {
        for (const traits of [undefined, [], [{ urn, value: { limit: 2 } }], [{ urn: "com.acme.free", value: 1 }]]) {
          const error = await failure(register(endpoint, governed(2, traits, line)));
          expect(["contract-invalid", "failed-precondition"]).toContain(error.code);
          expect(error.outcome).toBe("not-executed");
        }
      }
      expect(await headOf(endpoint)).toEqual(before);
      const kept = await register(
        endpoint,
        governed(2, [
          { urn, value: { limit: 1 } },
          { urn: "com.acme.free", value: 1 },
        ]),
      );
      expect(kept.registrationRevision).toBeGreaterThan(0);
      expect((await headOf(endpoint))?.bindings).toEqual(before?.bindings);
    },
  );
});
