/** Rows of what serves (supplement B): registration, browse index, governance head, and the table of kinds. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { type CommandDeclaration } from "../../shared/protocol/contract/declare.ts";
import { attachmentBytes, droppedBindings, governedBindings } from "../../shared/protocol/contract/traits.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { endpointKey } from "../../shared/protocol/ledger/endpoint-rows.ts";
import {
  RECORD_KINDS,
  isSplit,
  parseRecordKey,
  recordFilter,
  recordKey,
} from "../../shared/protocol/ledger/record-kinds.ts";
import { ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import {
  type GovernChange,
  GovernRow,
  RegistrationSpec,
  RegistrationStatus,
  governed,
} from "../../shared/protocol/ledger/service-rows.ts";
import { lifecycleUids, principals } from "../support/arbitraries.ts";
import { refusal } from "../support/refusal.ts";

const digest = (digit: string) => `sha256:${digit.repeat(64)}`;
const iid = "i".repeat(26);
const spec = {
  endpoint: "com.acme.deploy",
  owner: "local",
  clusterDigests: [digest("a"), digest("b")],
  protocol: { v: 2 },
};

describe("a registration", () => {
  test("PA.08: the spec says whose it is, what it serves and how it is described", () => {
    expect(RegistrationSpec.parse(spec)).toEqual(spec);
    const whole = { ...spec, endpointType: "deployer", activation: { capacity: 3 }, later: 1 };
    expect(RegistrationSpec.parse(whole)).toEqual(whole);
    const bad = [
      { endpoint: "Com.Acme" },
      { owner: "a.b" },
      { clusterDigests: [digest("b"), digest("a")] },
      { clusterDigests: [digest("a"), digest("a")] },
      { clusterDigests: ["sha256:abc"] },
      { protocol: {} },
      { protocol: { v: -1 } },
      { protocol: { v: 2 ** 53 } },
      { activation: {} },
      { activation: { capacity: 0 } },
      { activation: { capacity: 1, more: 1 } },
    ];
    expect(bad.filter((part) => RegistrationSpec.safeParse({ ...spec, ...part }).success)).toEqual([]);
  });

  test("W11.03: the discovery protocol's version stands on the record, whichever it is", () => {
    for (const v of [0, 1, 2, 3]) expect(RegistrationSpec.parse({ ...spec, protocol: { v } }).protocol.v).toBe(v);
  });

  test("PA.08: a status names the epoch that wrote it and the spec that it has seen", () => {
    const status = { epoch: 3, state: "ready", observedSpecRevision: 7, load: 0.5 };
    expect(RegistrationStatus.parse(status)).toEqual(status);
    for (const missing of ["epoch", "state", "observedSpecRevision"]) {
      expect(RegistrationStatus.safeParse({ ...status, [missing]: undefined }).success).toBe(false);
    }
  });
});

describe("the governance head", () => {
  const binding = { command: "pay", traitUrn: "ai.cotal.priced", valueDigest: digest("1") };
  const registration = { opId: "op1", instanceId: iid, specDigest: digest("c") };
  const change = (over: Partial<GovernChange> = {}): GovernChange => ({
    endpoint: "com.acme.deploy",
    registration,
    bindings: [binding],
    clusters: [{ urn: "com.acme.a.v1", revision: 1, digest: digest("a") }],
    commands: [{ command: "pay", capability: "pay" }],
    ...over,
  });
  const head = governed(undefined, change());

  test("PB.06: the first registration makes it, closed", () => {
    expect(GovernRow.parse(head)).toEqual(head);
    expect(GovernRow.safeParse({ ...head, later: 1 }).success).toBe(false);
    expect(GovernRow.safeParse({ ...head, v: 2 }).success).toBe(false);
  });

  test("PB.06: the policy in force and the one that waits are kept through a registration", () => {
    const policy = { enforcedPolicyKey: `policy.com_acme_deploy.${"0".repeat(64)}`, enforcedPolicyRevision: 4 };
    const pending = { pendingPolicyKey: `policy.com_acme_deploy.${"1".repeat(64)}`, pendingPolicyRevision: 5 };
    const staged = GovernRow.parse({ ...head, policy: { ...policy, ...pending } });
    expect(governed(staged, change()).policy).toEqual({ ...policy, ...pending });
    for (const half of [{ pendingPolicyKey: pending.pendingPolicyKey }, { pendingPolicyRevision: 5 }]) {
      expect(GovernRow.safeParse({ ...head, policy: { ...policy, ...half } }).success).toBe(false);
    }
    expect(GovernRow.safeParse({ ...head, policy: { ...policy, enforcedPolicyKey: "goal.x" } }).success).toBe(false);
  });

  test("PA.11: a registration that drops a governed trait, or changes its value, is refused", () => {
    for (const bindings of [[], [{ ...binding, valueDigest: digest("2") }], [{ ...binding, command: "other" }]]) {
      const error = refusal(() => governed(head, change({ bindings })));
      expect([error.code, error.message]).toEqual(["failed-precondition", expect.stringContaining("ai.cotal.priced")]);
    }
    const more = { command: "pay", traitUrn: "ai.cotal.guarded", valueDigest: digest("3") };
    expect(governed(head, change({ bindings: [more, binding] })).bindings).toEqual([more, binding]);
  });

  test("PA.12: it remembers the highest revision of each line, and its content", () => {
    const line = (revision: number, digit: string, urn = "com.acme.a.v1") => ({ urn, revision, digest: digest(digit) });
    const grown = governed(head, change({ clusters: [line(2, "b"), line(0, "d", "com.acme.b.v1")] }));
    expect(grown.clusters).toEqual([line(2, "b"), line(0, "d", "com.acme.b.v1")]);
    // An instance of the former revision may come again; the line does not go back, and none is forgotten.
    expect(governed(grown, change({ clusters: [line(1, "a")] })).clusters).toEqual(grown.clusters);
    const error = refusal(() => governed(grown, change({ clusters: [line(2, "e")] })));
    expect([error.code, error.outcome]).toEqual(["failed-precondition", "not-executed"]);
  });

  test("PB.06 PA.12: commands widen: none is forgotten, modes add up, and each keeps its capability", () => {
    const wider = governed(head, change({ commands: [{ command: "stop", modes: ["self"] }, { command: "list" }] }));
    expect(wider.commands).toEqual([
      { command: "list" },
      { command: "pay", capability: "pay" },
      { command: "stop", modes: ["self"] },
    ]);
    // An older revision that comes again takes nothing away.
    expect(governed(wider, change()).commands).toEqual(wider.commands);
    expect(governed(wider, change({ commands: [{ command: "stop", modes: ["owner"] }] })).commands.at(-1)).toEqual({
      command: "stop",
      modes: ["owner", "self"],
    });
    // Who holds a grant of it holds it under that capability.
    const loosened = refusal(() => governed(head, change({ commands: [{ command: "pay" }] })));
    expect([loosened.code, loosened.outcome]).toEqual(["failed-precondition", "not-executed"]);
    for (const bad of [
      { command: "Stop" },
      { command: "a", modes: [] },
      { command: "a", modes: ["x"] },
      { command: "a", more: 1 },
    ]) {
      expect(GovernRow.safeParse({ ...head, commands: [bad] }).success).toBe(false);
    }
    expect(GovernRow.safeParse({ ...head, commands: undefined }).success).toBe(false);
  });
});

describe("governed traits", () => {
  const declared = (...traits: NonNullable<CommandDeclaration["traits"]>) =>
    compileContract(
      [{ urn: "com.acme.a.v1", revision: 0, commands: [{ name: "pay", class: "ephemeral", effect: "write", traits }] }],
      createValidators(),
    ).clusters.map(({ document }) => document);

  test("PA.11: the two governed traits are found by command and by the digest of their value", () => {
    const documents = declared(
      { urn: "com.acme.slow", value: 1 },
      { urn: "ai.cotal.priced", value: { b: 1, a: 2 } },
      { urn: "ai.cotal.guarded", value: "guard" },
    );
    const bindings = governedBindings(documents);
    expect(bindings.map(({ command, traitUrn }) => [command, traitUrn])).toEqual([
      ["pay", "ai.cotal.guarded"],
      ["pay", "ai.cotal.priced"],
    ]);
    expect(governedBindings(declared({ urn: "ai.cotal.priced", value: { a: 2, b: 1 } }))).toEqual([bindings[1]]);
    expect(droppedBindings(bindings, governedBindings(declared()))).toEqual(bindings);
    expect(droppedBindings([], bindings)).toEqual([]);
  });

  test("PA.11: what is signed is everything of an attachment but the signature, canonically", () => {
    const attachment = {
      value: { price: 3 },
      traitUrn: "ai.cotal.priced",
      space: "main",
      sig: "s".repeat(86),
      keyId: "k1",
      endpoint: "com.acme.deploy",
      contractDigest: digest("a"),
      command: "pay",
    };
    expect(Buffer.from(attachmentBytes(attachment)).toString()).toBe(
      `{"command":"pay","contractDigest":"${digest("a")}","endpoint":"com.acme.deploy","keyId":"k1","space":"main",` +
        `"traitUrn":"ai.cotal.priced","value":{"price":3}}`,
    );
  });
});

describe("the kinds of records", () => {
  test("PB.01: one frozen table says form, halves, writer and reader", () => {
    expect(Object.isFrozen(RECORD_KINDS)).toBe(true);
    const rows = Object.entries(RECORD_KINDS).map(([kind, row]) => {
      const writers = "spec" in row ? [row.spec, row.status] : [row.writer];
      return `${kind} ${row.tokens.join(".")} ${writers.join("/")} ${row.reader} ${row.deletable}`;
    });
    expect(rows).toEqual([
      "svc endpoint.instanceId provisioner/record-writer member true",
      "contracts endpoint provisioner/provisioner member true",
      "govern endpoint provisioner daemon false",
      "policy endpoint.digest provisioner daemon false",
      "lifecycle owner.actor ledger daemon false",
      "uid uid ledger daemon false",
      "frontier uid ledger daemon false",
      "oblig target.endpoint.owner.actor.uid.id ledger daemon false",
    ]);
  });

  test("PB.01: the table's keys are those that the rows' own builders write", () => {
    fc.assert(
      fc.property(principals, lifecycleUids, (who, uid) => {
        const endpoint = "com.acme.deploy";
        expect(recordKey("svc", { endpoint, instanceId: uid }, "spec")).toBe(endpointKey.spec(endpoint, uid));
        expect(recordKey("svc", { endpoint, instanceId: uid }, "status")).toBe(endpointKey.status(endpoint, uid));
        expect(recordKey("lifecycle", who)).toBe(ledgerKey.head(who));
        expect(recordKey("uid", { uid })).toBe(ledgerKey.uid(uid));
        expect(recordKey("frontier", { uid })).toBe(ledgerKey.frontier(uid));
        expect(parseRecordKey(ledgerKey.head(who))).toEqual({ kind: "lifecycle", values: who, writer: "ledger" });
      }),
    );
    expect(recordKey("govern", { endpoint: "manager" })).toBe("govern.manager");
    expect(recordKey("contracts", { endpoint: "a.b" }, "status")).toBe("contracts.a_b.status");
    expect(recordKey("policy", { endpoint: "a.b", digest: digest("4") })).toBe(`policy.a_b.${"4".repeat(64)}`);
  });

  test("PB.01: a key is read back by its kind, its half and its writer", () => {
    expect(parseRecordKey(`svc.com_acme_deploy.${iid}.status`)).toEqual({
      kind: "svc",
      half: "status",
      values: { endpoint: "com.acme.deploy", instanceId: iid },
      writer: "record-writer",
    });
    for (const key of [
      "",
      "svc",
      `svc.manager.${iid}`,
      `svc.manager.${iid}.other`,
      `svc.manager.${iid}.spec.more`,
      `svc.manager.short.spec`,
      `svc.Manager.${iid}.spec`,
      "govern.manager.spec",
      "govern",
      "goal.manager",
      "constructor.manager",
      "policy.manager.abc",
      "lifecycle.*.a",
      "lifecycle.local",
      "svc.>",
    ]) {
      expect([key, parseRecordKey(key)]).toEqual([key, undefined]);
    }
  });

  test("PB.01: filters and halves follow the table", () => {
    expect(recordFilter("svc", "spec")).toBe("svc.*.*.spec");
    expect(recordFilter("contracts", "status")).toBe("contracts.*.status");
    expect(recordFilter("govern")).toBe("govern.*");
    expect(recordFilter("lifecycle")).toBe("lifecycle.*.*");
    expect([isSplit("svc"), isSplit("govern")]).toEqual([true, false]);
    // Callers in plain JavaScript may leave the half out, or give one too many.
    const loose = recordKey as (kind: string, values: object, half?: string) => string;
    expect(refusal(() => loose("svc", { endpoint: "a", instanceId: iid })).code).toBe("bad-request");
    expect(refusal(() => loose("govern", { endpoint: "a" }, "spec")).code).toBe("bad-request");
    expect(refusal(() => loose("govern", { endpoint: "A" })).code).toBe("bad-request");
  });

  test("PB.01: no kind is written as the reverse-DNS name of somebody else's", () => {
    expect(Object.keys(RECORD_KINDS).filter((kind) => kind.includes("_"))).toEqual([]);
  });
});
