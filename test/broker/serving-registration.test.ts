/**
 * Registering somebody's endpoint, over a real store (§13.7, supplement A and B): the order of its writes, its
 * crashes, and the governance head that brings the registrations of one name into an order.
 */
import { randomBytes } from "node:crypto";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import type { Serving, SpaceContext } from "../../services/provisioner/context.ts";
import { type Registering, moveHead } from "../../services/provisioner/serving/governance.ts";
import { readSpec, specOf } from "../../services/provisioner/service-records.ts";
import { endpointAssign } from "../../services/provisioner/serving/assign.ts";
import { registerService, renewService } from "../../services/provisioner/serving/service.ts";
import { readSubmitted } from "../../services/provisioner/serving/submitted.ts";
import { setUpSettings, setUpStreams } from "../../services/provisioner/setup.ts";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { type Death, createWriter } from "../../shared/broker/write.ts";
import { Header } from "../../shared/protocol/base/headers.ts";
import { inboxPrefix, kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { drawLifecycleUid, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { type ClusterDeclaration, type CommandDeclaration } from "../../shared/protocol/contract/declare.ts";
import { type Contract, compileContract } from "../../shared/protocol/contract/contract.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import type { Caller } from "../../shared/protocol/endpoint/grammar.ts";
import { planeSubject } from "../../shared/protocol/endpoint/planes.ts";
import type { RegisterAnswer } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { EndpointCredentialRow, EndpointGateRow, endpointKey } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { recordKey } from "../../shared/protocol/ledger/record-kinds.ts";
import { GovernRow, RegistrationStatus } from "../../shared/protocol/ledger/service-rows.ts";
import { canonicalDigest } from "../../shared/protocol/base/canonical.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { type MemoryLedger, memoryLedger } from "../support/memory-ledger.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { OWNER, STRANGER, SYSTEM } from "../support/plane-parts.ts";
import { put } from "../support/raw-jetstream.ts";
import { failure } from "../support/refusal.ts";
import { servingParts } from "../support/serving-parts.ts";
import { createBuckets } from "../../shared/serve/buckets.ts";
import { RETRY_AFTER } from "../../shared/protocol/base/errors.ts";
import { unpaced } from "../support/unpaced.ts";
import { servingLedger } from "../../shared/ledger/serving.ts";

const names = spaceNames("main");
const OPERATOR: Caller = { principal: principal(SYSTEM, "operator"), uid: "o".repeat(26) };
const caller = (owner = OWNER): Caller => ({ principal: principal(owner, "deployer"), uid: "d".repeat(26) });
const account = newKey("account");
const validators = createValidators();
const key = (): string => newKey("user").publicKey;

let broker: TestBroker;
let connection: Connection;
let settings: SpaceContext["settings"];
let counter = 0;
/** Each test has names of its own. */
const freshName = (): string => `com.acme.job${(counter += 1)}`;

beforeAll(async () => {
  broker = await startBroker();
  const uid = drawLifecycleUid(randomBytes);
  connection = await openConnection({
    servers: [broker.url],
    name: "test",
    inboxPrefix: inboxPrefix(uid, drawNonce(randomBytes)),
    reconnect: { kind: "endless", capMs: 1000 },
  });
  await setUpStreams(connection.nc, "main", 1);
  const writer = createWriter({ nc: connection.nc });
  settings = await setUpSettings(connection.nc, writer, {
    space: "main",
    auth: "static",
    replicas: 1,
    principal: "test",
  });
}, 30_000);
afterAll(async () => {
  await connection.close();
  await broker.stop();
});
afterEach(() => void vi.restoreAllMocks());

/** A context over the store, whose ledger is in memory, and whose writer may die. */
function contextOver(serving: Serving | undefined, die?: Death): SpaceContext {
  return {
    space: "main",
    names,
    subjects: spaceSubjects("main"),
    store: connection.nc,
    writer: createWriter({ nc: connection.nc, die }),
    settings,
    authority: undefined,
    serving,
    registrations: unpaced,
    daemon: (name) => ({ owner: "sys", actor: name }),
    purger: undefined,
    replicas: 1,
    now: Date.now,
    random: randomBytes,
  };
}

function servingOf(ledger: MemoryLedger, over: Partial<Parameters<typeof servingLedger>[0]> = {}): Serving {
  return {
    ledger: servingLedger({ ...servingParts(ledger.store(), over), now: Date.now, random: randomBytes, ...over }),
    accountKey: account.publicKey,
    signer: account,
    lifeSeconds: 600,
    ownerOf: (text) => text,
  };
}

/** A name that is OWNER's, and its ledger. */
async function named(endpoint = freshName()) {
  const ledger = memoryLedger();
  const serving = servingOf(ledger);
  await endpointAssign({ serving }, OPERATOR, { endpoint, owner: OWNER });
  return { endpoint, ledger, serving };
}

const run: CommandDeclaration = {
  name: "run",
  class: "ephemeral",
  effect: "write",
  input: z.strictObject({ what: z.string() }),
};
const list: CommandDeclaration = { name: "list", class: "ephemeral", effect: "read" };
const contractOf = (
  revision: number,
  commands: readonly CommandDeclaration[],
  over: Partial<ClusterDeclaration> = {},
): Contract => compileContract([{ urn: "com.acme.job.v1", revision, commands, ...over }], validators);
const ONE = contractOf(1, [run]);
const TWO = contractOf(2, [run, list]);

type Asked = {
  readonly endpoint: string;
  readonly userKey: string;
  readonly contract: Contract;
  readonly instanceId?: string;
};
const argsOf = ({ contract, ...rest }: Asked) => ({
  ...rest,
  clusterDigests: [...contract.clusterDigests],
  artifacts: contract.artifacts.map(({ text }) => text),
});
const register = (context: SpaceContext, asked: Asked, owner = OWNER): Promise<RegisterAnswer> =>
  registerService(context, caller(owner), argsOf(asked));

async function rowOf(at: string): Promise<{ readonly value: unknown; readonly revision: number } | undefined> {
  const found = await leaderLast(connection.nc, bucketStream(names.bucket.records), kvKey(names.bucket.records, at));
  if (found === undefined) return undefined;
  return { value: JSON.parse(new TextDecoder().decode(found.data)) as unknown, revision: found.seq };
}
const headOf = async (endpoint: string): Promise<GovernRow> =>
  GovernRow.parse((await rowOf(recordKey("govern", { endpoint })))?.value);
const specRow = (endpoint: string, instanceId: string) =>
  readSpec({ store: connection.nc, names }, endpoint, instanceId);
const statusOf = async (endpoint: string, instanceId: string) =>
  RegistrationStatus.parse((await rowOf(recordKey("svc", { endpoint, instanceId }, "status")))?.value);
const gateOf = (ledger: MemoryLedger, endpoint: string, instanceId: string) =>
  EndpointGateRow.parse(ledger.row("auth", endpointKey.gate(endpoint, instanceId)));
const activeOf = (ledger: MemoryLedger): string[] =>
  ledger
    .keys("auth")
    .filter((at) => at.startsWith("epcred."))
    .map((at) => EndpointCredentialRow.parse(ledger.row("auth", at)))
    .filter(({ state }) => state === "active")
    .map(({ credentialId }) => credentialId);

/** A head's move by itself, as a registration makes it. */
async function moving(endpoint: string, contract: Contract, over: Partial<Registering> = {}): Promise<Registering> {
  const published = async (digest: string) =>
    (await leaderLast(connection.nc, names.epc, planeSubject("main", { plane: "epc", digest })))?.data;
  return {
    opId: "op1",
    instanceId: "i".repeat(26),
    spec: specOf(endpoint, OWNER, contract.clusterDigests),
    submitted: await readSubmitted(
      contract.clusterDigests,
      contract.artifacts.map(({ text }) => text),
      published,
    ),
    published,
    ...over,
  };
}

describe("a registration", () => {
  test("PA.07 PA.08 W131L.08 publishes, moves the head, writes the record, opens the gate, and hands out a credential", async () => {
    const { endpoint, ledger, serving } = await named();
    const userKey = key();
    const answer = await register(contextOver(serving), { endpoint, userKey, contract: ONE });
    const { instanceId, registrationRevision } = answer;
    expect(answer.epoch).toBe(1);
    expect(await specRow(endpoint, instanceId)).toEqual({
      spec: { ...specOf(endpoint, OWNER, ONE.clusterDigests), epoch: 1 },
      revision: registrationRevision,
    });
    expect(await statusOf(endpoint, instanceId)).toEqual({
      epoch: 1,
      state: "starting",
      observedSpecRevision: registrationRevision,
    });
    expect(gateOf(ledger, endpoint, instanceId)).toMatchObject({ state: "open", registrationRevision });
    expect(activeOf(ledger)).toEqual([userKey]);
    const head = await headOf(endpoint);
    expect(head.registration.specDigest).toBe(
      canonicalDigest({ ...specOf(endpoint, OWNER, ONE.clusterDigests), epoch: 1 }),
    );
    expect(head.registration).toMatchObject({ instanceId, opId: `serve-${userKey}` });
    expect(head.commands).toEqual([{ command: "run" }]);
    const row = EndpointCredentialRow.parse(ledger.row("auth", endpointKey.cred(endpoint, instanceId, userKey)));
    expect(answer.credential?.expires).toBe(row.exp);
    expect(row.holderPrincipal).toBe(`${OWNER}.svc_${instanceId}`);
  });

  test("W132.01 W132.16 a name of one label, one that is not his, and what is no name are refused before anything is written", async () => {
    const { endpoint, ledger, serving } = await named();
    const context = contextOver(serving);
    const before = ledger.writes.length;
    const refused = async (name: string, owner: string) =>
      (await failure(register(context, { endpoint: name, userKey: key(), contract: ONE }, owner))).code;
    expect(await refused("deploy", OWNER)).toBe("permission-denied");
    expect(await refused("provisioner", OWNER)).toBe("permission-denied");
    expect(await refused("Com.Acme", OWNER)).toBe("bad-request");
    expect(await refused("com.acme.*", OWNER)).toBe("bad-request");
    expect(await refused(endpoint, STRANGER)).toBe("permission-denied");
    expect(await refused("com.nobody.thing", OWNER)).toBe("permission-denied");
    expect(ledger.writes.length).toBe(before);
    expect(context.writer.count()).toBe(0);
    const assign = async (name: string) =>
      (await failure(endpointAssign({ serving }, OPERATOR, { endpoint: name, owner: OWNER }))).code;
    expect([await assign("deploy"), await assign("com.acme.>")]).toEqual(["permission-denied", "bad-request"]);
    expect((await failure(endpointAssign({ serving }, OPERATOR, { endpoint, owner: STRANGER }))).code).toBe(
      "already-exists",
    );
    expect((await failure(endpointAssign({ serving: undefined }, OPERATOR, { endpoint, owner: OWNER }))).code).toBe(
      "failed-precondition",
    );
  });

  test.each(["before", "after"] as const)(
    "W131.15 PB.06 that dies %s each write of the store converges by a retry: one instance, a finished head, one credential",
    async (when) => {
      for (let at = 1; ; at += 1) {
        const { endpoint, ledger, serving } = await named();
        // Artifacts of its own, so that publishing them is among the writes.
        const contract = contractOf(1, [run, { ...list, name: `l${counter}` }]);
        const asked = { endpoint, userKey: key(), contract };
        const died = await register(contextOver(serving, { at, when }), asked).then(
          () => false,
          (error: unknown) => (error as Error).name === "Died",
        );
        const { instanceId, registrationRevision, epoch } = await register(contextOver(serving), asked);
        expect([at, epoch, activeOf(ledger)]).toEqual([at, 1, [asked.userKey]]);
        expect(ledger.keys("records")).toEqual([`uid.${instanceId}`]);
        const spec = await specRow(endpoint, instanceId);
        expect((await headOf(endpoint)).registration.specDigest).toBe(canonicalDigest(spec?.spec));
        expect([spec?.revision, (await statusOf(endpoint, instanceId)).observedSpecRevision]).toEqual([
          registrationRevision,
          registrationRevision,
        ]);
        expect(gateOf(ledger, endpoint, instanceId)).toMatchObject({
          state: "open",
          registrationRevision,
          generation: 1,
        });
        if (!died) break;
      }
    },
    60_000,
  );

  test("PA.08 the same contract again keeps the revision; another one advances it, without a takeover", async () => {
    const { endpoint, ledger, serving } = await named();
    const context = contextOver(serving);
    const userKey = key();
    const first = await register(context, { endpoint, userKey, contract: ONE });
    const again = await register(context, { endpoint, userKey, contract: ONE });
    expect([again.instanceId, again.epoch, again.registrationRevision]).toEqual([
      first.instanceId,
      1,
      first.registrationRevision,
    ]);
    const more = await register(context, { endpoint, userKey, contract: TWO, instanceId: first.instanceId });
    expect([more.epoch, more.registrationRevision > first.registrationRevision]).toEqual([1, true]);
    expect(gateOf(ledger, endpoint, first.instanceId).registrationRevision).toBe(more.registrationRevision);
  });

  test("PA.01 a cluster that is named twice is one", async () => {
    const { endpoint, ledger, serving } = await named();
    const asked = argsOf({ endpoint, userKey: key(), contract: ONE });
    const twice = { ...asked, clusterDigests: [...asked.clusterDigests, ...asked.clusterDigests] };
    const { instanceId } = await registerService(contextOver(serving), caller(), twice);
    expect((await specRow(endpoint, instanceId))?.spec.clusterDigests).toEqual(ONE.clusterDigests);
    expect(gateOf(ledger, endpoint, instanceId).state).toBe("open");
  });

  test("PA.12 PA.11 W131.07 a contract that is refused harms nobody: the instance that it would take over serves on", async () => {
    const { endpoint, ledger, serving } = await named();
    const context = contextOver(serving);
    const userKey = key();
    const { instanceId } = await register(context, { endpoint, userKey, contract: TWO });
    const before = [gateOf(ledger, endpoint, instanceId), await headOf(endpoint), activeOf(ledger)];
    const bad = [
      contractOf(3, [list]),
      contractOf(2, [run, { ...list, effect: "write" }]),
      contractOf(3, [{ ...run, capability: "deploy" }, list]),
    ];
    for (const contract of bad) {
      const error = await failure(register(context, { endpoint, userKey: key(), contract, instanceId }));
      expect(["contract-invalid", "failed-precondition"]).toContain(error.code);
      expect([gateOf(ledger, endpoint, instanceId), await headOf(endpoint), activeOf(ledger)]).toEqual(before);
    }
    await renewService(context, caller(), { endpoint, instanceId, epoch: 1, userKey });
  });

  test("W131.07 a key that is none, and a contract that no credential can carry, are refused before the first write", async () => {
    const { endpoint, ledger, serving } = await named();
    const before = ledger.writes.length;
    const context = contextOver(serving);
    expect((await failure(register(context, { endpoint, userKey: `U${"A".repeat(55)}`, contract: ONE }))).code).toBe(
      "bad-request",
    );
    const commands = Array.from({ length: 192 }, (_, at) => ({ ...list, name: `${"c".repeat(28)}${at}` }));
    const error = await failure(register(context, { endpoint, userKey: key(), contract: contractOf(1, commands) }));
    expect(error.code).toBe("resource-exhausted");
    expect([ledger.writes.length, context.writer.count()]).toEqual([before, 0]);
  });

  test("W131.07 a takeover that the barrier refuses leaves the record as it was, and goes on by a retry", async () => {
    const { endpoint, ledger, serving } = await named();
    const { instanceId } = await register(contextOver(serving), { endpoint, userKey: key(), contract: ONE });
    const spec = await specRow(endpoint, instanceId);
    const stuck = servingOf(ledger, { barrier: () => Promise.reject(new Error("not proved")) });
    const asked = { endpoint, userKey: key(), contract: TWO, instanceId };
    await expect(register(contextOver(stuck), asked)).rejects.toThrow("not proved");
    expect(await specRow(endpoint, instanceId)).toEqual(spec);
    expect((await headOf(endpoint)).clusters.map(({ revision }) => revision)).toEqual([1]);
    const taken = await register(contextOver(serving), asked);
    expect([taken.epoch, activeOf(ledger)]).toEqual([2, [asked.userKey]]);
    expect((await statusOf(endpoint, instanceId)).epoch).toBe(2);
  });
});

describe("a process that was overtaken while it registered", () => {
  /** Stands still before the record of an instance is written, until it is let go. */
  function slowAtRecord(context: SpaceContext) {
    let letGo: () => void = () => undefined;
    let arrived: () => void = () => undefined;
    const stands = new Promise<void>((resolve) => (arrived = resolve));
    const go = new Promise<void>((resolve) => (letGo = resolve));
    const { writer } = context;
    const cas: typeof writer.cas = async (stream, subject, data, expected, options) => {
      if (subject.endsWith(".spec")) {
        arrived();
        await go;
      }
      return writer.cas(stream, subject, data, expected, options);
    };
    return { context: { ...context, writer: { ...writer, cas } }, stands, letGo: () => letGo() };
  }

  async function overtaken(loser: Contract, winner: Contract) {
    const { endpoint, ledger, serving } = await named();
    const { instanceId } = await register(contextOver(serving), { endpoint, userKey: key(), contract: ONE });
    const slow = slowAtRecord(contextOver(serving));
    const first = failure(register(slow.context, { endpoint, userKey: key(), contract: loser, instanceId }));
    await slow.stands;
    const second = await register(contextOver(serving), { endpoint, userKey: key(), contract: winner, instanceId });
    slow.letGo();
    const { code } = await first;
    return { code, second, spec: await specRow(endpoint, instanceId), gate: gateOf(ledger, endpoint, instanceId) };
  }

  test("W131.07 PA.08 is told so, and gets no credential", async () => {
    const { code, second, gate } = await overtaken(TWO, ONE);
    expect([code, second.epoch, gate]).toEqual([
      "expired",
      3,
      expect.objectContaining({ processEpoch: 3, registrationRevision: second.registrationRevision }),
    ]);
  });

  // The record is in another bucket than the gate: it carries the epoch of who wrote it.
  test("W131.07 PA.08 leaves its successor's record alone", async () => {
    const { second, spec } = await overtaken(TWO, ONE);
    expect([spec?.revision, spec?.spec.clusterDigests]).toEqual([second.registrationRevision, ONE.clusterDigests]);
  });
});

describe("a renewal", () => {
  test("W131L.01 W132.16 lengthens the credential of the process that serves, and of nobody else", async () => {
    const { endpoint, ledger, serving } = await named();
    const context = contextOver(serving);
    const userKey = key();
    const { instanceId, registrationRevision } = await register(context, { endpoint, userKey, contract: ONE });
    const renewed = await renewService(context, caller(), { endpoint, instanceId, epoch: 1, userKey });
    expect(renewed).toMatchObject({ instanceId, epoch: 1, registrationRevision });
    expect(renewed.credential?.expires).toBeGreaterThan(Date.now() / 1000 + 500);
    const ask = async (over: object, owner = OWNER) =>
      (await failure(renewService(context, caller(owner), { endpoint, instanceId, epoch: 1, userKey, ...over }))).code;
    expect(await ask({}, STRANGER)).toBe("not-found");
    expect(await ask({ instanceId: "z".repeat(26) })).toBe("not-found");
    expect(await ask({ epoch: 2 })).toBe("expired");
    expect(await ask({ userKey: key() })).toBe("expired");
    await register(context, { endpoint, userKey: key(), contract: ONE, instanceId });
    expect(await ask({})).toBe("expired");
    expect(activeOf(ledger)).toHaveLength(1);
  });
});

describe("an open space", () => {
  test("W131.15 W131.07 every start has an epoch of its own, also of two that begin at once: the older one is told", async () => {
    const endpoint = freshName();
    const context = contextOver(undefined);
    const first = await register(context, { endpoint, userKey: key(), contract: ONE });
    expect([first.epoch, first.credential]).toEqual([1, undefined]);
    const { instanceId } = first;
    const outcomes = await Promise.allSettled(
      Array.from({ length: 6 }, () =>
        register(contextOver(undefined), { endpoint, userKey: key(), contract: ONE, instanceId }),
      ),
    );
    const epochs = outcomes.flatMap((one) => (one.status === "fulfilled" ? [one.value.epoch] : []));
    expect(new Set(epochs).size).toBe(epochs.length);
    expect(Math.max(...epochs)).toBe((await statusOf(endpoint, instanceId)).epoch);
  });
});

describe("PA.12 PB.06 the governance head", () => {
  const head = async (endpoint: string, contract: Contract, over: Partial<Registering> = {}) =>
    moveHead(contextOver(undefined), await moving(endpoint, contract, over));
  /** Published, as a registration does before it moves the head. */
  const registered = async (endpoint: string, contract: Contract) =>
    register(contextOver(undefined), { endpoint, userKey: key(), contract });

  test("PA.12 grows within a line, and an older revision that registers again takes nothing away", async () => {
    const endpoint = freshName();
    await registered(endpoint, ONE);
    await registered(endpoint, TWO);
    const grown = await headOf(endpoint);
    expect(grown.clusters.map(({ revision, digest }) => [revision, digest])).toEqual([[2, TWO.clusterDigests[0]]]);
    expect(grown.commands).toEqual([{ command: "list" }, { command: "run" }]);
    await registered(endpoint, ONE);
    const after = await headOf(endpoint);
    expect([after.clusters, after.commands]).toEqual([grown.clusters, grown.commands]);
  });

  test("PA.12 what is no growth is refused, and the head stays: a command gone, a field more, an effect changed", async () => {
    const endpoint = freshName();
    await registered(endpoint, TWO);
    const before = await headOf(endpoint);
    const bad = [
      contractOf(3, [run]),
      contractOf(3, [{ ...run, input: z.strictObject({ what: z.string(), where: z.string() }) }, list]),
      contractOf(3, [run, { ...list, effect: "write" }]),
      // An older revision that its line has not grown from.
      contractOf(1, [{ ...run, effect: "read" }]),
    ];
    for (const contract of bad) {
      const error = await failure(head(endpoint, contract));
      expect(error.code).toBe("contract-invalid");
      expect(await headOf(endpoint)).toEqual(before);
    }
  });

  test("PA.12 other content under a revision that is taken is refused", async () => {
    const endpoint = freshName();
    await registered(endpoint, TWO);
    const error = await failure(head(endpoint, contractOf(2, [run, list, { ...list, name: "more" }])));
    expect([error.code, error.message]).toEqual([
      "contract-invalid",
      expect.stringContaining("revision 2 does not follow 2"),
    ]);
  });

  test("PA.12 an older revision comes again with what was registered then, and with nothing else", async () => {
    const endpoint = freshName();
    const one = contractOf(1, [{ ...run, name: "first" }]);
    const three = contractOf(3, [
      { ...run, name: "first" },
      { ...list, name: "third" },
    ]);
    await registered(endpoint, one);
    await registered(endpoint, three);
    const before = await headOf(endpoint);
    for (const contract of [
      // Revision 3 has grown from either, and 1 was something else; 2 would not have grown from 1.
      contractOf(1, [{ ...list, name: "third" }]),
      contractOf(2, [{ ...list, name: "third" }]),
    ]) {
      const error = await failure(register(contextOver(undefined), { endpoint, userKey: key(), contract }));
      expect([error.code, error.message]).toEqual(["contract-invalid", expect.stringContaining("was not registered")]);
    }
    expect(await headOf(endpoint)).toEqual(before);
    // Published by another endpoint, and still none of this one's past.
    const foreign = contractOf(2, [{ ...run, name: "first", effect: "read" }]);
    await registered(freshName(), foreign);
    const error = await failure(head(endpoint, foreign));
    expect([error.code, error.message]).toEqual(["contract-invalid", expect.stringContaining("has not only grown")]);
    await registered(endpoint, one);
    expect((await headOf(endpoint)).clusters).toEqual(before.clusters);
  });

  test("PA.12 another line is another matter: its commands are added", async () => {
    const endpoint = freshName();
    await registered(endpoint, ONE);
    await registered(
      endpoint,
      contractOf(0, [{ ...list, modes: ["self", "owner"], capability: "look" }], { urn: "com.acme.job.v2" }),
    );
    expect(await headOf(endpoint)).toMatchObject({
      clusters: [{ urn: "com.acme.job.v1" }, { urn: "com.acme.job.v2" }],
      commands: [{ command: "list", capability: "look", modes: ["owner", "self"] }, { command: "run" }],
    });
  });

  test("PA.11 a governed binding that was attached stays: without it, or with another value, nothing is registered", async () => {
    const endpoint = freshName();
    const priced = (value: number) => contractOf(1, [{ ...run, traits: [{ urn: "ai.cotal.priced", value }] }]);
    await registered(endpoint, priced(3));
    const before = await headOf(endpoint);
    expect(before.bindings).toMatchObject([{ command: "run", traitUrn: "ai.cotal.priced" }]);
    // In another line, where growth has nothing to say of it.
    const dropped = contractOf(0, [run], { urn: "com.acme.job.v2" });
    const error = await failure(head(endpoint, dropped));
    expect([error.code, error.message]).toEqual(["failed-precondition", expect.stringContaining("ai.cotal.priced")]);
    expect((await failure(head(endpoint, priced(4)))).code).toBe("contract-invalid");
    expect(await headOf(endpoint)).toEqual(before);
  });

  test("PB.06 a registration that died between the head and its record is no obstacle, and its own retry converges", async () => {
    const { endpoint, ledger, serving } = await named();
    const first = { endpoint, userKey: key(), contract: ONE };
    const context = contextOver(serving);
    // Everything before the record is written, and then it dies.
    const count = context.writer.count();
    const spied = { ...context, writer: { ...context.writer } };
    let writes = 0;
    spied.writer.create = async (stream, subject, data, options) => {
      if (subject.includes(".svc.")) throw new Error("died");
      writes += 1;
      return context.writer.create(stream, subject, data, options);
    };
    await expect(register(spied, first)).rejects.toThrow("died");
    expect([count, writes > 0]).toEqual([0, true]);
    const abandoned = await headOf(endpoint);
    const { instanceId: dead } = abandoned.registration;
    expect(await specRow(endpoint, dead)).toBeUndefined();
    // Another instance goes on.
    const other = await register(contextOver(serving), { endpoint, userKey: key(), contract: TWO });
    expect(other.instanceId).not.toBe(dead);
    expect((await headOf(endpoint)).registration.instanceId).toBe(other.instanceId);
    // And the dead one comes again.
    const again = await register(contextOver(serving), first);
    expect([again.instanceId, again.epoch]).toEqual([dead, 1]);
    const late = await headOf(endpoint);
    expect(late.registration.specDigest).toBe(canonicalDigest((await specRow(endpoint, dead))?.spec));
    expect(late.clusters.map(({ revision }) => revision)).toEqual([2]);
    expect(activeOf(ledger)).toHaveLength(2);
  });

  test("PB.06 registrations at once come into an order, and none is lost", async () => {
    const endpoint = freshName();
    const contracts = Array.from({ length: 5 }, (_, at) =>
      contractOf(0, [{ ...list, name: `c${at}` }], { urn: `com.acme.job.v${at + 1}` }),
    );
    for (const contract of contracts) {
      await register(contextOver(undefined), { endpoint: freshName(), userKey: key(), contract });
    }
    await Promise.all(contracts.map((contract, at) => head(endpoint, contract, { opId: `op${at}` })));
    const row = await headOf(endpoint);
    expect(row.clusters.map(({ urn }) => urn)).toEqual(contracts.map((_, at) => `com.acme.job.v${at + 1}`));
    expect(row.commands.map(({ command }) => command)).toEqual(contracts.map((_, at) => `c${at}`));
  });

  test("PB.06 a head that holds what nobody knows, or was deleted, is left as it is and refuses", async () => {
    const endpoint = freshName();
    await registered(endpoint, ONE);
    const at = recordKey("govern", { endpoint });
    const subject = kvKey(names.bucket.records, at);
    const odd = { ...(await headOf(endpoint)), later: 1 };
    await put(connection.nc, subject, JSON.stringify(odd));
    expect((await failure(head(endpoint, TWO))).code).toBe("failed-precondition");
    expect((await rowOf(at))?.value).toEqual(odd);
    await put(connection.nc, subject, "not json");
    expect((await failure(head(endpoint, TWO))).code).toBe("failed-precondition");
    await put(connection.nc, subject, "", { [Header.KvOperation]: "DEL" });
    expect((await failure(head(endpoint, ONE))).code).toBe("failed-precondition");
  });
});

describe("the pace of registrations", () => {
  test("W131.15 an owner that registers over and over is told to wait, and when; another one is not slowed", async () => {
    const { endpoint, serving } = await named();
    let at = 0;
    const registrations = createBuckets({ burst: 2, perMinute: 6 }, 10, () => at);
    const context = { ...contextOver(serving), registrations };
    const once = () => register(context, { endpoint, userKey: key(), contract: ONE });
    await once();
    await once();
    const error = await failure(once());
    expect(error).toMatchObject({ code: "resource-exhausted", outcome: "not-executed" });
    expect(error.details).toEqual([{ kind: RETRY_AFTER, ms: 10_000 }]);
    const other = registerService(context, caller(STRANGER), {
      endpoint,
      userKey: key(),
      clusterDigests: ONE.clusterDigests.slice(),
      artifacts: ONE.artifacts.map(({ text }) => text),
    });
    // Refused for its name, and not for the pace.
    expect((await failure(other)).code).toBe("permission-denied");
    at = 10_000;
    expect(await once()).toMatchObject({ epoch: 1 });
  });
});
