/** What `describe` answers, and what a caller proves of it before it calls (supplement A). */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { artifactOf } from "../../shared/protocol/contract/artifact.ts";
import { documentClosure } from "../../shared/protocol/contract/closure.ts";
import { compileContract, contractDocument } from "../../shared/protocol/contract/contract.ts";
import {
  type Descriptor,
  PROTOCOL_VERSION,
  type TrustedView,
  describeFor,
  readDescriptor,
} from "../../shared/protocol/contract/descriptor.ts";
import { fetchCluster, resolveCommand } from "../../shared/protocol/contract/resolve.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { VOID } from "../../shared/protocol/contract/zod-schema.ts";
import { present } from "../support/named.ts";
import { failure, refusal } from "../support/refusal.ts";

const contract = compileContract(
  [
    {
      urn: "com.example.jobs.v1",
      revision: 3,
      commands: [
        { name: "list", class: "ephemeral", effect: "read", output: z.looseObject({ jobs: z.array(z.string()) }) },
        { name: "stop", class: "ephemeral", effect: "write", modes: ["self", "owner", "any"], capability: "stop-jobs" },
      ],
    },
    { urn: "com.example.admin.v1", revision: 0, commands: [{ name: "purge", class: "ephemeral", effect: "write" }] },
  ],
  createValidators(),
);
const described = { endpoint: "com.example.jobs", registrationRevision: 17, contract };
const nothing: TrustedView = { admits: () => false };
const everything: TrustedView = { admits: () => true };
const view = (...admitted: string[]): TrustedView => ({
  admits: (command, mode) => admitted.includes(mode === undefined ? command : `${command} ${mode}`),
});
const names = (descriptor: Descriptor) => descriptor.commands.map(({ name }) => name);

describe("the cut", () => {
  test("PA.10: two callers, two answers: each sees what the trusted view admits", () => {
    const one = describeFor(described, view("list", "stop self"));
    expect(names(one)).toEqual(["list", "stop"]);
    expect(one.commands[1]?.modes).toEqual(["self"]);
    expect(one.clusters.map(({ urn }) => urn)).toEqual(["com.example.jobs.v1"]);
    const other = describeFor(described, view("purge", "stop any", "stop owner"));
    expect(names(other)).toEqual(["stop", "purge"]);
    expect(other.commands[0]?.modes).toEqual(["any", "owner"]);
    expect(describeFor(described, nothing)).toMatchObject({ commands: [], clusters: [] });
    expect(names(describeFor(described, everything))).toEqual(["list", "stop", "purge"]);
  });

  test("PA.10: a targeted command is asked for by its modes, an untargeted one without", () => {
    const asked: string[] = [];
    describeFor(described, { admits: (command, mode) => asked.push(`${command} ${mode}`) > 0 });
    expect(asked).toEqual(["list undefined", "stop any", "stop owner", "stop self", "purge undefined"]);
    // The word of an untargeted form opens no targeted command.
    expect(names(describeFor(described, view("stop")))).toEqual([]);
  });

  test("PA.10: without a fresh view there is no answer", () => {
    const error = refusal(() => describeFor(described, undefined));
    expect([error.code, error.outcome]).toEqual(["unavailable", "not-executed"]);
  });

  test("PA.10: a public descriptor is shown whole, to everyone and without a view", () => {
    for (const seen of [undefined, nothing, everything]) {
      expect(names(describeFor({ ...described, publicDescriptor: true }, seen))).toEqual(["list", "stop", "purge"]);
    }
  });

  test("PA.02: what is described carries effect, digests and the registration's revision", () => {
    const descriptor = describeFor(described, everything);
    expect(descriptor).toMatchObject({ endpoint: "com.example.jobs", protocol: { v: 2 }, registrationRevision: 17 });
    const stop = descriptor.commands[1];
    expect(stop).toMatchObject({ effect: "write", cluster: "com.example.jobs.v1", inputDigest: VOID.digest });
    expect(stop?.contractDigest).toBe(contract.commands.get("stop")?.contractDigest);
    expect(readDescriptor(JSON.parse(JSON.stringify(descriptor)))).toEqual(descriptor);
  });
});

describe("reading it", () => {
  const descriptor = describeFor(described, everything);

  test.each([0, 1, 3, 99])("PA.03: protocol version %i is refused, whatever else the answer holds", (v) => {
    for (const answer of [
      { ...descriptor, protocol: { v } },
      { protocol: { v, more: 1 }, anything: "else" },
    ]) {
      const error = refusal(() => readDescriptor(answer));
      expect(error.code).toBe("unsupported-version");
      expect(error.message).toContain(`version ${v}`);
    }
  });

  test("PA.03: version 2 is the one that this project starts at, and an absent one is malformed", () => {
    expect(PROTOCOL_VERSION).toBe(2);
    const { protocol: _, ...without } = descriptor;
    for (const answer of [
      without,
      { ...descriptor, protocol: {} },
      { ...descriptor, protocol: { v: "2" } },
      null,
      "x",
    ]) {
      expect(refusal(() => readDescriptor(answer)).code).toBe("contract-invalid");
    }
  });

  test("PA.02: a command without effect is no description", () => {
    const commands = descriptor.commands.map((command) => {
      const { effect: _, ...rest } = command;
      return rest;
    });
    expect(refusal(() => readDescriptor({ ...descriptor, commands })).code).toBe("contract-invalid");
  });

  test("W11.01: unknown fields are ignored at every level", () => {
    const answer = {
      ...descriptor,
      later: 1,
      protocol: { v: 2, later: 1 },
      clusters: descriptor.clusters.map((one) => ({ ...one, later: 1 })),
    };
    expect(names(readDescriptor(answer))).toEqual(["list", "stop", "purge"]);
  });
});

describe("what a caller proves", () => {
  const descriptor = describeFor(described, everything);
  const kept = () => new Map(contract.artifacts.map(({ digest, text }) => [digest, new TextEncoder().encode(text)]));
  const from = (artifacts: ReadonlyMap<string, Uint8Array>) => (digest: string) =>
    Promise.resolve(artifacts.get(digest));

  test("PA.06: a command is found in its cluster, with both schemas, all by digest", async () => {
    const { command, input, output } = await resolveCommand(descriptor, "list", from(kept()));
    expect(command.name).toBe("list");
    expect([input.digest, output.digest]).toEqual([VOID.digest, contract.commands.get("list")?.output.digest]);
    expect(
      createValidators()
        .of(output)
        .check({ jobs: [1] }),
    ).toHaveLength(1);
  });

  test("PA.06: the void schema is known and not fetched", async () => {
    const asked: string[] = [];
    await resolveCommand(descriptor, "purge", (digest) => {
      asked.push(digest);
      return from(kept())(digest);
    });
    expect(asked).toHaveLength(2);
    expect(asked).not.toContain(VOID.digest);
  });

  test("PA.06: every artifact that a resolution needs is checked: tampered or missing, it fails", async () => {
    const asked: string[] = [];
    await resolveCommand(descriptor, "list", (digest) => {
      asked.push(digest);
      return from(kept())(digest);
    });
    expect(asked).toHaveLength(4);
    for (const digest of asked) {
      const tampered = kept();
      const bytes = Uint8Array.from(tampered.get(digest) ?? []);
      bytes[bytes.length - 2] = (bytes[bytes.length - 2] ?? 0) ^ 1;
      tampered.set(digest, bytes);
      expect((await failure(resolveCommand(descriptor, "list", from(tampered)))).code).toBe("contract-mismatch");
      tampered.delete(digest);
      expect((await failure(resolveCommand(descriptor, "list", from(tampered)))).code).toBe("contract-mismatch");
    }
  });

  test.each<[string, (told: Descriptor) => unknown]>([
    ["another effect", (told) => Object.assign(told.commands[1] ?? {}, { effect: "read" })],
    ["another class", (told) => Object.assign(told.commands[1] ?? {}, { class: "journal" })],
    ["another capability", (told) => Object.assign(told.commands[1] ?? {}, { capability: "other" })],
    ["a mode more", (told) => told.commands[1]?.modes?.push("exact")],
    ["another input", (told) => Object.assign(told.commands[1] ?? {}, { inputDigest: `sha256:${"0".repeat(64)}` })],
    [
      "another output",
      (told) => Object.assign(told.commands[1] ?? {}, { outputDigest: told.commands[0]?.outputDigest }),
    ],
    ["another contract digest", (told) => Object.assign(told.commands[1] ?? {}, { contractDigest: VOID.digest })],
    ["an action that is none", (told) => Object.assign(told.commands[1] ?? {}, { action: {} })],
    ["a target that is none", (told) => Object.assign(told.commands[1] ?? {}, { targeted: false })],
    ["another cluster", (told) => Object.assign(told.commands[1] ?? {}, { cluster: "com.example.admin.v1" })],
    ["a cluster that is not listed", (told) => Object.assign(told.commands[1] ?? {}, { cluster: "com.example.x.v1" })],
    ["another revision of the cluster", (told) => Object.assign(told.clusters[0] ?? {}, { revision: 4 })],
    ["another cluster's digest", (told) => Object.assign(told.clusters[0] ?? {}, { digest: told.clusters[1]?.digest })],
  ])("PA.06: a descriptor that tells of %s than was published is refused", async (_, forge) => {
    const told = structuredClone(descriptor);
    forge(told);
    expect((await failure(resolveCommand(told, "stop", from(kept())))).code).toBe("contract-mismatch");
  });

  test("W11.01: what only the descriptor says, and no client knows, is ignored and not passed on", async () => {
    const told = structuredClone(descriptor);
    Object.assign(told.commands[1] ?? {}, { later: true });
    expect((await resolveCommand(told, "stop", from(kept()))).command).not.toHaveProperty("later");
  });

  test("PA.10: fewer modes than were published are the cut, and are taken", async () => {
    const cut = describeFor(described, view("stop self"));
    expect((await resolveCommand(cut, "stop", from(kept()))).command.modes).toEqual(["self"]);
    expect((await failure(resolveCommand(cut, "list", from(kept())))).code).toBe("not-found");
  });

  test("PA.06: what lies behind a cluster's digest must be a cluster", async () => {
    const stray = documentClosure({ urn: "x" });
    const artifacts = kept();
    for (const { digest, text } of [stray.manifest, stray.root]) artifacts.set(digest, new TextEncoder().encode(text));
    expect((await failure(fetchCluster(stray.digest, from(artifacts)))).code).toBe("contract-invalid");
    const [cluster] = contract.clusters;
    expect(await fetchCluster(cluster?.digest ?? "", from(kept()))).toEqual(cluster?.document);
  });

  test("PA.06: a contract digest is that of the command alone: it outlives the cluster's growth", () => {
    const stop = contract.commands.get("stop");
    const grown = compileContract(
      [
        {
          urn: "com.example.jobs.v1",
          revision: 4,
          commands: [
            { name: "more", class: "ephemeral", effect: "read" },
            {
              name: "stop",
              class: "ephemeral",
              effect: "write",
              modes: ["any", "owner", "self"],
              capability: "stop-jobs",
            },
          ],
        },
      ],
      createValidators(),
    );
    expect(grown.commands.get("stop")?.contractDigest).toBe(stop?.contractDigest);
    const document = contractDocument("com.example.jobs.v1", present(stop?.document));
    expect(stop?.contractDigest).toBe(documentClosure(document).digest);
    expect(artifactOf(document).digest).not.toBe(stop?.contractDigest);
  });
});
