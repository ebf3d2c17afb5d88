/**
 * The provisioner as an endpoint like any other (supplement A and B): its contract is published, its instance
 * stands in the records, it describes itself, and it holds callers to its digests.
 */
import { randomBytes } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { publishArtifacts } from "../../services/provisioner/artifacts.ts";
import type { SpaceContext } from "../../services/provisioner/context.ts";
import { register } from "../../services/provisioner/register.ts";
import { writeStatus } from "../../services/provisioner/service-records.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { registryPage } from "../../shared/serve/registry.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { jsApi, kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { digestHex } from "../../shared/protocol/base/canonical.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { dotForm, drawLifecycleUid, drawNonce } from "../../shared/protocol/base/principals.ts";
import { ROOT, spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { artifactOf } from "../../shared/protocol/contract/artifact.ts";
import type { FetchArtifact } from "../../shared/protocol/contract/closure.ts";
import { readDescriptor } from "../../shared/protocol/contract/descriptor.ts";
import { resolveCommand } from "../../shared/protocol/contract/resolve.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { EndpointReply } from "../../shared/protocol/endpoint/envelope.ts";
import { EndpointName, endpointSubjects } from "../../shared/protocol/endpoint/grammar.ts";
import { ownContract } from "../../shared/protocol/endpoint/own-contracts.ts";
import { ArtifactsAnswer, EndpointsAnswer } from "../../shared/protocol/endpoint/reads-shapes.ts";
import { RegistrationSpec, RegistrationStatus } from "../../shared/protocol/ledger/service-rows.ts";
import type { Credential } from "../../shared/trust/creds.ts";
import { failure } from "../support/refusal.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { unpaced } from "../support/unpaced.ts";

const names = spaceNames("main");
const contract = ownContract(EndpointName.Provisioner);
const reads = ownContract(EndpointName.Delivery);
const rails = endpointSubjects("main");
let space: TestSpace;
let alice: Minted;
let store: NatsConnection;

beforeAll(async () => {
  space = await startSpace();
  alice = await space.mint({ actor: "alice", subscribe: ["general"], publish: ["general"] });
  store = await space.store();
}, 60_000);
afterAll(() => space.stop());

const describedTo = async (as?: Credential): Promise<ReturnType<typeof readDescriptor>> =>
  readDescriptor(await space.call("describe", undefined, as === undefined ? {} : { as }));
const listed = async (): Promise<EndpointsAnswer["endpoints"]> =>
  EndpointsAnswer.parse(await space.call("endpoints", {}, { as: alice })).endpoints.filter(
    ({ endpoint }) => endpoint === "provisioner",
  );
type EndpointsAnswer = ReturnType<typeof EndpointsAnswer.parse>;

const fetched = (as: Credential): FetchArtifact => {
  return async (digest) => {
    const { artifacts } = ArtifactsAnswer.parse(await space.call("artifacts", { digests: [digest] }, { as }));
    return artifacts[0] === undefined ? undefined : new TextEncoder().encode(artifacts[0].text);
  };
};

const epcOf = (digest: string): string => `${ROOT}.main.epc.${digestHex(digest)}`;

/** A handler's context over the store, without a provisioner. */
const contextOver = (): SpaceContext => ({
  space: "main",
  names,
  subjects: spaceSubjects("main"),
  store,
  writer: createWriter({ nc: store }),
  settings: {} as SpaceContext["settings"],
  authority: undefined,
  serving: undefined,
  registrations: unpaced,
  daemon: (name) => ({ owner: "sys", actor: name }),
  purger: undefined,
  replicas: 1,
  now: Date.now,
  random: randomBytes,
});

async function record(key: string): Promise<{ readonly value: unknown; readonly revision: number } | undefined> {
  const row = await leaderLast(store, bucketStream(names.bucket.records), kvKey(names.bucket.records, key));
  if (row === undefined) return undefined;
  return { value: JSON.parse(new TextDecoder().decode(row.data)) as unknown, revision: row.seq };
}

describe("what it says of itself", () => {
  test("PA.08 a member and the operator are shown the whole contract, the same that is built in", async () => {
    const mine = await describedTo(alice);
    expect(mine.endpoint).toBe("provisioner");
    expect(mine.commands.map(({ name }) => name).toSorted()).toEqual([...contract.commands.keys()].toSorted());
    expect(mine.clusters.map(({ digest }) => digest)).toEqual(contract.clusterDigests);
    expect(await describedTo()).toEqual(mine);
  });

  test("every command of it can be proved from what is published, through a member's own reads", async () => {
    const descriptor = await describedTo(alice);
    for (const { name } of descriptor.commands) {
      const { command, input, output } = await resolveCommand(descriptor, name, fetched(alice));
      const own = contract.commands.get(name);
      expect([name, input.digest, output.digest]).toEqual([name, own?.input.digest, own?.output.digest]);
      expect(command.effect).toBe(own?.document.effect);
    }
  });
});

describe("what a request owes", () => {
  const lawful = contract.commands.get("channel-set")?.document;

  /** `channel-set` as the operator, put together by hand. */
  async function set(channel: string, digests: object): Promise<EndpointReply> {
    const operator = space.operator();
    const nc = await space.connect(operator);
    const { principal, uid } = operator.view;
    const nonce = drawNonce(randomBytes);
    const sub = nc.subscribe(rails.replyTo({ principal, uid }, nonce), { max: 1 });
    const body = {
      v: 1,
      id: "r1",
      op: { endpoint: "provisioner", command: "channel-set", ...digests },
      class: "ephemeral",
      replyExpected: true,
      args: { channel, change: { replay: true } },
      from: { id: dotForm(principal), name: "operator" },
      deadlineMs: 5000,
    };
    nc.publish(rails.one("provisioner", "channel-set", { principal, uid }, nonce), JSON.stringify(body));
    for await (const message of sub) return EndpointReply.parse(message.json());
    throw new Error("no answer");
  }
  const rowOf = (channel: string) =>
    leaderLast(store, bucketStream(names.bucket.channels), kvKey(names.bucket.channels, channel));

  test("W133.02 without its digests, or with another command's, a write is refused, and nothing was written", async () => {
    const { inputDigest, outputDigest } = lawful ?? {};
    const other = contract.commands.get("limits-set")?.document;
    for (const digests of [
      {},
      { inputDigest },
      { outputDigest },
      { inputDigest: other?.inputDigest, outputDigest },
      { inputDigest, outputDigest: other?.outputDigest },
    ]) {
      expect(await set("pinned", digests)).toMatchObject({
        error: { code: "contract-mismatch", outcome: "not-executed" },
      });
    }
    expect(await rowOf("pinned")).toBeUndefined();
    expect(await set("pinned", { inputDigest, outputDigest })).toMatchObject({ ok: true });
    expect(await rowOf("pinned")).toBeDefined();
  });
});

describe("what it answers", () => {
  test("W133.05 is valid by the schemas that it published, compiled as a caller compiles them", async () => {
    const validators = createValidators();
    const bob = await space.mint({ actor: "bob", subscribe: [">"], publish: [">"], role: "reviewer" });
    const asked: readonly (readonly [string, unknown, Credential?])[] = [
      ["space", null, bob],
      ["space", {}, bob],
      ["channels", {}, bob],
      ["roster", { limit: 10 }, bob],
      ["frontier", { channel: "general" }, bob],
      ["history", { channel: "general", last: 5 }, bob],
      ["artifacts", { digests: contract.clusterDigests }, bob],
      ["endpoints", {}, bob],
      ["records", { kind: "svc" }, bob],
      ["channel-set", { channel: "general", change: { description: "all of us", replayWindow: null } }],
      ["limits-show", null],
      ["limits-set", { store: "chat", maxPerSubject: 500 }],
      ["check", {}],
      ["history-purge", {}],
    ];
    for (const [name, args, as] of asked) {
      const declared = contract.commands.get(name) ?? reads.commands.get(name);
      const [input, output] = [declared?.input, declared?.output].map((one) => one && validators.of(one));
      expect([name, input?.check(args)]).toEqual([name, []]);
      const answer = await space.call(name, args, as === undefined ? {} : { as });
      expect([name, output?.check(answer)]).toEqual([name, []]);
    }
  });
});

describe("artifacts", () => {
  test("PA.07 all of the contract lies under its digests, byte for byte", async () => {
    for (const { digest, text } of contract.artifacts) {
      const stored = await leaderLast(store, names.epc, epcOf(digest));
      expect(new TextDecoder().decode(stored?.data)).toBe(text);
    }
  });

  test("PA.07 the store refuses other bytes under a digest, the same bytes again, and their removal", async () => {
    const [one] = contract.artifacts;
    const subject = epcOf(one?.digest ?? "");
    const before = await leaderLast(store, names.epc, subject);
    for (const bytes of ['{"other":1}', one?.text ?? "", ""]) {
      const answer = (await store.request(subject, bytes)).json<{ error?: { err_code: number } }>();
      expect(answer.error?.err_code).toBe(10_077);
    }
    const removal = [
      [jsApi.messageDelete(names.epc), { seq: before?.seq }],
      [jsApi.streamPurge(names.epc), { filter: subject }],
    ] as const;
    for (const [api, body] of removal) {
      const answer = (await store.request(api, JSON.stringify(body))).json<{ error?: object }>();
      expect(answer.error).toBeDefined();
    }
    expect(await leaderLast(store, names.epc, subject)).toEqual(before);
  });

  test("PA.07 publishing again adds nothing; over other bytes it is refused and says where to look", async () => {
    const context = contextOver();
    expect(await publishArtifacts(context, contract.artifacts)).toBe(0);
    const fresh = artifactOf({ made: "for this test", n: 1 });
    expect(await publishArtifacts(context, [fresh])).toBe(1);
    expect(await publishArtifacts(context, [fresh, fresh])).toBe(0);
    const taken = artifactOf({ made: "for this test", n: 2 });
    await store.request(epcOf(taken.digest), '{"forged":true}');
    expect(await failure(publishArtifacts(context, [fresh, taken]))).toMatchObject({
      code: "contract-mismatch",
      outcome: "not-executed",
    });
  });

  test("PA.07 several publishers at once publish each artifact once", async () => {
    const many = Array.from({ length: 20 }, (_, n) => artifactOf({ made: "by several", n }));
    const added = await Promise.all(Array.from({ length: 4 }, () => publishArtifacts(contextOver(), many)));
    expect(added.reduce((sum, n) => sum + n, 0)).toBe(20);
  });

  test("PA.07 no client publishes a contract, and a member's attempt leaves nothing", async () => {
    const nc = await space.connect(alice);
    const mine = artifactOf({ made: "by alice" });
    nc.publish(epcOf(mine.digest), mine.text);
    await nc.flush();
    expect(await leaderLast(store, names.epc, epcOf(mine.digest))).toBeUndefined();
  });

  test("tampered with, an artifact is told apart by its reader, and costs him that one alone", async () => {
    const forged = artifactOf({ made: "to be forged" });
    await store.request(epcOf(forged.digest), '{"made":"by somebody else"}');
    const broken = artifactOf({ made: "to be broken" });
    await store.request(epcOf(broken.digest), new Uint8Array([0xff, 0xfe, 0x7b]));
    const good = contract.artifacts[0]?.digest ?? "";
    const digests = [forged.digest, broken.digest, good, `sha256:${"0".repeat(64)}`];
    const answer = ArtifactsAnswer.parse(await space.call("artifacts", { digests }, { as: alice }));
    expect(answer.missing).toEqual([digests[3]]);
    expect(answer.artifacts.map(({ digest }) => digest)).toEqual(digests.slice(0, 3));
    const texts = new Map(answer.artifacts.map(({ digest, text }) => [digest, text]));
    expect(artifactOf(JSON.parse(texts.get(good) ?? "")).digest).toBe(good);
    const descriptor = await describedTo(alice);
    const swapped: FetchArtifact = (digest) =>
      fetched(alice)(digest === descriptor.clusters[0]?.digest ? forged.digest : digest);
    expect((await failure(resolveCommand(descriptor, "space", swapped))).code).toBe("contract-mismatch");
  });

  test("a request names 1 to 32 digests and nothing else", async () => {
    const many = Array.from({ length: 33 }, () => `sha256:${"1".repeat(64)}`);
    for (const args of [
      { digests: [] },
      { digests: many },
      { digests: ["x"] },
      { digests: ["*"] },
      {},
      { digests: [many[0]], more: 1 },
    ]) {
      expect(await failure(space.call("artifacts", args, { as: alice }))).toMatchObject({
        code: "bad-request",
        outcome: "not-executed",
      });
    }
  });
});

describe("the service record", () => {
  test("PA.08 spec and status stand in the records, and the spec's revision is what describe and the listing say", async () => {
    const descriptor = await describedTo(alice);
    const [mine] = (await listed()).filter(({ endpoint }) => endpoint === "provisioner");
    const spec = await record(`svc.provisioner.${mine?.instanceId}.spec`);
    const status = await record(`svc.provisioner.${mine?.instanceId}.status`);
    expect(RegistrationSpec.parse(spec?.value)).toEqual({
      endpoint: "provisioner",
      owner: mine?.owner,
      clusterDigests: contract.clusterDigests,
      protocol: { v: 2 },
    });
    expect(RegistrationStatus.parse(status?.value)).toEqual({
      epoch: mine?.epoch,
      state: "ready",
      observedSpecRevision: spec?.revision,
    });
    expect([descriptor.registrationRevision, mine?.registrationRevision]).toEqual([spec?.revision, spec?.revision]);
  });

  test("PA.08 a restart is another epoch of the same registration; a stop says so; another contract is a new revision", async () => {
    const [before] = await listed();
    const key = `svc.provisioner.${before?.instanceId}.spec`;
    await space.provisioner.kill("SIGTERM");
    const stopped = await record(`svc.provisioner.${before?.instanceId}.status`);
    expect(stopped?.value).toMatchObject({ state: "stopped", epoch: before?.epoch });
    await space.provisioner.restart();
    const [after] = await listed();
    expect(after?.registrationRevision).toBe(before?.registrationRevision);
    expect(after).toMatchObject({ state: "ready", epoch: (before?.epoch ?? 0) + 1 });
    expect((await describedTo(alice)).registrationRevision).toBe(before?.registrationRevision);

    // As an older version of it would have left it.
    const spec = RegistrationSpec.parse((await record(key))?.value);
    const old = JSON.stringify({ ...spec, clusterDigests: [`sha256:${"a".repeat(64)}`] });
    await store.request(kvKey(names.bucket.records, key), old);
    // Stopped, it gives its instance back; one that was killed keeps it for fifteen seconds (decision 25).
    await space.provisioner.kill("SIGTERM");
    await space.provisioner.restart();
    const [renewed] = await listed();
    expect(renewed?.registrationRevision).toBeGreaterThan(before?.registrationRevision ?? 0);
    expect(renewed?.clusterDigests).toEqual(contract.clusterDigests);
    expect((await describedTo(alice)).registrationRevision).toBe(renewed?.registrationRevision);
  }, 60_000);

  test("rows that are no registration, or no longer there, are passed over; many come in pages, each once", async () => {
    const context = contextOver();
    const put = (key: string, value: unknown) => store.request(kvKey(names.bucket.records, key), JSON.stringify(value));
    const spec = { owner: "u_x", clusterDigests: [], protocol: { v: 2 } };
    const uids = Array.from({ length: 450 }, () => drawLifecycleUid(randomBytes));
    await put(`svc.com_acme_odd.${uids[0]}.spec`, { endpoint: "not a name" });
    await put(`svc.com_acme_odd.${uids[1]}.spec`, "text");
    await Promise.all(
      uids.slice(2).map((uid) => put(`svc.com_acme_many.${uid}.spec`, { endpoint: "com.acme.many", ...spec })),
    );
    await put(`svc.com_acme_many.${uids[2]}.status`, { epoch: "soon" });
    const found: string[] = [];
    let pages = 0;
    let cursor: number | undefined;
    do {
      const page = await registryPage(context, cursor, 400_000);
      found.push(
        ...page.endpoints.filter(({ endpoint }) => endpoint.startsWith("com.")).map(({ instanceId }) => instanceId),
      );
      ({ cursor } = page);
      pages += 1;
    } while (cursor !== undefined);
    expect(found.toSorted()).toEqual(uids.slice(2).toSorted());
    expect(pages).toBeGreaterThan(2);
    expect((await space.call("endpoints", {}, { as: alice })) as object).toHaveProperty("cursor");
  });
});

describe("register", () => {
  const uid = drawLifecycleUid(randomBytes);
  const auth = { principal: { owner: "sys", actor: "auth" }, uid };
  const args = { endpoint: "auth", instanceId: uid, epoch: 5, state: "ready" } as const;

  test("no client may ask for it: the broker refuses the publish", async () => {
    for (const as of [alice, space.operator()]) {
      expect((await failure(space.call("register", args, { as }))).code).toBe("permission-denied");
    }
  });

  test.each([
    ["another daemon", { ...auth, principal: { owner: "sys", actor: "provisioner" } }, args],
    ["the same name of another owner", { ...auth, principal: { owner: "u_x", actor: "auth" } }, args],
    ["another instance than its own", auth, { ...args, instanceId: drawLifecycleUid(randomBytes) }],
    ["an endpoint that is none of ours", auth, { ...args, endpoint: "com.acme.deploy" }],
    ["an endpoint without a contract yet", auth, { ...args, endpoint: "delivery" }],
    ["an inherited name", auth, { ...args, endpoint: "constructor" }],
  ])("%s is refused, and nothing is written", async (_, caller, asked) => {
    const context = contextOver();
    expect(await failure(register(context, caller, asked))).toMatchObject({
      code: "permission-denied",
      outcome: "not-executed",
    });
    expect(context.writer.count()).toBe(0);
  });

  test("PA.08 the daemon itself is registered; again it keeps its revision; an older epoch speaks no more", async () => {
    const context = contextOver();
    const { registrationRevision } = await register(context, auth, args);
    expect((await record(`svc.auth.${uid}.spec`))?.revision).toBe(registrationRevision);
    expect(await register(context, auth, { ...args, epoch: 6 })).toMatchObject({ registrationRevision, epoch: 6 });
    expect(await failure(register(context, auth, args))).toMatchObject({ code: "expired", outcome: "not-executed" });
    const late = { epoch: 5, state: "ready", observedSpecRevision: 1 };
    expect((await failure(writeStatus(context, { endpoint: "auth", instanceId: uid }, late))).code).toBe("expired");
    expect((await record(`svc.auth.${uid}.status`))?.value).toMatchObject({ epoch: 6 });
  });
});

describe("an open space", () => {
  test("PA.08 registers, publishes and describes itself as well", async () => {
    const open = await startSpace({ auth: "open" });
    try {
      const descriptor = readDescriptor(await open.call("describe", undefined));
      const found = async () => EndpointsAnswer.parse(await open.call("endpoints", {})).endpoints;
      // A daemon serves before it is registered.
      await expect.poll(async () => (await found()).length, { timeout: 30_000 }).toBe(2);
      const listing = await found();
      const own = { epoch: 1, state: "ready", owner: "local" };
      expect(listing.toSorted((a, b) => (a.endpoint < b.endpoint ? -1 : 1))).toEqual([
        expect.objectContaining({ endpoint: "delivery", ...own }),
        expect.objectContaining({ endpoint: "provisioner", ...own }),
      ]);
      expect(listing.map(({ registrationRevision }) => registrationRevision)).toContain(
        descriptor.registrationRevision,
      );
      const digests = [descriptor.clusters[0]?.digest ?? ""];
      expect(await open.call("artifacts", { digests })).toMatchObject({ missing: [] });
    } finally {
      await open.stop();
    }
  }, 60_000);
});
