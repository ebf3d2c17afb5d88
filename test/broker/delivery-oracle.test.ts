/**
 * The eviction oracle against a real broker, in a space with static credentials: real provisioner, real
 * delivery service, and agents whose connections it ends.
 */
import { randomBytes } from "node:crypto";
import { connect, jwtAuthenticator, type NatsConnection } from "@nats-io/transport-node";
import { type TestContext, afterAll, beforeAll, describe, expect, test } from "vitest";
import { dialedAuth } from "../../shared/broker/authenticator.ts";
import { allRows, leaderLast } from "../../shared/broker/reads.ts";
import { BARRIER_COMMANDS, DeliveryCommand, ProvisionerCommand, ReadCommand } from "../../shared/grants/commands.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { type Principal, dotForm, drawLifecycleUid, drawNonce } from "../../shared/protocol/base/principals.ts";
import { readDescriptor } from "../../shared/protocol/contract/descriptor.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { EndpointsAnswer } from "../../shared/protocol/endpoint/reads-shapes.ts";
import { CredentialRow, ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { type BarrierCaller, type DeliveryService, barrierCaller } from "../support/delivery-service.ts";
import { type DeliveryWorld, startDeliveryWorld } from "../support/delivery-world.ts";
import { daemonCredential, freshHolder } from "../support/holders.ts";
import { failure } from "../support/refusal.ts";
import type { Minted, TestSpace } from "../support/space.ts";

let world: DeliveryWorld;
let space: TestSpace;
let delivery: DeliveryService;
let barrier: BarrierCaller;

beforeAll(async () => {
  world = await startDeliveryWorld();
  ({ space, delivery } = world);
  barrier = await barrierCaller(space, "auth-server");
}, 60_000);
afterAll(() => world.stop());

/** A connection of an agent that does not come back by itself, unless told so. */
async function connected(
  { onTestFinished }: Pick<TestContext, "onTestFinished">,
  credential: Minted,
  comesBack = false,
): Promise<NatsConnection> {
  const seed = /(SU[A-Z0-9]{56})/.exec(credential.text)?.[1] ?? "";
  const nc = await connect({
    servers: space.url,
    timeout: 3000,
    reconnect: comesBack,
    reconnectTimeWait: 100,
    maxReconnectAttempts: -1,
    ignoreAuthErrorAbort: true,
    authenticator: jwtAuthenticator(credential.jwt, new TextEncoder().encode(seed)),
  });
  onTestFinished(() => nc.close());
  return nc;
}

const agent = (actor: string) => space.mint({ actor, subscribe: ["general"], publish: ["general"] });
const of = ({ view }: Minted): Principal => view.principal;

// A proof waits for seconds of quiet: they wait together, each for principals of its own.
describe.concurrent("W131.07 W131.10 PF.04 eviction by principal", () => {
  test("a connected agent is ended, on each of its connections, and reported gone; its neighbour stays", async (context) => {
    const [alice, bob] = await Promise.all([agent("alice"), agent("bob")]);
    const [one, two, other] = await Promise.all([
      connected(context, alice),
      connected(context, alice),
      connected(context, bob),
    ]);
    expect(await barrier.evict(of(alice))).toEqual([{ ...of(alice), state: "gone", found: 2, closed: 2 }]);
    await Promise.all([one.closed(), two.closed()]);
    expect([one.isClosed(), two.isClosed(), other.isClosed()]).toEqual([true, true, false]);
    expect(await barrier.liveness(of(bob))).toEqual([{ ...of(bob), state: "live", found: 1, closed: 0 }]);
  }, 30_000);

  test("one that comes back holds a credential that works: it is live, whatever was ended", async (context) => {
    const carol = await agent("carol");
    await connected(context, carol, true);
    const [verdict] = await barrier.evict(of(carol));
    expect(verdict).toMatchObject({ ...of(carol), state: "live" });
    expect(verdict?.closed).toBeGreaterThanOrEqual(2);
    expect(verdict?.found).toBeGreaterThan(verdict?.closed ?? 0);
  }, 30_000);

  test("W131.07 once its key is refused it does not come back, and is gone", async (context) => {
    const dave = await agent("dave");
    await connected(context, dave, true);
    const revoked = space.trust("revoke", "--space", "main", "--server", space.url, "--users", dave.view.userKey);
    expect((await revoked)["kind"]).toBe("revoked");
    expect(await barrier.evict(of(dave))).toMatchObject([{ ...of(dave), state: "gone" }]);
  }, 30_000);

  test("many are asked about at once, each answered in its place; who was never there is gone, with nothing found", async (context) => {
    const erin = await agent("erin");
    await connected(context, erin);
    const nobody = { owner: of(erin).owner, actor: "nobody" };
    expect(await barrier.liveness(nobody, of(erin), nobody)).toEqual([
      { ...nobody, state: "gone", found: 0, closed: 0 },
      { ...of(erin), state: "live", found: 1, closed: 0 },
      { ...nobody, state: "gone", found: 0, closed: 0 },
    ]);
    expect(await barrier.evict(of(erin), nobody)).toEqual([
      { ...of(erin), state: "gone", found: 1, closed: 1 },
      { ...nobody, state: "gone", found: 0, closed: 0 },
    ]);
  }, 30_000);

  test("a daemon's connections are seen in every account of the space, and its own are ended by nobody", async () => {
    const { owner } = space.operator().view.principal;
    const [provisioner] = await barrier.liveness({ owner, actor: "provisioner" });
    expect(provisioner).toMatchObject({ state: "live" });
    expect(provisioner?.found).toBeGreaterThanOrEqual(2);
    expect(await failure(barrier.evict({ owner, actor: "delivery" }))).toMatchObject({ code: "bad-request" });
  }, 30_000);

  test("W131L.08 an instance of somebody's endpoint is a principal of its own: found and ended by its name", async ({
    onTestFinished,
  }) => {
    const { owner } = of(await agent("keeper"));
    const uid = drawLifecycleUid(randomBytes);
    const instance = { owner, actor: `svc_${uid}` };
    const credential = await daemonCredential(space, "service", "front", {
      space: "main",
      holder: { principal: instance, uid },
      inboxNonce: drawNonce(randomBytes),
      instanceId: uid,
      epoch: 1,
      endpoint: "com.acme.echo",
      commands: ["say"],
    });
    const nc = await connect({
      servers: space.url,
      timeout: 3000,
      reconnect: false,
      authenticator: dialedAuth({ jwt: () => credential.jwt, sign: credential.sign }, "service").authenticate,
    });
    onTestFinished(() => nc.close());
    expect(await barrier.evict({ owner, actor: "keeper" }, instance)).toMatchObject([
      { actor: "keeper", state: "gone", found: 0 },
      { ...instance, state: "gone", found: 1, closed: 1 },
    ]);
    await nc.closed();
  }, 30_000);

  test("no more than 64 at once, and no name that could be more than one", async () => {
    const { owner } = space.operator().view.principal;
    const many = Array.from({ length: 65 }, (_, at) => ({ owner, actor: `a${at}` }));
    expect((await failure(barrier.evict(...many))).code).toBe("bad-request");
    expect((await failure(barrier.evict())).code).toBe("bad-request");
    expect((await failure(barrier.evict({ owner, actor: "*" }))).code).toBe("bad-request");
  });
});

describe.concurrent("PF.04 who may ask", () => {
  test("the provisioner may, as the auth service may", async () => {
    const asking = await barrierCaller(space, "provisioner");
    const nobody = { owner: space.operator().view.principal.owner, actor: "nobody" };
    expect(await asking.liveness(nobody)).toMatchObject([{ state: "gone" }]);
  }, 30_000);

  test.each(["agent", "observer", "admin", "operator", "probe"] as const)("W9.14 %s is refused", async (profile) => {
    const as = profile === "operator" ? space.operator() : await space.mint({ actor: `asks_${profile}`, profile });
    const victim = { owner: as.view.principal.owner, actor: "victim" };
    for (const command of BARRIER_COMMANDS) {
      const asked = space.call(
        command,
        { principals: [victim] },
        { as, endpoint: EndpointName.Delivery, deadlineMs: 2000 },
      );
      expect((await failure(asked)).code).toBe("permission-denied");
    }
  });
});

describe("the daemon", () => {
  const { bucket } = spaceNames("main");

  test("PA.08 it is listed, and describes itself", async () => {
    const listed = async () =>
      EndpointsAnswer.parse(await space.call("endpoints", {})).endpoints.find(
        ({ endpoint }) => endpoint === "delivery",
      );
    await expect.poll(async () => (await listed())?.state, { timeout: 20_000 }).toBe("ready");
    const described = readDescriptor(await space.call("describe", undefined, { endpoint: EndpointName.Delivery }));
    expect(described.commands.map(({ name }) => name).toSorted()).toEqual(
      [...Object.values(DeliveryCommand), ...Object.values(ReadCommand)].toSorted(),
    );
  });

  test("W131L.01 each of its credentials has its row, that of the system account too, and none a read list", async () => {
    const store = await space.store();
    const { owner } = space.operator().view.principal;
    const me = { owner, actor: "delivery" };
    const rows: CredentialRow[] = [];
    for await (const row of allRows(store, bucket.auth, { filter: "cred.>", limit: 100, via: "leader" })) {
      if (row.kind !== "value") continue;
      const parsed = CredentialRow.parse(JSON.parse(new TextDecoder().decode(row.data)));
      if (parsed.holderPrincipal === dotForm(me)) rows.push(parsed);
    }
    expect(rows.map(({ state }) => state)).toEqual(Array.from({ length: 4 }, () => "active"));
    const uid = rows[0]?.lifecycleUid ?? "";
    const acl = await leaderLast(store, bucketStream(bucket.acl), kvKey(bucket.acl, ledgerKey.acl(me, uid)));
    expect(acl).toBeUndefined();
  });

  test.each(["provisioner", "operator", "delivery2"])(
    "W131L.01 rows are for the daemon itself: one that asks as %s is refused, and nothing is written",
    async (actor) => {
      const { owner } = space.operator().view.principal;
      const fresh = freshHolder(owner, actor);
      const credential = await daemonCredential(space, "daemon-entrant", "front", { ...fresh, space: "main" });
      const key = newKey("user").publicKey;
      const expires = Math.floor(Date.now() / 1000) + 60;
      const args = { begin: true, credentials: [{ credentialId: key, expires }] };
      const asked = space.call(ProvisionerCommand.DaemonEnter, args, { as: credential });
      expect((await failure(asked)).code).toBe("permission-denied");
      const store = await space.store();
      const gate = kvKey(bucket.auth, ledgerKey.gate(fresh.holder.uid));
      expect(await leaderLast(store, bucketStream(bucket.auth), gate)).toBeUndefined();
    },
  );

  test("its restart is another epoch; without a provisioner it waits and says so", async () => {
    await delivery.kill("SIGTERM");
    await space.provisioner.kill();
    delivery.restart();
    await expect
      .poll(() => delivery.log(), { timeout: 20_000 })
      .toContain("the provisioner of this space does not answer");
    await space.provisioner.restart();
    await delivery.ready();
    const nobody = { owner: space.operator().view.principal.owner, actor: "nobody" };
    expect(await barrier.liveness(nobody)).toMatchObject([{ state: "gone" }]);
  }, 60_000);

  test("whoever waits for a proof when it stops is told, and not left waiting", async () => {
    const nobody = { owner: space.operator().view.principal.owner, actor: "nobody" };
    const asked = failure(barrier.liveness(nobody));
    await new Promise((resolve) => setTimeout(resolve, 500));
    await delivery.kill("SIGTERM");
    expect((await asked).code).toBe("unavailable");
    delivery.restart();
    await delivery.ready();
  }, 30_000);
});
