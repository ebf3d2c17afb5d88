/**
 * People who are out: no credential, a foreign or expired one, a revoked one, a lifecycle that ended.
 */
import { randomBytes } from "node:crypto";
import {
  AuthorizationError,
  type ConnectionOptions,
  type NatsConnection,
  connect,
  jwtAuthenticator,
} from "@nats-io/transport-node";
import { createAccount, createUser, decode, encodeUser } from "@nats-io/jwt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Life } from "../../shared/grants/matrix.ts";
import type { Credential } from "../../shared/trust/creds.ts";
import { readUserJwt } from "../../shared/trust/jwt.ts";
import { accountKeys, daemonCredential, freshHolder, frontRoot, personOf } from "../support/holders.ts";
import { createProber, tap } from "../support/probe.ts";
import { api, dump, put } from "../support/raw-jetstream.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { dash, dot } from "./expected/kit.ts";
import { until } from "../support/until.ts";

const S = "main";
let space: TestSpace;
let store: NatsConnection;
let loyal: NatsConnection;
let loyalCredential: Minted;

beforeAll(async () => {
  space = await startSpace({ spaces: [S] });
  store = await space.store(S);
  loyalCredential = await space.mint({ actor: "loyal", subscribe: ["general"], publish: ["general"] });
  loyal = await space.connect(loyalCredential);
}, 60_000);

afterAll(() => space.stop());

/** One login, without retries. */
const login = (options: ConnectionOptions): Promise<NatsConnection> =>
  connect({ servers: space.url, timeout: 3000, reconnect: false, ...options });
const as = (credential: Credential): ConnectionOptions => ({
  inboxPrefix: `_INBOX_${credential.view.connId}`,
  authenticator: (nonce) => ({
    jwt: credential.jwt,
    sig: Buffer.from(credential.sign(new TextEncoder().encode(nonce ?? ""))).toString("base64url"),
  }),
});

describe("W9.01 who has no credential of the space", () => {
  test.each<[string, ConnectionOptions]>([
    ["nobody", {}],
    ["a password", { user: "a", pass: "b" }],
    ["a token", { token: "t" }],
  ])("%s is refused", async (_, options) => {
    await expect(login(options)).rejects.toThrow(AuthorizationError);
  });

  test("a JWT of an account that the operator never signed, of another account's key, and a stolen JWT without its seed are refused", async () => {
    const [account, user] = [createAccount(), createUser()];
    const own = await encodeUser("x", user, account);
    const { accountKey } = accountKeys(space, S, "front");
    const claimed = await encodeUser("x", user, account, { issuer_account: accountKey });
    const stolen = loyalCredential.jwt;
    for (const jwt of [own, claimed, stolen]) {
      await expect(login({ authenticator: jwtAuthenticator(jwt, user.getSeed()) })).rejects.toThrow(AuthorizationError);
    }
  });

  test("a user of front signed by the store's key is refused, and so is one of the store signed by front's", async () => {
    for (const [at, by] of [
      ["front", "store"],
      ["store", "front"],
    ] as const) {
      const user = createUser();
      const jwt = await encodeUser("x", user, accountKeys(space, S, by).signer.pair, {
        issuer_account: accountKeys(space, S, at).accountKey,
      });
      await expect(login({ authenticator: jwtAuthenticator(jwt, user.getSeed()) })).rejects.toThrow(AuthorizationError);
    }
  });

  test("an expired one is refused, and one that expires is cut", async () => {
    const user = createUser();
    const { accountKey, signer } = accountKeys(space, S, "front");
    const until_ = (seconds: number): Promise<string> =>
      encodeUser(
        "x",
        user,
        signer.pair,
        { issuer_account: accountKey },
        { exp: Math.floor(Date.now() / 1000) + seconds },
      );
    await expect(login({ authenticator: jwtAuthenticator(await until_(-10), user.getSeed()) })).rejects.toThrow(
      AuthorizationError,
    );
    const nc = await login({ authenticator: jwtAuthenticator(await until_(2), user.getSeed()) });
    await nc.closed();
    expect(nc.isClosed()).toBe(true);
  });
});

describe("a revoked agent", () => {
  let rita: Minted;
  let nc: NatsConnection;
  beforeAll(async () => {
    rita = await space.mint({ actor: "rita", subscribe: ["general"], publish: ["general"], role: "reviewer" });
    nc = await login(as(rita));
    await put(nc, `cotal.${S}.chat.${dot(personOf(rita))}.general`, "while in");
  });

  test("its live connection is closed, its next login refused, and nothing of the others is touched", async () => {
    const before = await dump(store, `CHAT_${S}`);
    const answer = await space.trust("revoke", "--space", S, "--server", space.url, "--users", rita.view.userKey);
    expect(answer).toMatchObject({ kind: "revoked", users: 1 });
    await nc.closed();
    expect(nc.isClosed()).toBe(true);
    await expect(login(as(rita))).rejects.toThrow(AuthorizationError);
    await loyal.flush();
    expect(loyal.isClosed()).toBe(false);
    expect(await dump(store, `CHAT_${S}`)).toEqual(before);
  });

  test("it stays out over a restart of the broker, and others come back", async () => {
    await space.broker.kill();
    await space.broker.restart();
    const isServed = (): Promise<boolean> =>
      space.call("space", {}, { deadlineMs: 500 }).then(
        () => true,
        () => false,
      );
    await until("the space is served again", isServed, 20_000);
    await expect(login(as(rita))).rejects.toThrow(AuthorizationError);
    const again = await login(as(loyalCredential));
    await again.close();
    expect(again.isClosed()).toBe(true);
  });
});

describe("a lifecycle that ended", () => {
  test("W2.07 its successor of the same name reads and settles nothing of it, and the old credential nothing at all", async () => {
    const first = await space.mint({ actor: "temp", subscribe: ["general"] });
    const one = personOf(first);
    const args = { owner: one.owner, actor: one.actor };
    const begun = (await space.call("deprovision", args)) as { uid: string; users: string[]; opId: string };
    await space.trust("revoke", "--space", S, "--server", space.url, "--users", begun.users.join(","));
    await space.call("deprovision-complete", { ...args, uid: begun.uid, opId: begun.opId });
    await expect(login(as(first))).rejects.toThrow(AuthorizationError);
    for (const [stream, durable] of [
      ["DM", "dm"],
      ["DLV", "dlv"],
    ]) {
      const info = await api(store, `CONSUMER.INFO.${stream}_${S}.${durable}_${dash(one)}`);
      expect(info.error?.code).toBe(404);
    }
    const second = await space.mint({ actor: "temp", subscribe: ["general"] });
    const two = personOf(second);
    expect([two.owner, two.actor, two.uid === one.uid]).toEqual([one.owner, one.actor, false]);
    const refused = await createProber(await space.connect(second)).refused([
      { op: "pub", subject: `$JS.API.CONSUMER.MSG.NEXT.DM_${S}.dm_${dash(one)}` },
      { op: "pub", subject: `$JS.ACK.DM_${S}.dm_${dash(one)}.1.1.1.0.0` },
      { op: "pub", subject: `cotal.${S}.ep.one.provisioner.space.${dot(one)}.${one.uid}.${"n".repeat(26)}` },
      { op: "sub", subject: `_INBOX_${one.connId}.>` },
      { op: "sub", subject: `cotal.${S}.ep.reply.*.*.*.${dot(one)}.${one.uid}.*` },
    ]);
    expect(refused).toHaveLength(5);
  });
});

describe("PF.02 the life of what is handed out", () => {
  const left = (jwt: string): number =>
    (readUserJwt(jwt).expires ?? Number.POSITIVE_INFINITY) - Math.floor(Date.now() / 1000);

  test("one-shot profiles live minutes, people's static ones a month at most", async () => {
    const lives = await Promise.all(
      (["channel-writer", "probe", "observer", "agent"] as const).map(async (profile) =>
        left((await space.mint({ actor: `life_${profile.slice(0, 4)}`, profile })).jwt),
      ),
    );
    const [writer = 0, probe = 0, observer = 0, agent = 0] = lives;
    expect([writer <= 600, probe <= 600, observer <= 30 * 86_400, agent <= 30 * 86_400]).toEqual([
      true,
      true,
      true,
      true,
    ]);
  });

  test("the running daemons' credentials live a day at most, and are seen to by the broker", async () => {
    const credential = await daemonCredential(space, "system-administrator", "system", {
      ...freshHolder(`u_${"d".repeat(26)}`, "trust"),
      space: "broker",
    });
    const system = await space.connect(credential);
    const seen = await system.request("$SYS.REQ.SERVER.PING.CONNZ", JSON.stringify({ auth: true, limit: 1000 }), {
      timeout: 5000,
    });
    const { connections } = seen.json<{ data: { connections: { name?: string; jwt?: string; name_tag?: string }[] } }>()
      .data;
    const daemons = connections.filter(({ jwt }) => jwt !== undefined && /\.(provisioner|ledger)$/.test(dotOf(jwt)));
    expect(daemons.length).toBeGreaterThanOrEqual(3);
    expect(daemons.filter(({ jwt }) => left(jwt ?? "") > Life.Host)).toEqual([]);
  });

  test("H67 what people are handed carries limits of subscriptions and payload, and no bearer token", async () => {
    const handed = [
      space.operator(S),
      ...(await Promise.all(
        (["agent", "observer", "admin", "probe"] as const).map((profile) =>
          space.mint({ actor: `lim_${profile.slice(0, 5)}`, profile }),
        ),
      )),
    ];
    for (const { jwt } of handed) {
      const {
        subs = -1,
        payload = -1,
        bearer_token,
      } = decode<{ subs: number; payload: number; bearer_token: boolean }>(jwt).nats;
      expect([subs > 0, payload > 0 && payload <= 1_048_576, bearer_token ?? false]).toEqual([true, true, false]);
    }
  });

  const dotOf = (jwt: string): string => {
    const claims = JSON.parse(Buffer.from(jwt.split(".")[1] ?? "", "base64url").toString()) as { name: string };
    return claims.name;
  };
});

describe("a frame that somebody in front made up", () => {
  test("W9.05 an answer is taken from the derived rail only: a forged one on another's rail is refused to an agent with the widest lists", async () => {
    const root = await frontRoot(space, S);
    const { uid, owner, actor } = personOf(loyalCredential);
    const rail = `cotal.${S}.ep.reply.provisioner.${uid}.1.${owner}.${actor}.${uid}.${randomBytes(13).toString("hex")}`;
    const attacker = await space.connect(
      await space.mint({ actor: "forger", subscribe: [">"], publish: [">"], role: "reviewer" }),
    );
    const heard = await tap(root, rail);
    expect(await createProber(attacker).isRefused({ op: "pub", subject: rail, data: "{}" })).toBe(true);
    await root.flush();
    expect(heard.messages).toEqual([]);
  });
});
