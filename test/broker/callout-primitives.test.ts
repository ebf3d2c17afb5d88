/**
 * The callout's primitives against a real broker: what it asks, what it takes for an answer, and what
 * it does not look at. The facts among them are what `shared/trust/callout.ts` rests on.
 */
import { randomBytes } from "node:crypto";
import {
  AuthorizationError,
  type NatsConnection,
  TimeoutError,
  connect,
  jwtAuthenticator,
  tokenAuthenticator,
} from "@nats-io/transport-node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { NO_COMMANDS } from "../../shared/grants/client-profiles.ts";
import { Account } from "../../shared/grants/row.ts";
import { drawLifecycleUid, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import { type CalloutRequest, allowResponse, denyResponse } from "../../shared/trust/callout.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { signedJwt } from "../../shared/trust/nats-jwt.ts";
import { sentinelUser } from "../../shared/trust/sentinel.ts";
import { newCurveKey } from "../../shared/trust/xkey.ts";
import { type CalloutBroker, type CalloutSpace, startCalloutBroker } from "../support/callout-broker.ts";
import {
  type Answer,
  CALLOUT_QUEUE,
  type RunningResponder,
  bareUserJwt,
  letIn,
  nowSeconds,
  startResponder,
} from "../support/callout-responder.ts";
import { createProber, tap } from "../support/probe.ts";
import { until } from "../support/until.ts";

const AUTH = "$SYS.REQ.USER.AUTH";

let broker: CalloutBroker;
let main: CalloutSpace;
let other: CalloutSpace;
let nc: NatsConnection;
let responder: RunningResponder;
let answer: Answer;

beforeAll(async () => {
  broker = await startCalloutBroker({ spaces: ["main", "other", "empty"], without: ["quiet"] });
  [main, other] = [broker.space("main"), broker.space("other")];
  nc = await broker.responder("main");
  answer = letIn(main.by, main.front);
  responder = await startResponder(nc, { by: main.by, answer: (request) => answer(request) });
}, 60_000);
afterEach(() => {
  answer = letIn(main.by, main.front);
});
afterAll(() => broker.end());

const login = (token = "bearer", sentinel = main.sentinel) => broker.client(sentinel, token);
const bare = (request: CalloutRequest, grants: Readonly<Record<string, unknown>> = {}) =>
  bareUserJwt(request.userKey, main.front, grants);

type Info = {
  readonly data: {
    readonly user: string;
    readonly account: string;
    readonly permissions?: { readonly publish: unknown; readonly subscribe: unknown };
  };
};
const infoOf = async (client: NatsConnection): Promise<Info["data"]> =>
  (await client.request("$SYS.REQ.USER.INFO", "", { timeout: 3000 })).json<Info>().data;

/** Tries to sign in; what the broker's log said of it. */
async function refusedBecause(attempt: () => Promise<NatsConnection> = login): Promise<string> {
  const before = broker.log().length;
  await expect(attempt()).rejects.toThrow(AuthorizationError);
  const warned = (): string | undefined => /\[WRN\] (?!.*Readloop)(.*)/.exec(broker.log().slice(before))?.[1];
  await until("the log says why", () => warned() !== undefined);
  return warned() ?? "";
}

describe("who is let in", () => {
  test("W10.03 sentinel and bearer together: placed in front, under the principal, with the minted rows and no other", async () => {
    const holder = { principal: principal(`u_${"a".repeat(26)}`, "ann"), uid: drawLifecycleUid(randomBytes) };
    const inboxNonce = drawNonce(randomBytes);
    let minted: Awaited<ReturnType<typeof mintUser>>["permissions"] | undefined;
    answer = async (request) => {
      const { jwt, permissions } = await mintUser({
        profile: "agent",
        scope: {
          space: "main",
          holder,
          inboxNonce,
          allowSubscribe: ["team.*"],
          allowPublish: ["team.a"],
          ...NO_COMMANDS,
        },
        account: Account.Front,
        accountKey: main.front.account,
        signer: main.front.signer,
        userKey: request.userKey,
        expires: nowSeconds() + 60,
        limits: { subs: 100, payload: 1000 },
      });
      minted = permissions;
      return allowResponse(request, main.by, jwt, nowSeconds());
    };
    const client = await login();
    const prober = createProber(client);
    const lawful = [
      ...(minted?.pub.allow ?? []).map((entry) => ({ op: "pub" as const, subject: literal(entry) })),
      ...(minted?.sub.allow ?? []).map((entry) => subscription(entry)),
    ];
    expect(lawful.length).toBeGreaterThan(5);
    expect(await prober.refused(lawful)).toEqual([]);
    // The same rows of another actor, of another space, of another inbox.
    const neighbour = (subject: string): string =>
      [
        ["ann", "bob"],
        [inboxNonce, "B".repeat(30)],
        ["main", "rival"],
      ].reduce((now, [from = "", to = ""]) => (now === subject ? now.replaceAll(from, to) : now), subject);
    const foreign = [
      ...lawful.map((probe) => ({ ...probe, subject: neighbour(probe.subject) })),
      ...(minted?.sub.deny ?? []).map((subject) => ({ op: "sub" as const, subject })),
      { op: "sub" as const, subject: ">" },
      { op: "pub" as const, subject: "$SYS.REQ.USER.INFO" },
      { op: "pub" as const, subject: AUTH },
      { op: "sub" as const, subject: AUTH },
    ];
    expect(await prober.refused(foreign)).toEqual(foreign);
    const shown = (await connections()).find(({ cid }) => cid === client.info?.client_id);
    expect(shown).toMatchObject({ authorized_user: `${holder.principal.owner}.ann`, account: main.front.account });
  });

  test("the permissions that the broker holds are the ones in the answer, word for word", async () => {
    const pub = { allow: ["a.*", "$SYS.REQ.USER.INFO"], deny: ["a.b"] };
    const sub = { allow: ["_INBOX.>", "q.>"], deny: ["_INBOX.x"] };
    answer = (request) => allowResponse(request, main.by, bare(request, { pub, sub }), nowSeconds());
    const { user, account, permissions } = await infoOf(await login());
    expect([user, account]).toEqual(["bare", main.front.account]);
    const sorted = (lists: unknown) =>
      Object.fromEntries(Object.entries(lists as object).map(([name, list]) => [name, (list as string[]).toSorted()]));
    expect(sorted(permissions?.publish)).toEqual(sorted(pub));
    expect(sorted(permissions?.subscribe)).toEqual(sorted(sub));
  });

  test("the request tells the sentinel, the bearer, the client's name and address, and a key drawn for it alone", async () => {
    const from = responder.requests.length;
    await broker.client(main.sentinel, "one", { name: "my name" });
    await login("two");
    const [one, two] = responder.requests.slice(from);
    expect(one?.options).toMatchObject({ jwt: main.sentinel, auth_token: "one", name: "my name", lang: "nats.js" });
    expect(one?.client).toMatchObject({ host: "127.0.0.1", name: "my name", kind: "Client", type: "nats" });
    expect(two?.options.auth_token).toBe("two");
    expect(one?.userKey).not.toBe(two?.userKey);
    expect(one?.server).toEqual(two?.server);
    expect(one?.server.id).toBe(nc.info?.server_id);
    expect(responder.faults).toEqual([]);
  });

  test("the user JWT's end ends the connection", async () => {
    answer = (request) =>
      allowResponse(request, main.by, bareUserJwt(request.userKey, main.front, {}, 2), nowSeconds());
    const client = await login();
    await client.closed();
    expect(client.isClosed()).toBe(true);
  });

  test("a revocation of that one user key ends that one connection", async () => {
    const [goes, stays] = [await login(), await login()];
    const revoked = responder.requests.at(-2)?.userKey ?? "";
    const { front } = await broker.claims("main", [revoked]);
    await (await broker.system()).request("$SYS.REQ.CLAIMS.UPDATE", front, { timeout: 5000 });
    await goes.closed();
    await stays.flush();
    expect([goes.isClosed(), stays.isClosed()]).toEqual([true, false]);
  });
});

describe("who is not", () => {
  test("denied: the client hears a bare violation, the server's log the reason", async () => {
    answer = (request) => denyResponse(request, main.by, "RATE_LIMITED retry-after 7s\nforged line", nowSeconds());
    expect(await refusedBecause()).toMatch(/RATE_LIMITED retry-after 7s forged line$/);
    const told: unknown = await login().catch((error: unknown) => error);
    expect(String(told)).not.toContain("RATE_LIMITED");
  });

  test("an answer whose user JWT is over, and one that is over itself", async () => {
    answer = (request) =>
      allowResponse(request, main.by, bareUserJwt(request.userKey, main.front, {}, -1), nowSeconds());
    expect(await refusedBecause()).toContain("expired");
    answer = (request) => sealed(request, { exp: nowSeconds() - 1 }, { jwt: bare(request) });
    expect(await refusedBecause()).toContain("expired");
  });

  test("W10.03 a user of another account: the space's own store, another space's front, and one that claims to be ours", async () => {
    const accounts = [
      { account: main.keys.store.publicKey, signer: main.keys.storeSigner },
      other.front,
      { account: main.front.account, signer: other.front.signer },
    ];
    const said: string[] = [];
    for (const account of accounts) {
      answer = (request) => allowResponse(request, main.by, bareUserJwt(request.userKey, account), nowSeconds());
      said.push(await refusedBecause());
    }
    expect(said).toEqual([
      expect.stringContaining("not permitted as valid account"),
      expect.stringContaining("not permitted as valid account"),
      expect.stringContaining("issuer"),
    ]);
  });

  test("an answer made out to another user key, another server, or with another user's JWT", async () => {
    const said: string[] = [];
    const wrong: Answer[] = [
      (request) => sealed(request, { sub: newKey("user").publicKey }, { jwt: bare(request) }),
      (request) => sealed(request, { aud: `N${"A".repeat(55)}` }, { jwt: bare(request) }),
      (request) => sealed(request, {}, { jwt: bareUserJwt(newKey("user").publicKey, main.front) }),
      (request) => sealed(request, {}, { jwt: bare(request), error: "and no" }),
      (request) => sealed(request, {}, {}),
      () => new Uint8Array(0),
      () => Buffer.from("xkv1 and junk"),
    ];
    for (const one of wrong) {
      answer = one;
      said.push(await refusedBecause());
    }
    expect(said).toHaveLength(wrong.length);
  });

  test("a bearer without a sentinel is refused, and nobody is asked", async () => {
    const before = responder.requests.length;
    const plain = () =>
      connect({ servers: broker.url, timeout: 4000, reconnect: false, authenticator: tokenAuthenticator("bearer") });
    await expect(plain()).rejects.toThrow(AuthorizationError);
    expect(responder.requests).toHaveLength(before);
  });

  test("W10.03 another space's sentinel asks that space's account, which this space's responder never hears", async () => {
    const theirs = await startResponder(await broker.responder("other"), {
      by: other.by,
      answer: letIn(other.by, other.front),
    });
    const before = responder.requests.length;
    const { account } = await infoOf(await login("bearer", other.sentinel));
    expect(account).toBe(other.front.account);
    expect([theirs.requests.length, responder.requests.length]).toEqual([1, before]);
    await theirs.stop();
  });

  test("nobody answers: the broker ends the connection after its auth timeout, and calls it no violation", async () => {
    answer = () => undefined;
    for (const sentinel of [broker.space("empty").sentinel, main.sentinel]) {
      const told: unknown = await login("bearer", sentinel).catch((error: unknown) => error);
      expect(told).toBeInstanceOf(Error);
      // Neither the client's own timeout nor a denial.
      expect(told).not.toBeInstanceOf(TimeoutError);
      expect(told).not.toBeInstanceOf(AuthorizationError);
    }
  });

  test("a sentinel where no callout is set up gets in, and can do nothing at all", async () => {
    const { keys } = broker.space("quiet");
    const jwt = sentinelUser({
      account: keys.auth.publicKey,
      signer: keys.auth,
      userKey: newKey("user").publicKey,
      nowSeconds: nowSeconds(),
    });
    const probes = [
      { op: "pub", subject: "a" },
      { op: "sub", subject: "a" },
      { op: "pub", subject: "$SYS.REQ.USER.INFO" },
      { op: "sub", subject: "_INBOX.a" },
    ] as const;
    expect(await createProber(await login("bearer", jwt)).refused(probes)).toEqual(probes);
  });
});

describe("what is on the wire", () => {
  test("request and answer are sealed, and neither shows the bearer", async () => {
    const sent: Uint8Array[] = [];
    answer = (request) => {
      const bytes = allowResponse(request, main.by, bare(request), nowSeconds());
      sent.push(bytes);
      return bytes;
    };
    await login("a-very-secret-bearer");
    const { bytes, sender } = responder.raw.at(-1) ?? { bytes: new Uint8Array(), sender: "" };
    for (const data of [bytes, sent[0] ?? new Uint8Array()]) {
      expect(Buffer.from(data.subarray(0, 4)).toString()).toBe("xkv1");
      expect(Buffer.from(data).toString("latin1")).not.toContain("eyJ");
    }
    expect(sender).toBe(responder.requests.at(-1)?.server.xkey);
    expect(new Set(responder.raw.map((one) => one.sender)).size).toBe(1);
  });

  test("sealed with another key than the account names: refused", async () => {
    answer = (request) => letIn(main.by, main.front)({ ...request, sealedFor: newCurveKey() });
    expect(await refusedBecause()).toContain("decrypting");
  });

  test("fact: an answer in the clear is taken; that of a key that names no account of ours is not", async () => {
    answer = inTheClear(letIn(main.by, main.front));
    expect((await infoOf(await login())).account).toBe(main.front.account);
    answer = inTheClear(letIn(other.by, main.front));
    expect(await refusedBecause()).toContain("signing key is unknown");
  });

  test("fact: who signed an answer is not looked at, sealed or in the clear", async () => {
    const stranger = newKey("account");
    answer = letIn({ ...main.by, signer: stranger }, main.front);
    expect((await infoOf(await login())).account).toBe(main.front.account);
    answer = inTheClear(letIn({ ...main.by, signer: stranger }, main.front));
    expect((await infoOf(await login())).account).toBe(main.front.account);
  });

  test("fact: the callout may place a connection in its own account, whatever the list of accounts says", async () => {
    answer = (request) => allowResponse(request, main.by, bareUserJwt(request.userKey, main.by), nowSeconds());
    const { account, permissions } = await infoOf(await login());
    expect(account).toBe(main.by.account);
    // The broker adds this by itself: nobody makes up requests.
    expect(permissions).toEqual({ publish: { deny: [AUTH] }, subscribe: {} });
  });

  test("fact: limits in the user JWT of an answer are not enforced", async () => {
    answer = (request) => allowResponse(request, main.by, bare(request, { subs: 1, payload: 10 }), nowSeconds());
    const client = await login();
    const [, , last] = [await tap(client, "a"), await tap(client, "b"), await tap(client, "c")];
    client.publish("c", "more than ten bytes of payload");
    await until("it arrived", () => last.messages.length === 1);
    expect(last.messages).toHaveLength(1);
    expect(client.isClosed()).toBe(false);
  });
});

describe("several responders", () => {
  test("two share the work by their queue group: each request goes to one", async () => {
    const second = await startResponder(await broker.responder("main", 1), {
      by: main.by,
      answer: letIn(main.by, main.front),
    });
    const before = responder.requests.length;
    for (let n = 0; n < 40; n += 1) await (await login(`bearer ${n}`)).close();
    const [one, two] = [responder.requests.length - before, second.requests.length];
    expect(one + two).toBe(40);
    expect(Math.min(one, two)).toBeGreaterThan(3);
    await second.stop();
  });

  test("fact: a user that the account names is let in without asking, with the permissions of its own JWT", async () => {
    const before = responder.requests.length;
    const wide = await broker.responder("main", 1, {});
    expect((await infoOf(wide)).account).toBe(main.by.account);
    expect(responder.requests).toHaveLength(before);
    await wide.close();
  });

  test("a user of the auth account that it does not name is asked about like everybody else", async () => {
    const stranger = newKey("user");
    const jwt = bareUserJwt(stranger.publicKey, main.by);
    answer = (request) => denyResponse(request, main.by, "not you", nowSeconds());
    const seed = Buffer.from(stranger.seedText());
    const said = await refusedBecause(() =>
      connect({ servers: broker.url, timeout: 4000, reconnect: false, authenticator: jwtAuthenticator(jwt, seed) }),
    );
    expect(said).toContain("not you");
  });
});

describe("a responder's own user", () => {
  test("subscribes to requests in its queue group and to nothing else; publishes nothing", async () => {
    const prober = createProber(await broker.responder("main", 1));
    const refused = [
      { op: "sub", subject: AUTH },
      { op: "sub", subject: AUTH, queue: "another" },
      { op: "sub", subject: ">" },
      { op: "sub", subject: "$SYS.>" },
      { op: "sub", subject: "$SYS._INBOX.>" },
      { op: "sub", subject: "_INBOX.a" },
      { op: "pub", subject: AUTH },
      { op: "pub", subject: "a" },
      { op: "pub", subject: "$SYS._INBOX.a" },
      { op: "pub", subject: "$SYS.REQ.USER.INFO" },
      { op: "pub", subject: "$SYS.REQ.ACCOUNT.PING.CONNZ" },
      { op: "pub", subject: "$JS.API.INFO" },
    ] as const;
    expect(await prober.refused(refused)).toEqual(refused);
    expect(await prober.isRefused({ op: "sub", subject: AUTH, queue: CALLOUT_QUEUE })).toBe(false);
  });

  test("answers each request once: a second answer is refused", async () => {
    const own = await broker.responder("empty");
    const prober = createProber(own);
    const replies: string[] = [];
    own.subscribe(AUTH, { queue: CALLOUT_QUEUE, callback: (_, message) => void replies.push(message.reply ?? "") });
    await own.flush();
    const waiting = login("bearer", broker.space("empty").sentinel).catch(() => undefined);
    await until("it was asked", () => replies.length === 1);
    const reply = { op: "pub", subject: replies[0] ?? "" } as const;
    expect(await prober.isRefused(reply)).toBe(false);
    expect(await prober.isRefused(reply)).toBe(true);
    await waiting;
    await own.close();
  });
});

type Shown = { readonly cid: number; readonly authorized_user?: string; readonly account?: string };

async function connections(): Promise<readonly Shown[]> {
  const asked = await (await broker.system()).request("$SYS.REQ.SERVER.PING.CONNZ", JSON.stringify({ auth: true }));
  return asked.json<{ data: { connections: Shown[] } }>().data.connections;
}

/** An answer by hand: any claims, sealed as they should be. */
function sealed(
  request: CalloutRequest,
  over: Readonly<Record<string, unknown>>,
  nats: Readonly<Record<string, unknown>>,
): Uint8Array {
  const jwt = signedJwt(
    {
      sub: request.userKey,
      aud: request.server.id,
      iat: nowSeconds(),
      nats: { ...nats, issuer_account: main.by.account, type: "authorization_response" },
      ...over,
    },
    main.authSigner,
  );
  return main.curve.seal(request.server.xkey ?? "", Buffer.from(jwt));
}

const inTheClear =
  (sealed: Answer): Answer =>
  (request) =>
    sealed({ ...request, sealedFor: undefined });

/** A subject that the entry allows. */
function literal(entry: string): string {
  return entry.replaceAll("*", "w").replace(/>$/, "w.w");
}

function subscription(entry: string): { readonly op: "sub"; readonly subject: string; readonly queue?: string } {
  const [subject = "", queue] = entry.split(" ");
  return queue === undefined ? { op: "sub", subject } : { op: "sub", subject, queue };
}
