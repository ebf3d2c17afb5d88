/** The routes of chat sessions: who may, what they refuse and as what, and what every refusal says. */
import { type CryptoKey, SignJWT, createLocalJWKSet, exportJWK, generateKeyPair } from "jose";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type ChatEvent, type ChatRouteOptions, chatRoutes } from "../../services/auth/edge/chat-routes.ts";
import { createConnectLimits } from "../../services/auth/edge/connect-limits.ts";
import { MAX_BODY_BYTES } from "../../services/auth/edge/http-refusals.ts";
import { type IdentityProvider, ProofFault, createIdentityProvider } from "../../services/auth/edge/idp.ts";
import { DEFAULT_PROBES, createProbingBudget } from "../../services/auth/edge/probing-budget.ts";
import type { Answer } from "../../services/auth/edge/refusals.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import {
  ChatOpenAnswer,
  ChatRetireAnswer,
  ChatSessionPath,
} from "../../shared/protocol/endpoint/chat-session-shapes.ts";
import { ExchangeAnswer } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { Face } from "../../shared/protocol/endpoint/views.ts";
import { verifyBearer } from "../../shared/trust/bearer.ts";
import { ownerToken } from "../../shared/trust/owner.ts";
import { hashOf } from "../support/chat-parts.ts";
import { type EdgeRig, type EdgeRigOptions, TRUSTING, bearerOf, edgeRig } from "../support/edge-rig.ts";
import { PLAIN_PUBLIC, ask, startFaces } from "../support/faces.ts";
import { type IdentityProvider as Provider, startIdentityProvider } from "../support/identity-provider.ts";

const { Open, Bearer, Retire } = ChatSessionPath;
const PATHS = [Open, Bearer, Retire] as const;
const PEER = { face: Face.Loopback, address: "127.0.0.1" } as const;
const SECRET = "s".repeat(43);
const ID_TOKEN = "subject:person";
const OPEN = { space: "main", idToken: ID_TOKEN, holderHash: hashOf(SECRET) };
const HELD = { space: "main", idToken: ID_TOKEN, holderSecret: SECRET };
const bodyFor = (path: ChatSessionPath): object => (path === Open ? OPEN : HELD);

type Routes = {
  readonly rig: EdgeRig;
  readonly events: ChatEvent[];
  readonly post: (path: ChatSessionPath, body?: unknown) => Promise<Answer>;
};

/** A person who has signed in as `cli`, and the routes. */
async function routesOf(over: Partial<ChatRouteOptions> = {}, options: EdgeRigOptions = {}): Promise<Routes> {
  const rig = edgeRig({ defaults: { allowSubscribe: ["team.>"], allowPublish: ["team.>"] }, ...options });
  await bearerOf(rig, "cli");
  return { rig, ...serving(rig, over) };
}

function serving(rig: EdgeRig, over: Partial<ChatRouteOptions> = {}): Omit<Routes, "rig"> {
  const events: ChatEvent[] = [];
  const routes = chatRoutes({
    space: "main",
    ownerSecret: rig.ownerSecret,
    idp: TRUSTING,
    chat: rig.chat,
    limits: rig.limits,
    budget: createProbingBudget(DEFAULT_PROBES, () => rig.clock.now),
    sentinel: "sentinel.of.tests",
    freshSeconds: 300,
    now: () => rig.clock.now,
    clock: () => rig.clock.now,
    onEvent: (event) => events.push(event),
    ...over,
  });
  return {
    events,
    post: async (path, body = bodyFor(path)) => {
      const route = routes.find((one) => one.path === path);
      if (route === undefined) throw new Error(`no route ${path}`);
      return route.handle(body, PEER);
    },
  };
}

const part = (answer: Answer, field: string): unknown => Reflect.get(answer.body, field);

/** Refused, with an outcome; nothing is written unless something was under way. */
function expectRefusal(answer: Answer, status: number, reason: string, outcome = "not-executed"): void {
  expect([answer.status, part(answer, "reason"), part(answer, "outcome")]).toEqual([status, reason, outcome]);
  expect(answer.body).toMatchObject({ error: expect.any(String) as string, next: expect.any(String) as string });
}

describe("a person", () => {
  test("W10.31 W10.25 W10.28 opens, has bearers, and retires", async () => {
    const { rig, post, events } = await routesOf();
    const opened = ChatOpenAnswer.parse((await post(Open)).body);
    expect(opened).toMatchObject({ owner: rig.ownerOf("person"), allowSubscribe: ["team.>"], name: "cli (chat)" });
    const { sentinel: _, ...answer } = { ...(await post(Bearer)).body } as Record<string, unknown>;
    const given = ExchangeAnswer.omit({ sentinel: true }).parse(answer);
    const { owner, actor, lifecycleUid } = opened;
    expect(given).toMatchObject({ owner, actor, lifecycleUid });
    const verified = verifyBearer(given.bearer, {
      issuer: rig.issuer,
      audience: rig.audience,
      keys: [rig.signer],
      nowSeconds: Math.floor(rig.clock.now / 1000),
    });
    expect(verified).toMatchObject({ ok: true, claims: { exp: given.expiresAt, act: { actor, lifecycleUid } } });
    expect(ChatRetireAnswer.parse((await post(Retire)).body)).toEqual({ owner, actor, lifecycleUid, settled: true });
    expectRefusal(await post(Bearer), 403, "permission-denied");
    expectRefusal(await post(Open), 409, "failed-precondition");
    expect(events.map(({ route, result }) => `${route} ${result}`)).toEqual([
      `${Open} ok`,
      `${Bearer} ok`,
      `${Retire} ok`,
      `${Bearer} permission-denied`,
      `${Open} failed-precondition`,
    ]);
    expect(JSON.stringify(events)).not.toContain(SECRET);
    expect(new Set(events.map(({ principal }) => principal))).toEqual(new Set([`${owner}.${actor}`, `${owner}.cli`]));
  });

  test("W10.27 the answer of a retry is the answer", async () => {
    const { post } = await routesOf();
    const first = await post(Open);
    expect(await post(Open)).toEqual(first);
  });

  test("W10.25 the owner is derived from the proof: the same secret under another person's proof opens nothing", async () => {
    const { post } = await routesOf();
    await post(Open);
    for (const path of [Bearer, Retire]) {
      expectRefusal(await post(path, { ...HELD, idToken: "subject:other" }), 404, "not-found");
    }
  });
});

describe("W10.26 what a request may not name", () => {
  test.each([
    ["owner", `u_${"a".repeat(26)}`],
    ["actor", `chat_${"a".repeat(26)}`],
    ["uid", "a".repeat(26)],
    ["lifecycleUid", "a".repeat(26)],
    ["scope", ["admin"]],
    ["view", "admin"],
    ["profile", "admin"],
    ["role", "reviewer"],
    ["capabilities", ["admin"]],
    ["exp", 2_000_000_000],
  ])("W10.26 W10.31 %s, on any of the routes", async (field, value) => {
    const { rig, post } = await routesOf();
    const before = rig.ledger.writes.length;
    for (const path of PATHS) {
      expectRefusal(await post(path, { ...bodyFor(path), [field]: value }), 400, "unknown-field");
    }
    expect(rig.ledger.writes.length).toBe(before);
  });
});

describe("W10.31 each refusal says what became of the request", () => {
  test.each([
    [undefined],
    ["text"],
    [[]],
    [{}],
    [{ ...OPEN, holderHash: "A".repeat(64) }],
    [{ ...OPEN, holderHash: "a".repeat(63) }],
    [{ ...OPEN, allowSubscribe: ["a b"] }],
    [{ ...OPEN, lifeSeconds: 0 }],
    [{ ...OPEN, lifeSeconds: 1.5 }],
    [{ ...OPEN, idToken: "" }],
  ])("W10.31 a body of the wrong form: %j", async (body) => {
    expectRefusal(await (await routesOf()).post(Open, body ?? null), 400, "malformed");
  });

  test("W10.31 a secret that is too short, and another space", async () => {
    const { post } = await routesOf();
    for (const path of [Bearer, Retire]) {
      expectRefusal(await post(path, { ...HELD, holderSecret: "s".repeat(42) }), 400, "malformed");
      expectRefusal(await post(path, { ...HELD, space: "lab" }), 400, "other-space");
    }
    expectRefusal(await post(Open, { ...OPEN, space: "lab" }), 400, "other-space");
  });

  test.each(Object.values(ProofFault))("W10.31 a proof that is %s", async (fault) => {
    const { rig, post } = await routesOf({ idp: { verify: () => Promise.resolve({ ok: false, fault }) } });
    const before = rig.ledger.writes.length;
    for (const path of PATHS) {
      expectRefusal(await post(path), fault === ProofFault.Unreachable ? 503 : 401, `proof-${fault}`);
    }
    expect(rig.ledger.writes.length).toBe(before);
  });

  test("W10.25 W10.31 an old proof opens nothing; a bearer and a retirement take it", async () => {
    let age = 300;
    const { rig, post } = await routesOf({
      idp: {
        verify: async (token) => {
          const proof = await TRUSTING.verify(token);
          const issued = Math.floor(rig.clock.now / 1000) - age;
          return proof.ok ? { ...proof, issued, expires: issued + 3600 } : proof;
        },
      },
    });
    rig.clock.now = Math.floor(rig.clock.now / 1000) * 1000;
    await post(Open);
    age = 301;
    const before = rig.ledger.writes.length;
    expectRefusal(await post(Open), 401, "proof-stale");
    expect(rig.ledger.writes.length).toBe(before);
    expect((await post(Bearer)).status).toBe(200);
    expect((await post(Retire)).status).toBe(200);
  });

  test.each<[string, object, number, string]>([
    ["lists past the grant", { allowSubscribe: ["other"] }, 403, "permission-denied"],
    ["nine hours", { lifeSeconds: 9 * 3600 }, 400, "bad-request"],
  ])("W10.25 W10.31 %s", async (_, over, status, reason) => {
    const { rig, post } = await routesOf();
    const before = rig.ledger.writes.length;
    expectRefusal(await post(Open, { ...OPEN, ...over }), status, reason);
    expect(rig.ledger.writes.length).toBe(before);
  });

  test("W10.25 W10.31 a person who never signed in as cli", async () => {
    const { post } = await routesOf();
    expectRefusal(await post(Open, { ...OPEN, idToken: "subject:newcomer" }), 403, "permission-denied");
  });

  test("W10.27 W10.31 other arguments, and one session too many", async () => {
    const { post } = await routesOf();
    await post(Open);
    expectRefusal(await post(Open, { ...OPEN, lifeSeconds: 60 }), 409, "already-exists");
    for (let at = 1; at < 8; at += 1) await post(Open, { ...OPEN, holderHash: hashOf(`${at}`) });
    expectRefusal(await post(Open, { ...OPEN, holderHash: hashOf("one too many") }), 429, "resource-exhausted");
  });

  test("W10.31 W10.29 a session that was opened, under a grant that has changed since: executed, and not to be used", async () => {
    const { rig, post } = await routesOf();
    await post(Open);
    await rig.authority.narrow({ owner: rig.ownerOf("person"), actor: "cli" }, { allowPublish: [] });
    expectRefusal(await post(Open), 403, "permission-denied", "executed");
    expectRefusal(await post(Bearer), 403, "permission-denied");
  });

  test("W10.31 a ledger that goes away: not executed before the first write, unknown after it", async () => {
    const state = { writes: Infinity };
    const away = (): Promise<never> =>
      Promise.reject(
        new CotalError(ErrorCode.Unavailable, "the broker is away", { outcome: "not-executed", next: "wait" }),
      );
    const around = (store: LedgerStore): LedgerStore => {
      const counted =
        <A extends unknown[]>(run: (...args: A) => Promise<number>) =>
        (...args: A): Promise<number> => {
          if (state.writes === 0) return away();
          state.writes -= 1;
          return run(...args);
        };
      return { ...store, create: counted(store.create), cas: counted(store.cas) };
    };
    const { post } = await routesOf({}, { around });
    state.writes = 3;
    expectRefusal(await post(Open), 503, "unavailable", "unknown");
    state.writes = Infinity;
    const opened = await post(Open);
    expect(opened.status).toBe(200);
    state.writes = 0;
    expectRefusal(await post(Retire), 503, "unavailable");
    expect((await post(Bearer)).status).toBe(200);
  });

  test("W10.31 a ledger that can't be read refuses everything, and nothing was done", async () => {
    let broken = false;
    const around = (store: LedgerStore): LedgerStore => ({
      ...store,
      read: (...args) =>
        broken
          ? Promise.reject(new CotalError(ErrorCode.Unavailable, "away", { outcome: "not-executed", next: "wait" }))
          : store.read(...args),
    });
    const { post } = await routesOf({}, { around });
    await post(Open);
    broken = true;
    for (const path of PATHS) expectRefusal(await post(path), 503, "unavailable");
  });

  test("W10.31 what fails inside is told to the log, and the outcome is unknown", async () => {
    const fault = (): Promise<never> => Promise.reject(new TypeError(`at ${SECRET}`));
    const rig = (await routesOf()).rig;
    const { post, events } = serving(rig, { chat: { open: fault, holder: fault, bearer: fault, retire: fault } });
    for (const path of PATHS) {
      const answer = await post(path);
      expectRefusal(answer, 500, "internal", "unknown");
      expect(JSON.stringify(answer)).not.toContain(SECRET);
      expect(events.at(-1)?.cause).toBeInstanceOf(TypeError);
    }
  });

  test("W10.31 more at once than are served", async () => {
    let go = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      go = resolve;
    });
    const { post } = await routesOf({
      maxInFlight: 1,
      idp: { verify: (token) => held.then(() => TRUSTING.verify(token)) },
    });
    const first = post(Open);
    for (const path of PATHS) expectRefusal(await post(path), 503, "busy");
    go();
    expect((await first).status).toBe(200);
  });

  test("W10.31 one person's many have a share, and the others are served", async () => {
    const held: (() => void)[] = [];
    let isSlow = true;
    const { rig } = await routesOf();
    const chat: ChatRouteOptions["chat"] = {
      ...rig.chat,
      open: async (asked) => {
        if (isSlow && asked.holderHash === OPEN.holderHash) await new Promise<void>((resolve) => held.push(resolve));
        return rig.chat.open(asked);
      },
    };
    const { post } = serving(rig, { chat, maxInFlight: 8 });
    await bearerOf(rig, "cli", "subject:other");
    const flood = Array.from({ length: 20 }, () => post(Open));
    await expect.poll(() => held.length).toBe(2);
    const other = await post(Open, { ...OPEN, idToken: "subject:other", holderHash: hashOf("t".repeat(43)) });
    expect(other.status).toBe(200);
    isSlow = false;
    for (const go of held) go();
    const answers = await Promise.all(flood);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(2);
    for (const refused of answers.filter(({ status }) => status !== 200)) {
      expectRefusal(refused, part(refused, "reason") === "busy" ? 503 : 429, String(part(refused, "reason")));
    }
    expect(answers.map((answer) => part(answer, "reason"))).toContain("busy-with-you");
    expect((await post(Open)).status).toBe(200);
  });

  test("W10.23 W10.31 while the actor or its owner is limited: 429, nothing is written, and it counts against nothing", async () => {
    const limits = createConnectLimits(
      {
        actor: { burst: 1, perMinute: 6 },
        owner: { burst: 3, perMinute: 6 },
        host: { burst: 9, perMinute: 9 },
        keys: 9,
      },
      () => 0,
    );
    const { rig, post } = await routesOf({}, { limits });
    const owner = rig.ownerOf("person");
    const { actor } = ChatOpenAnswer.parse((await post(Open)).body);
    rig.limits.chargePrincipal({ owner, actor });
    const before = rig.ledger.writes.length;
    for (let round = 0; round < 70; round += 1) {
      const answer = await post(Bearer);
      expect(answer).toMatchObject({
        status: 429,
        headers: { "retry-after": "10" },
        body: { code: "RATE_LIMITED", limit: "actor", retryAfterSeconds: 10, outcome: "not-executed" },
      });
    }
    expect((await post(Open)).status).toBe(200);
    rig.limits.chargePrincipal({ owner, actor: "cli" });
    rig.limits.chargePrincipal({ owner, actor: "third" });
    for (const path of PATHS) expect((await post(path)).body).toMatchObject({ code: "RATE_LIMITED" });
    expect(rig.ledger.writes.length).toBe(before);
    expectRefusal(await post(Open, {}), 400, "malformed");
  });

  test("W10.31 who keeps asking without a proof is told to wait, and a good proof is served all the same", async () => {
    const { post } = await routesOf();
    for (let round = 0; round < 60; round += 1) await post(Open, {});
    expectRefusal(await post(Bearer, {}), 429, "refused-too-often");
    expect((await post(Open)).status).toBe(200);
  });
});

describe("W10.20 a token that was made for one purpose", () => {
  let key: CryptoKey;
  let idp: IdentityProvider;
  beforeAll(async () => {
    const pair = await generateKeyPair("ES256");
    key = pair.privateKey;
    const keys = createLocalJWKSet({ keys: [{ ...(await exportJWK(pair.publicKey)), kid: "k", alg: "ES256" }] });
    idp = createIdentityProvider({ issuer: "https://idp.test", audience: "cotal", keys, now: Date.now });
  });
  const tokenOf = (claims: object): Promise<string> =>
    new SignJWT({ ...claims })
      .setProtectedHeader({ alg: "ES256", kid: "k" })
      .setIssuer("https://idp.test")
      .setAudience("cotal")
      .setSubject("person")
      .setIssuedAt()
      .setExpirationTime("5m")
      .sign(key);

  test.each(PATHS)("W10.20 W10.31 opens nothing at %s", async (path) => {
    const { rig, post } = await routesOf({ idp });
    const idToken = await tokenOf({});
    expect((await post(Open, { ...OPEN, idToken })).status).toBe(200);
    const before = rig.ledger.writes.length;
    for (const purpose of ["dm-reader", "anything", ""]) {
      const answer = await post(path, { ...bodyFor(path), idToken: await tokenOf({ purpose }) });
      expectRefusal(answer, 401, "proof-purpose");
    }
    expect(rig.ledger.writes.length).toBe(before);
    expect(ownerToken(rig.ownerSecret, "https://idp.test", "person")).toBe(rig.ownerOf("person"));
  });
});

describe("W10.31 on both faces", () => {
  let provider: Provider;
  beforeAll(async () => {
    provider = await startIdentityProvider();
  });
  afterAll(() => provider.stop());

  const open = async () => {
    const idp = { issuer: provider.issuer, audience: "cotal", algorithms: ["RS256"], scopes: ["openid"] };
    const faces = await startFaces({ idp, publicFace: PLAIN_PUBLIC });
    onTestFinished(() => faces.close());
    return faces;
  };

  test.each([Face.Loopback, Face.Public])("W10.31 W10.25 the whole way on the %s face", async (face) => {
    const faces = await open();
    const idToken = await provider.signIn("person");
    const post = (path: string, body: object) => {
      const headers = face === Face.Loopback ? { "x-cotal-capability": faces.capability() } : {};
      return ask(`${faces.url(face)}${path}`, { headers, body: JSON.stringify({ space: "main", idToken, ...body }) });
    };
    expect((await post("/exchange", { actor: "cli" })).status).toBe(200);
    const opened = await post(Open, { holderHash: hashOf(SECRET) });
    expect(ChatOpenAnswer.safeParse(opened.json).success).toBe(true);
    const bearer = await post(Bearer, { holderSecret: SECRET });
    expect(bearer.json).toMatchObject({ actor: opened.json["actor"], lifecycleUid: opened.json["lifecycleUid"] });
    const retired = await post(Retire, { holderSecret: SECRET });
    expect([retired.status, retired.json["settled"]]).toEqual([200, true]);
  });

  test("W10.31 the loopback face asks for its capability, at each of them, and what no route has heard of says so", async () => {
    const faces = await open();
    const capability = { "x-cotal-capability": faces.capability() };
    for (const path of PATHS) {
      const url = `${faces.url(Face.Loopback)}${path}`;
      const refused: [object, number, string][] = [
        [{ body: "{}" }, 401, "capability"],
        [{ body: "{}", headers: { "x-cotal-capability": "x".repeat(43) } }, 401, "capability"],
        [{ body: "{}", headers: { ...capability, origin: "https://evil.test" } }, 403, "origin"],
        [{ body: "{", headers: capability }, 400, "malformed"],
        [{ body: "{}", headers: { ...capability, "content-type": "text/plain" } }, 415, "media-type"],
        [{ body: `"${"x".repeat(MAX_BODY_BYTES)}"`, headers: capability }, 413, "too-large"],
        [{ method: "GET", headers: capability }, 404, "no-route"],
      ];
      for (const [asked, status, reason] of refused) {
        const { status: got, json } = await ask(url, asked);
        expect([got, json["reason"], json["outcome"]]).toEqual([status, reason, "not-executed"]);
      }
      const query = await ask(`${url}?a=b`, { body: "{}", headers: capability });
      expect([query.status, query.json["outcome"]]).toEqual([400, "not-executed"]);
    }
  });
});
