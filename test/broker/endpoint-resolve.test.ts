/** What a caller believes of a contract (supplement A): the version first, the bytes always, and how long it is kept. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import type { Connection } from "../../shared/broker/connect.ts";
import { type Contract, compileContract } from "../../shared/protocol/contract/contract.ts";
import { defineCluster } from "../../shared/protocol/contract/declare.ts";
import { type Descriptor, describeFor } from "../../shared/protocol/contract/descriptor.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { CLERK, ENDPOINT, SPACE, type CallerRig, callerOn, contract, dial } from "../support/endpoint-rig.ts";
import {
  type Behaviour,
  type Foreign,
  NOTHING,
  type Told,
  artifactsOf,
  startForeign,
  startReads,
} from "../support/foreign-endpoint.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { failure } from "../support/refusal.ts";

let broker: TestBroker;
let asker: Connection;
let server: Connection;
let reads: Foreign;
let foreign: Foreign;
let rig: CallerRig;
let served: Contract = contract;
let revision = 7;
let descriptor: ((lawful: Descriptor) => unknown) | undefined;
let look: Behaviour = () => ({ seen: "x" });
const told: Told = { artifacts: new Map(), endpoints: [] };

beforeAll(async () => {
  broker = await startBroker();
  asker = await dial(broker.url, "asker");
  server = await dial(broker.url, "server");
  reads = await startReads(server.nc, SPACE, told);
  foreign = await startForeign({
    nc: server.nc,
    space: SPACE,
    endpoint: ENDPOINT,
    commands: {
      describe: () => {
        const described = { endpoint: ENDPOINT, registrationRevision: revision, contract: served };
        const lawful = describeFor({ ...described, publicDescriptor: true }, undefined);
        return descriptor === undefined ? lawful : descriptor(lawful);
      },
      look: (received) => look(received),
      put: () => null,
    },
  });
});
beforeEach(() => {
  told.artifacts.clear();
  for (const [digest, text] of artifactsOf(contract)) told.artifacts.set(digest, text);
  rig = callerOn(asker.nc, asker.inboxPrefix);
});
afterEach(() => {
  served = contract;
  revision = 7;
  descriptor = undefined;
  look = () => ({ seen: "x" });
});
afterAll(async () => {
  await asker.close();
  await server.close();
  await broker.stop();
});

const count = (of: Foreign, command: string): number =>
  of.received.filter(({ subject }) => subject.command === command).length;
const called = (): number => count(foreign, "look");

describe("what is believed", () => {
  test.each([1, 3, 4_000_000])(
    "PA.03: a descriptor of protocol version %d is refused, and nothing is called",
    async (v) => {
      descriptor = (lawful) => ({ ...lawful, protocol: { v } });
      const before = called();
      const [fetched] = [count(reads, "artifacts")];
      expect(await failure(rig.client.call(ENDPOINT, "look", { at: "x" }))).toMatchObject({
        code: "unsupported-version",
        outcome: "not-executed",
      });
      expect(called()).toBe(before);
      expect(count(reads, "artifacts")).toBe(fetched);
    },
  );

  test("PA.03: the version is read before anything else of a descriptor", async () => {
    descriptor = () => ({ protocol: { v: 3 }, commands: "another shape" });
    expect((await failure(rig.client.describe(ENDPOINT))).code).toBe("unsupported-version");
  });

  test.each([
    { what: "no protocol", change: (d: Descriptor) => ({ ...d, protocol: undefined }) },
    { what: "no commands", change: (d: Descriptor) => ({ ...d, commands: undefined }) },
    {
      what: "a command without effect",
      change: (d: Descriptor) => ({ ...d, commands: [{ ...d.commands[0], effect: undefined }] }),
    },
    { what: "a text", change: () => "a text" },
  ])("a descriptor with $what is contract-invalid, and nothing is called", async ({ change }) => {
    descriptor = change;
    const before = called();
    expect(await failure(rig.client.call(ENDPOINT, "look", { at: "x" }))).toMatchObject({
      code: "contract-invalid",
      outcome: "not-executed",
    });
    expect(called()).toBe(before);
  });

  test("an endpoint that describes itself under another name is not called", async () => {
    descriptor = (lawful) => ({ ...lawful, endpoint: "com.acme.other" });
    expect(await failure(rig.client.call(ENDPOINT, "look", { at: "x" }))).toMatchObject({
      code: "contract-mismatch",
      outcome: "not-executed",
    });
  });

  test("PA.06: every artifact is verified: with any one of them tampered with, nothing is called", async () => {
    const command = contract.commands.get("look");
    const [cluster] = contract.clusters;
    const needed = [cluster?.digest, command?.document.inputDigest, command?.document.outputDigest];
    for (const digest of needed) {
      const text = told.artifacts.get(digest ?? "") ?? "";
      const root = (JSON.parse(text) as { readonly root: string }).root;
      for (const [wrong, with_] of [
        [digest ?? "", text.replace('"v":1', '"v":1 ')],
        [digest ?? "", "{}"],
        [root, `${told.artifacts.get(root) ?? ""} `],
        [root, '{"type":"string"}'],
      ] as const) {
        const lawful = told.artifacts.get(wrong) ?? "";
        told.artifacts.set(wrong, with_);
        // One that has verified them before would have no need to fetch them.
        const { client } = callerOn(asker.nc, asker.inboxPrefix);
        const before = called();
        expect(await failure(client.call(ENDPOINT, "look", { at: "x" }))).toMatchObject({
          code: "contract-mismatch",
          outcome: "not-executed",
        });
        expect(called()).toBe(before);
        told.artifacts.set(wrong, lawful);
        // What was wrong is not kept: once it is mended, the same client goes on.
        expect((await client.call(ENDPOINT, "look", { at: "x" })).data).toEqual({ seen: "x" });
      }
    }
  });

  test("PA.06: an artifact that is missing is contract-mismatch, and nothing is called", async () => {
    told.artifacts.delete(contract.commands.get("look")?.document.inputDigest ?? "");
    const before = called();
    expect(await failure(rig.client.call(ENDPOINT, "look", { at: "x" }))).toMatchObject({
      code: "contract-mismatch",
      outcome: "not-executed",
    });
    expect(called()).toBe(before);
  });

  test("PA.06 PA.02: a descriptor that tells of a write as a read is not believed", async () => {
    descriptor = (lawful) => ({
      ...lawful,
      commands: lawful.commands.map((command) => (command.name === "put" ? { ...command, effect: "read" } : command)),
    });
    expect(await failure(rig.client.call(ENDPOINT, "put", { at: "x" }))).toMatchObject({
      code: "contract-mismatch",
      outcome: "not-executed",
    });
  });
});

describe("what is kept", () => {
  test("a second call asks for nothing but itself, and another command for its own schemas", async () => {
    await rig.client.call(ENDPOINT, "look", { at: "1" });
    const described = count(foreign, "describe");
    const fetched = count(reads, "artifacts");
    await rig.client.call(ENDPOINT, "look", { at: "2" });
    expect(count(reads, "artifacts")).toBe(fetched);
    await rig.client.call(ENDPOINT, "put", { at: "3" });
    expect(count(foreign, "describe")).toBe(described);
  });

  test("many first calls at once describe once, and fetch each artifact once", async () => {
    const described = count(foreign, "describe");
    const from = reads.received.length;
    await Promise.all(Array.from({ length: 50 }, (_, n) => rig.client.call(ENDPOINT, "look", { at: String(n) })));
    expect(count(foreign, "describe")).toBe(described + 1);
    const digests = reads.received
      .slice(from)
      .flatMap(({ request }) => (request.args as { readonly digests: readonly string[] }).digests);
    expect(new Set(digests).size).toBe(digests.length);
  });

  test("the revision of the registration is known with the command, and a newer one takes its place", async () => {
    expect(await rig.client.resolve(ENDPOINT, "look")).toMatchObject({ registrationRevision: 7, by: { epoch: 3 } });
    revision = 12;
    expect((await rig.client.describe(ENDPOINT)).descriptor.registrationRevision).toBe(12);
    expect((await rig.client.resolve(ENDPOINT, "look")).registrationRevision).toBe(12);
  });

  const [, ...others] = CLERK.commands;
  const grown = compileContract(
    [
      defineCluster({
        ...CLERK,
        revision: 2,
        commands: [
          {
            name: "look",
            class: "ephemeral",
            effect: "read",
            input: z.looseObject({ at: z.union([z.string(), z.number()]) }),
            output: z.looseObject({ seen: z.string() }),
          },
          ...others,
        ],
      }),
    ],
    createValidators(),
  );

  /** A server that has registered anew since. */
  const growth = (): void => {
    served = grown;
    revision = 20;
    for (const [digest, text] of artifactsOf(grown)) told.artifacts.set(digest, text);
    const pinned = grown.commands.get("look")?.document.inputDigest;
    look = ({ request, answer }) => {
      if (request.op.inputDigest === pinned) return { seen: "grown" };
      answer({ ok: false, error: { code: "contract-mismatch", message: "other digests", outcome: "not-executed" } });
      return NOTHING;
    };
  };

  test("a server that serves another contract by now is described anew once, and called by what it serves", async () => {
    await rig.client.call(ENDPOINT, "look", { at: "x" });
    growth();
    const before = called();
    expect((await rig.client.call(ENDPOINT, "look", { at: "x" })).data).toEqual({ seen: "grown" });
    expect(called()).toBe(before + 2);
  });

  test("arguments that fit the contract as it is now are not refused by the one that was kept", async () => {
    await rig.client.call(ENDPOINT, "look", { at: "x" });
    growth();
    expect((await rig.client.call(ENDPOINT, "look", { at: 7 })).data).toEqual({ seen: "grown" });
  });

  test("a server that refuses every contract is asked twice and no more", async () => {
    look = ({ answer }) => {
      answer({ ok: false, error: { code: "contract-mismatch", message: "no", outcome: "not-executed" } });
      return NOTHING;
    };
    const before = called();
    expect((await failure(rig.client.call(ENDPOINT, "look", { at: "x" }))).code).toBe("contract-mismatch");
    expect(called()).toBe(before + 2);
  });

  test("a mismatch that does not say that nothing ran is not followed by another try", async () => {
    look = ({ answer }) => {
      answer({ ok: false, error: { code: "contract-mismatch", message: "no" } });
      return NOTHING;
    };
    const before = called();
    expect(await failure(rig.client.call(ENDPOINT, "look", { at: "x" }))).toMatchObject({ outcome: "unknown" });
    expect(called()).toBe(before + 1);
  });

  test("a command that was hidden and is shown now is found", async () => {
    descriptor = (lawful) => ({ ...lawful, commands: lawful.commands.filter(({ name }) => name !== "put") });
    expect((await failure(rig.client.call(ENDPOINT, "put", { at: "x" }))).code).toBe("not-found");
    descriptor = undefined;
    await rig.client.call(ENDPOINT, "put", { at: "x" });
  });
});
