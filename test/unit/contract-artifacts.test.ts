/** Artifacts, closures and their digests (supplement A): vectors by hand, every order, every tampering. */
import { createHash } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { artifactOf, readArtifact } from "../../shared/protocol/contract/artifact.ts";
import {
  type Closure,
  documentClosure,
  fetchDocumentClosure,
  fetchSchemaClosure,
  schemaClosure,
} from "../../shared/protocol/contract/closure.ts";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { canonicalJson } from "../../shared/protocol/base/canonical.ts";
import { VOID, zodClosure } from "../../shared/protocol/contract/zod-schema.ts";
import { planeSubject } from "../../shared/protocol/endpoint/planes.ts";
import { named } from "../support/named.ts";
import { failure, refusal } from "../support/refusal.ts";

const hex = (text: string) => createHash("sha256").update(text).digest("hex");
const digest = (text: string) => `sha256:${hex(text)}`;
const bytes = (text: string) => new TextEncoder().encode(text);

// Made with sha256sum over texts written by hand.
const STRING = "sha256:9ac136edb99a2063b3091602181c8d2022fdccb5b514991319d58544c2e57e95";
const LIST = "sha256:79581c5beb48bc9f5a47bb37a2cb32b4fbe6588f4d2b68d8a1e22010368b06e9";
const LIST_CLOSURE = "sha256:0a0d80b7bd2887d3d445dc298650f45295b16b78d0bd663db84093fa9148814d";
const VOID_CLOSURE = "sha256:e9caffc4e650ec92059000f4933b99b4b5248dd01e906fe6f71251fd70824102";

const text = { type: "string", minLength: 1 };
const list = { type: "array", items: { $ref: STRING } };

/** Everything of a closure by digest, as whoever publishes it would have it. */
function store(...closures: Closure[]): Map<string, Uint8Array> {
  return new Map(
    closures
      .flatMap(({ manifest, members }) => [manifest, ...members.values()])
      .map((artifact) => [artifact.digest, bytes(artifact.text)]),
  );
}

const fetching = (kept: ReadonlyMap<string, Uint8Array>) => (wanted: string) => Promise.resolve(kept.get(wanted));

describe("digests, byte by byte", () => {
  test("PA.06: an artifact is named by the SHA-256 of its canonical form", () => {
    expect(artifactOf(text)).toMatchObject({ digest: STRING, text: '{"minLength":1,"type":"string"}', bytes: 31 });
    expect(artifactOf({ minLength: 1, type: "string" }).digest).toBe(STRING);
    expect(artifactOf(list).digest).toBe(LIST);
  });

  test("PA.06: it lies under the subject of that digest's hex part", () => {
    expect(planeSubject("main", { plane: "epc", digest: artifactOf(text).digest })).toBe(
      `cotal.main.epc.${STRING.slice("sha256:".length)}`,
    );
  });

  test("PA.06: a closure is named by its manifest: the root and all that it reaches, sorted", () => {
    const closure = schemaClosure(list, [text]);
    expect(closure.digest).toBe(LIST_CLOSURE);
    expect(closure.manifest.text).toBe(`{"members":["${LIST}","${STRING}"],"root":"${LIST}","v":1}`);
    expect([...closure.members.keys()]).toEqual([LIST, STRING]);
  });

  test("PA.06: what the root does not reach is no member, and a closure of one has one", () => {
    expect(schemaClosure(list, [text, { type: "number" }, { type: "null" }]).digest).toBe(LIST_CLOSURE);
    expect([...schemaClosure(text).members.keys()]).toEqual([STRING]);
  });

  test("PA.05: a side without a payload has the canonical void schema", () => {
    expect(VOID.root.text).toBe('{"type":"null"}');
    expect(VOID.digest).toBe(VOID_CLOSURE);
    expect(zodClosure(undefined)).toBe(VOID);
  });

  test("PA.06: clusters, commands and both sides of a command are named by closure digests", () => {
    const { clusters, clusterDigests, commands, artifacts } = compileContract(
      [{ urn: "com.example.echo.v1", revision: 0, commands: [{ name: "ping", class: "ephemeral", effect: "read" }] }],
      createValidators(),
    );
    const ping = commands.get("ping");
    expect(canonicalJson(clusters[0]?.document)).toBe(
      `{"attributes":[],"commands":[{"class":"ephemeral","effect":"read","inputDigest":"${VOID_CLOSURE}","name":"ping",` +
        `"outputDigest":"${VOID_CLOSURE}","targeted":false}],"events":[],"revision":0,"urn":"com.example.echo.v1"}`,
    );
    expect(clusterDigests).toEqual(["sha256:a6fc48f79cc3be22f7987d1b39d52221d4f373605717fa09de37a9e41a20618c"]);
    expect(ping?.contractDigest).toBe("sha256:66569fb6789f947b212d8e5a718b15a167993c1f1f5dd31bc436988387700430");
    expect(ping?.input.digest).toBe(VOID_CLOSURE);
    // The void schema and its manifest, the cluster, the command's contract, and their manifests: each once.
    expect(artifacts.map(({ digest: one }) => one)).toEqual(artifacts.map(({ digest: one }) => one).toSorted());
    expect(artifacts).toHaveLength(6);
    for (const artifact of artifacts) expect(artifact.digest).toBe(digest(artifact.text));
  });
});

describe("order", () => {
  /** A chain or fan of schemas, leaves first, so that each can name the ones before. */
  const families = fc
    .array(fc.array(fc.nat({ max: 5 }), { maxLength: 3 }), { minLength: 1, maxLength: 8 })
    .map((links) => {
      const made: object[] = [];
      for (const [index, to] of links.entries()) {
        const properties = to
          .map((back, slot) => [`p${slot}`, made[index - 1 - back]] as const)
          .filter(([, target]) => target !== undefined)
          .map(([name, target]) => [name, { $ref: artifactOf(target).digest }] as const);
        made.push({ type: "object", title: String(index), properties: named(properties) });
      }
      return made;
    });

  test("PA.06: the same artifacts have one closure digest, in whatever order they are given", () => {
    fc.assert(
      fc.property(families, fc.infiniteStream(fc.double({ min: 0, max: 1, noNaN: true })), (family, order) => {
        const root = family.at(-1);
        const shuffled = family
          .map((one) => [order.next().value ?? 0, one] as const)
          .toSorted(([a], [b]) => a - b)
          .map(([, one]) => one);
        const closure = schemaClosure(root, family);
        expect(schemaClosure(root, shuffled).digest).toBe(closure.digest);
        const keys = [...closure.members.keys()];
        expect(keys).toEqual([...new Set(keys)].toSorted());
        expect(closure.digest).toBe(digest(JSON.stringify({ members: keys, root: artifactOf(root).digest, v: 1 })));
      }),
    );
  });

  test("PA.06: the order of a declaration changes no digest", () => {
    const validators = createValidators();
    const command = (name: string) => ({ name, class: "ephemeral", effect: "read", modes: ["self", "owner"] }) as const;
    const one = [{ urn: "com.example.a.v1", revision: 1, commands: [command("a"), command("b")] }];
    const other = [
      {
        revision: 1,
        commands: [{ ...command("b"), modes: ["owner", "self"] as const }, command("a")],
        urn: "com.example.a.v1",
      },
    ];
    expect(compileContract(other, validators).clusterDigests).toEqual(compileContract(one, validators).clusterDigests);
  });
});

describe("what was fetched", () => {
  const closure = schemaClosure(list, [text]);

  test("PA.06: a whole closure comes back as it was made", async () => {
    const read = await fetchSchemaClosure(closure.digest, fetching(store(closure)));
    expect(read.digest).toBe(closure.digest);
    expect([...read.members.keys()]).toEqual([LIST, STRING]);
    const cluster = documentClosure({ urn: "x" });
    expect((await fetchDocumentClosure(cluster.digest, fetching(store(cluster)))).root.value).toEqual({ urn: "x" });
  });

  test("PA.06: any other byte in any artifact is refused", async () => {
    for (const [name, kept] of store(closure)) {
      for (const at of [0, Math.floor(kept.length / 2), kept.length - 1]) {
        const tampered = Uint8Array.from(kept);
        tampered[at] = (tampered[at] ?? 0) ^ 1;
        const error = await failure(fetchSchemaClosure(closure.digest, fetching(store(closure).set(name, tampered))));
        expect(error.code).toBe("contract-mismatch");
        expect(error.message).toContain(name);
      }
    }
  });

  test("PA.06: a missing artifact is refused by its name", async () => {
    for (const name of store(closure).keys()) {
      const kept = store(closure);
      kept.delete(name);
      const error = await failure(fetchSchemaClosure(closure.digest, fetching(kept)));
      expect([error.code, error.message]).toEqual(["contract-mismatch", expect.stringContaining(name)]);
    }
  });

  test("PA.06: bytes in another spelling are refused, though they hash to what was asked for", () => {
    for (const spelling of [
      '{"type":"string","minLength":1}',
      '{"minLength":1, "type":"string"}',
      '{"minLength":1.0,"type":"string"}',
    ]) {
      expect(refusal(() => readArtifact(digest(spelling), bytes(spelling))).code).toBe("contract-mismatch");
    }
    const twice = '{"minLength":9,"minLength":1,"type":"string"}';
    expect(refusal(() => readArtifact(digest(twice), bytes(twice))).code).toBe("contract-mismatch");
    const marked = '\ufeff{"minLength":1,"type":"string"}';
    expect(refusal(() => readArtifact(digest(marked), bytes(marked))).code).toBe("contract-invalid");
    expect(readArtifact(STRING, bytes('{"minLength":1,"type":"string"}')).value).toEqual(text);
  });

  test("PA.06: what is no JSON in UTF-8, or no digest, is refused", () => {
    for (const raw of [bytes("{"), bytes(""), Uint8Array.of(0x22, 0xff, 0x22), bytes('"\\ud800"')]) {
      const named = `sha256:${createHash("sha256").update(raw).digest("hex")}`;
      expect(refusal(() => readArtifact(named, raw)).code).toBe("contract-invalid");
    }
    expect(refusal(() => readArtifact("sha256:abc", bytes("1"))).code).toBe("contract-invalid");
  });

  test.each([
    ["a member that nothing reaches", { members: [LIST, STRING, VOID.root.digest].toSorted(), root: LIST, v: 1 }],
    ["a member less than the root reaches", { members: [LIST], root: LIST, v: 1 }],
    ["members out of order", { members: [STRING, LIST], root: LIST, v: 1 }],
    ["a member twice", { members: [LIST, STRING, STRING], root: LIST, v: 1 }],
    ["a root that is no member", { members: [STRING], root: LIST, v: 1 }],
    ["no members", { members: [], root: LIST, v: 1 }],
    ["another version", { members: [LIST, STRING], root: LIST, v: 2 }],
    ["a field more", { members: [LIST, STRING], root: LIST, v: 1, x: 1 }],
    ["something that is no manifest", "manifest"],
  ])("PA.06: a manifest with %s is refused", async (_, manifest) => {
    const forged = artifactOf(manifest);
    const kept = store(closure, VOID).set(forged.digest, bytes(forged.text));
    const error = await failure(fetchSchemaClosure(forged.digest, fetching(kept)));
    expect(error.code).toBe("contract-invalid");
  });

  test("PA.06: nothing is asked for but what the manifest lists", async () => {
    const asked: string[] = [];
    await fetchSchemaClosure(closure.digest, (wanted) => {
      asked.push(wanted);
      return Promise.resolve(store(closure).get(wanted));
    });
    expect(asked).toEqual([closure.digest, LIST, STRING]);
  });
});

test("PA.06: a document that JSON can't carry has no artifact", () => {
  const ring: Record<string, unknown> = {};
  ring["self"] = ring;
  for (const bad of [
    undefined,
    () => 1,
    { a: undefined },
    { a: Number.NaN },
    { a: "\ud800" },
    { a: 1n },
    ring,
    new Date(0),
  ]) {
    expect(refusal(() => artifactOf(bad)).code).toBe("contract-invalid");
  }
});
