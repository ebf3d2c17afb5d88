/**
 * The auth service is really killed after each durable write of what lets somebody in: a sign-in and its connect, a chat
 * session, the registration of an instance that serves, a narrowing. Each time nothing is out that has no rows, another
 * process goes on, and asking again converges.
 */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readKeys } from "../../services/provisioner/keys.ts";
import { askedServing } from "../../services/provisioner/serving/asked.ts";
import { daemonPrincipal } from "../../shared/ledger/self.ts";
import type { ServingLedger } from "../../shared/ledger/serving-type.ts";
import { type Principal, principal } from "../../shared/protocol/base/principals.ts";
import { ActorRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { ChatOpenAnswer, ChatSessionPath } from "../../shared/protocol/endpoint/chat-session-shapes.ts";
import { DevToken, type ExchangeAnswer, ExchangePath } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { ChatHolderRow, ChatOwnerRow, ChatSessionRow, chatKey } from "../../shared/protocol/ledger/chat-rows.ts";
import { EndpointCredentialRow, EndpointGateRow, endpointKey } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { AclRow, CredentialRow, GateRow, HeadRow, UidRow, ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { hashOf } from "../support/chat-parts.ts";
import { type KilledAuth, startKilledAuth } from "../support/killed-auth.ts";

let world: KilledAuth;
let owner: string;
beforeAll(async () => {
  world = await startKilledAuth({ COTAL_AUTH_CHAT_SLOTS: "64" });
  ({ owner } = await world.auth.signIn("cli"));
}, 120_000);
afterAll(() => world.stop());

const say = (command: string, args: unknown) =>
  world.space.call(command, args, { endpoint: EndpointName.Auth, deadlineMs: 20_000 });

const gateOf = async (uid: string) => GateRow.parse(await world.value("auth", ledgerKey.gate(uid)));

/** Lifecycles that were ever reserved for this name. */
async function reserved(p: Principal): Promise<string[]> {
  const keys = await world.ledger.keys("records", "uid.*");
  const rows = await Promise.all(keys.map(async (key) => UidRow.parse(await world.value("records", key))));
  return rows.flatMap((row) => (row.owner === p.owner && row.actor === p.actor ? [row.lifecycleUid] : []));
}

async function activeRoots(uid: string): Promise<string[]> {
  const keys = await world.ledger.keys("auth", ledgerKey.credsOf(uid));
  const rows = await Promise.all(keys.map(async (key) => CredentialRow.parse(await world.value("auth", key))));
  return rows.flatMap(({ state, credentialId }) => (state === "active" ? [credentialId] : []));
}

/** One lifecycle is the name's, with one root, and no other that was reserved for it can let anybody in. */
async function expectOne(p: Principal, uid: string): Promise<void> {
  expect(HeadRow.parse(await world.value("records", ledgerKey.head(p)))).toMatchObject({
    state: "active",
    lifecycleUid: uid,
  });
  for (const one of await reserved(p)) {
    const [state, roots] = one === uid ? ["open", 1] : ["retired", 0];
    expect([one, (await gateOf(one)).state, (await activeRoots(one)).length]).toEqual([one, state, roots]);
  }
}

describe("the service is killed after every durable write", () => {
  test("W131L.07 W131L.01 W131L.14 a sign-in that begins a lifecycle, and its connect: nothing is out without its rows, and the next one is whole", async () => {
    type Of = { readonly p: Principal; answer?: ExchangeAnswer; isIn?: true };
    const writes = await world.atEveryWrite<Of, void>({
      on: (at) => Promise.resolve({ p: principal(owner, `signed_${at}`) }),
      operation: async (of) => {
        of.answer = await world.auth.signIn(of.p.actor);
        await (await world.auth.connect(of.answer)).close();
        of.isIn = true;
      },
      dead: async ({ p, answer, isIn }, isDead) => {
        expect(isIn === true).toBe(!isDead);
        if (answer === undefined) return;
        // A bearer is out: its lifecycle stands, and its root.
        await expectOne(p, answer.lifecycleUid);
      },
      after: async ({ p, answer }) => {
        const again = await world.auth.signIn(p.actor);
        expect(answer?.lifecycleUid ?? again.lifecycleUid).toBe(again.lifecycleUid);
        await expectOne(p, again.lifecycleUid);
        await (await world.auth.connect(again)).close();
      },
    });
    // Actor, stage, uid, gate, head, two durables, read list, gate, root, head; and evidence and read list of the connect.
    expect(writes).toBeGreaterThanOrEqual(12);
  }, 600_000);

  test("W10.27 W131L.01 W131L.14 a chat session: the same holder goes on with the same lifecycle, one slot, one session", async () => {
    await say("actor-grant", { owner, actor: "cli", allowSubscribe: [">"], allowPublish: [">"] });
    const idToken = async () => DevToken.parse((await world.auth.post(ExchangePath.DevToken, {})).body).idToken;
    type Of = { readonly secret: string; readonly idToken: string };
    const open = async ({ secret }: Of, token: string): Promise<ChatOpenAnswer> => {
      const body = { space: "main", idToken: token, holderHash: hashOf(secret) };
      const { status, body: said } = await world.auth.post(ChatSessionPath.Open, body);
      if (status === 200) return ChatOpenAnswer.parse(said);
      throw new Error(`${status} ${JSON.stringify(said)}`);
    };
    const holder = async ({ secret }: Of) =>
      ChatHolderRow.optional().parse(await world.value("auth", chatKey.holder({ owner, holderHash: hashOf(secret) })));
    const session = async (uid: string) =>
      ChatSessionRow.optional().parse(await world.value("auth", chatKey.session(uid)));
    let opened = 0;
    let drawn: string | undefined;
    const writes = await world.atEveryWrite<Of, unknown>({
      on: async () => ({ secret: randomBytes(32).toString("base64url"), idToken: await idToken() }),
      operation: (of) => open(of, of.idToken),
      dead: async (of, isDead) => {
        const row = await holder(of);
        drawn = row?.lifecycleUid;
        // The holder's row is the last word: a session that it does not call active is nobody's yet.
        expect(isDead || row?.state === "active").toBe(true);
        const kept = row?.state === "active" ? (await session(row.lifecycleUid))?.state : "active";
        expect(kept).toBe("active");
      },
      after: async (of) => {
        const answer = await open(of, await idToken());
        opened += 1;
        const { lifecycleUid: uid, actor } = answer;
        expect(drawn ?? uid).toBe(uid);
        expect(await holder(of)).toMatchObject({ state: "active", lifecycleUid: uid, actor });
        expect(await session(uid)).toMatchObject({ state: "active", actor });
        await expectOne(principal(owner, actor), uid);
        const { slots } = ChatOwnerRow.parse(await world.value("auth", chatKey.owner(owner)));
        expect(slots).toHaveLength(opened);
      },
    });
    // Holder, slot, holder, session, the lifecycle and its root, session, holder.
    expect(writes).toBeGreaterThanOrEqual(13);
  }, 900_000);

  test("W131L.08 W131L.01 W131L.14 the registration of an instance that serves: one id for one key, no credential under a gate that is shut", async () => {
    const endpoint = "com.example.killed";
    const serving = registrar(world);
    await serving.assign({ endpoint, owner, by: principal(owner, "cli") });
    type Of = { readonly userKey: string; instanceId?: string; isOut?: true };
    const register = async (of: Of): Promise<void> => {
      const begun = await serving.begin({ endpoint, owner, userKey: of.userKey });
      expect(of.instanceId ?? begun.instanceId).toBe(begun.instanceId);
      of.instanceId = begun.instanceId;
      await serving.open({ ...begun, endpoint, registrationRevision: 1 });
      const expires = Math.floor(Date.now() / 1000) + 300;
      const { instanceId, epoch } = begun;
      await serving.enter({ endpoint, owner, instanceId, epoch, userKey: of.userKey, expires });
      of.isOut = true;
    };
    const gates = async () => {
      const keys = await world.ledger.keys("auth", endpointKey.gatesOf(endpoint));
      return Promise.all(keys.map(async (key) => EndpointGateRow.parse(await world.value("auth", key))));
    };
    const credential = async ({ instanceId = "", userKey }: Of) =>
      EndpointCredentialRow.optional().parse(
        await world.value("auth", endpointKey.cred(endpoint, instanceId, userKey)),
      );
    let made = 0;
    const writes = await world.atEveryWrite<Of, void>({
      on: () => Promise.resolve({ userKey: newKey("user").publicKey }),
      operation: register,
      dead: async (of, isDead) => {
        expect(of.isOut === true).toBe(!isDead);
        const shut = (await gates()).filter(({ state }) => state === "frozen");
        expect(shut.length).toBeLessThan(2);
        // A gate that is shut has let nothing out.
        const out = of.instanceId === undefined ? undefined : await credential(of);
        expect(shut.length === 0 || out === undefined).toBe(true);
      },
      after: async (of) => {
        await register(of);
        made += 1;
        const all = await gates();
        // Asking again under the same key is the same instance: none is left over.
        expect(all.map(({ state, processEpoch }) => [state, processEpoch])).toEqual(
          Array.from({ length: made }, () => ["open", 1]),
        );
        expect(await credential(of)).toMatchObject({ state: "active", processEpoch: 1, credentialId: of.userKey });
      },
    });
    // Stage, id, gate; gate; credential, gate. The last may be answered on the way.
    expect(writes).toBeGreaterThanOrEqual(5);
  }, 600_000);

  test("W131L.14 W9.18 a narrowing: the grant is narrowed first, and who connects next has the narrow lists", async () => {
    const allowSubscribe = ["general"];
    type Of = { readonly p: Principal; readonly answer: ExchangeAnswer };
    const grantOf = async ({ p }: Of) => ActorRow.parse(await world.value("auth", `actor.${p.owner}.${p.actor}`));
    const listOf = async ({ p, answer }: Of) =>
      AclRow.parse(await world.value("acl", ledgerKey.acl(p, answer.lifecycleUid)));
    const narrow = ({ p }: Of) => say("actor-narrow", { ...p, allowSubscribe });
    const writes = await world.atEveryWrite<Of, unknown>({
      on: async (at) => {
        const p = principal(owner, `narrowed_${at}`);
        await say("actor-grant", { ...p, allowSubscribe: ["general", "secrets"], allowPublish: [] });
        const answer = await world.auth.signIn(p.actor);
        await (await world.auth.connect(answer)).close();
        return { p, answer };
      },
      operation: narrow,
      dead: async (of, isDead) => {
        const [grant, list] = [await grantOf(of), await listOf(of)];
        expect(isDead || list.allowSubscribe.length === 1).toBe(true);
        // What may be read is never narrower than what is granted: the grant comes first.
        expect(list.allowSubscribe.length === 2 || grant.allowSubscribe.length === 1).toBe(true);
      },
      after: async (of) => {
        await narrow(of);
        expect([(await grantOf(of)).allowSubscribe, (await listOf(of)).allowSubscribe]).toEqual([
          allowSubscribe,
          allowSubscribe,
        ]);
        await (await world.auth.connect(await world.auth.signIn(of.p.actor))).close();
        expect((await listOf(of)).allowSubscribe).toEqual(allowSubscribe);
      },
    });
    // The grant, and the read list.
    expect(writes).toBeGreaterThanOrEqual(2);
  }, 300_000);
});

/** What the provisioner asks of the plane for an instance, with the provisioner's own keys. */
function registrar({ space }: KilledAuth): ServingLedger {
  const keys = readKeys(join(space.state, "spaces", "{space}", "provisioner"), "main");
  return askedServing({
    space: "main",
    keys,
    me: { principal: daemonPrincipal(keys.ownerSecret, "main", "provisioner"), uid: keys.uid },
    user: newKey("user"),
    dial: { servers: [space.url], name: "registrar", reconnect: { kind: "bounded", attempts: 1 } },
    nowSeconds: () => Math.floor(Date.now() / 1000),
  });
}
