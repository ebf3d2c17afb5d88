/** The exchange: what it releases, what it refuses and as what, and that a refusal writes nothing. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createConnectLimits } from "../../services/auth/edge/connect-limits.ts";
import type { Peer } from "../../services/auth/edge/http.ts";
import { createIdentityProvider } from "../../services/auth/edge/idp.ts";
import { createProbingBudget } from "../../services/auth/edge/probing-budget.ts";
import type { Answer } from "../../services/auth/edge/refusals.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import { ExchangeAnswer, ExchangeLimited } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { Face } from "../../shared/protocol/endpoint/views.ts";
import { verifyBearer } from "../../shared/trust/bearer.ts";
import { type EdgeRig, bearerOf, edgeRig } from "../support/edge-rig.ts";
import { type IdentityProvider, startIdentityProvider } from "../support/identity-provider.ts";

const PEER = { face: Face.Loopback, address: "127.0.0.1" } as const;
const BODY = { space: "main", idToken: "subject:person", actor: "alice" };
const ask = (rig: EdgeRig, over: object = {}, peer: Peer = PEER): Promise<Answer> =>
  rig.exchange({ ...BODY, ...over }, peer);
const reasonOf = ({ body }: Answer): unknown => Reflect.get(body, "reason");

function claimsOf(rig: EdgeRig, bearer: string) {
  const verified = verifyBearer(bearer, {
    issuer: rig.issuer,
    audience: rig.audience,
    keys: [rig.signer],
    nowSeconds: Math.floor(rig.clock.now / 1000),
  });
  if (!verified.ok) throw new Error(verified.fault);
  return verified.claims;
}

/** Refused as this, and the ledger is as it was. */
async function expectRefused(rig: EdgeRig, body: unknown, status: number, reason: string): Promise<void> {
  const before = rig.ledger.writes.length;
  const answer = await rig.exchange(body, PEER);
  expect([answer.status, reasonOf(answer)]).toEqual([status, reason]);
  expect(rig.ledger.writes.length).toBe(before);
  expect(answer.body).toMatchObject({ error: expect.any(String) as string, next: expect.any(String) as string });
}

describe("a person with a proof", () => {
  test("W10.06 W10.32 gets a bearer of the incarnation whose root is in the ledger, active and stamped", async () => {
    const rig = edgeRig();
    const answer = await ask(rig);
    expect(answer.status).toBe(200);
    const body = ExchangeAnswer.omit({ sentinel: true }).parse(answer.body);
    const { act, exp, iat } = claimsOf(rig, body.bearer);
    expect(act).toEqual({
      owner: rig.ownerOf("person"),
      actor: "alice",
      lifecycleUid: body.lifecycleUid,
      credentialId: act.credentialId,
      name: "alice",
    });
    expect([exp, exp - iat]).toEqual([body.expiresAt, 900]);
    expect(rig.ledger.row("auth", `cred.${act.lifecycleUid}.${act.credentialId}`)).toMatchObject({ state: "active" });
    expect(rig.ledger.row("records", `lifecycle.${act.owner}.alice`)).toMatchObject({
      state: "active",
      currentCredentialId: act.credentialId,
    });
  });

  test("W2.02 W10.06 signing in again is the same owner, incarnation and root; another person is another owner", async () => {
    const rig = edgeRig();
    const first = claimsOf(rig, (await bearerOf(rig, "alice")).bearer);
    const second = claimsOf(rig, (await bearerOf(rig, "alice")).bearer);
    expect(second.act).toEqual(first.act);
    expect(second.jti).not.toBe(first.jti);
    const other = claimsOf(rig, (await bearerOf(rig, "alice", "subject:other")).bearer);
    expect(other.act.owner).toMatch(/^u_[a-z2-7]{26}$/);
    expect(other.act.owner).not.toBe(first.act.owner);
  });

  test("twenty exchanges at once release one incarnation", async () => {
    const rig = edgeRig();
    const all = await Promise.all(Array.from({ length: 20 }, () => bearerOf(rig, "alice")));
    expect(new Set(all.map(({ uid }) => uid)).size).toBe(1);
  });
});

describe("what is refused, with nothing written", () => {
  test.each([
    ["owner", "u_aaaaaaaaaaaaaaaaaaaaaaaaaa"],
    ["lifecycleUid", "a".repeat(26)],
    ["credentialId", `r_${"a".repeat(26)}`],
    ["scope", ["admin"]],
    ["capabilities", ["admin"]],
    ["profile", "admin"],
    ["ttl", 1_000_000],
    ["anything", 1],
  ])("W10.05 a request that names %s", (field, value) =>
    expectRefused(edgeRig(), { ...BODY, [field]: value }, 400, "unknown-field"),
  );

  test.each([
    [undefined],
    [null],
    [[]],
    ["text"],
    [{}],
    [{ ...BODY, idToken: "" }],
    [{ ...BODY, idToken: 7 }],
    [{ ...BODY, actor: "a.b" }],
    [{ ...BODY, actor: "*" }],
    [{ ...BODY, actor: "a-b" }],
    [{ ...BODY, actor: "" }],
    [{ ...BODY, actor: "a".repeat(65) }],
  ])("a body of the wrong form: %j", (body) => expectRefused(edgeRig(), body, 400, "malformed"));

  test.each(["lab", "ma.in", ""])("W10.04 a request for another space: %j", (space) =>
    expectRefused(edgeRig(), { ...BODY, space }, 400, "other-space"),
  );

  test("the actor of a chat session", () =>
    expectRefused(edgeRig(), { ...BODY, actor: `chat_${"a".repeat(26)}` }, 400, "chat-actor"));

  test("a person who was granted nothing, where grants are asked for", () =>
    expectRefused(edgeRig({ policy: "granted" }), BODY, 403, "permission-denied"));

  test("W10.07 a grant that was revoked; and it says so", async () => {
    const rig = edgeRig();
    const { principal } = await bearerOf(rig, "alice");
    await rig.authority.revoke(principal);
    await expectRefused(rig, BODY, 403, "permission-denied");
    expect((await ask(rig)).body).toMatchObject({ error: expect.stringMatching(/revoked/) as string });
  });

  test("W10.07 a ledger that can't be read", async () => {
    const away = (): Promise<never> =>
      Promise.reject(new CotalError("unavailable", "the broker is away", { next: "wait" }));
    const broken = (store: LedgerStore): LedgerStore => ({ ...store, read: away, keys: away });
    await expectRefused(edgeRig({ around: broken }), BODY, 503, "unavailable");
  });

  test("a grant that is revoked while the bearer is made is not released", async () => {
    const rig = edgeRig();
    const { principal } = await bearerOf(rig, "alice");
    const exchange = rig.exchangeWith({
      authority: {
        ...rig.authority,
        enrol: async (p, who) => {
          const enrolled = await rig.authority.enrol(p, who);
          await rig.authority.revoke(principal);
          return enrolled;
        },
      },
    });
    const answer = await exchange(BODY, PEER);
    expect([answer.status, reasonOf(answer)]).toEqual([403, "permission-denied"]);
    expect(answer.body).not.toHaveProperty("bearer");
  });

  test("what fails inside is told to the log, and only there", async () => {
    const rig = edgeRig();
    const exchange = rig.exchangeWith({
      authority: { ...rig.authority, enrol: () => Promise.reject(new TypeError("subject:person at /secret/path")) },
    });
    const answer = await exchange(BODY, PEER);
    expect(answer).toMatchObject({ status: 500, body: { code: "internal", error: "the auth service failed" } });
    expect(rig.events.at(-1)?.cause).toBeInstanceOf(TypeError);
  });
});

describe("limits", () => {
  const SIZES = {
    actor: { burst: 2, perMinute: 6 },
    owner: { burst: 3, perMinute: 6 },
    host: { burst: 2, perMinute: 6 },
    keys: 9,
  };

  test("W10.23 while an actor or its owner is limited: 429, the body and the header of §10, nothing written", async () => {
    const rig = edgeRig({ limits: createConnectLimits(SIZES, () => 0) });
    const { principal } = await bearerOf(rig, "alice");
    rig.limits.chargePrincipal(principal);
    rig.limits.chargePrincipal(principal);
    const before = rig.ledger.writes.length;
    const answer = await ask(rig);
    expect(answer.status).toBe(429);
    const body = ExchangeLimited.parse(answer.body);
    expect(Object.keys(answer.body).sort()).toEqual(["code", "error", "limit", "retryAfterSeconds"]);
    expect(body).toMatchObject({ code: "RATE_LIMITED", limit: "actor", retryAfterSeconds: 10 });
    expect(answer.headers?.["retry-after"]).toBe("10");
    rig.limits.chargePrincipal({ ...principal, actor: "bob" });
    expect((await ask(rig, { actor: "carol" })).body).toMatchObject({ limit: "owner" });
    expect(rig.ledger.writes.length).toBe(before);
    expect((await ask(rig, { idToken: "subject:other" })).status).toBe(200);
  });

  test("W10.23 a 429 counts against no budget of refusals", async () => {
    const rig = edgeRig({ limits: createConnectLimits(SIZES, () => 0) });
    const { principal } = await bearerOf(rig, "alice");
    rig.limits.chargePrincipal(principal);
    rig.limits.chargePrincipal(principal);
    const exchange = rig.exchangeWith({
      budget: createProbingBudget({ burst: 1, perMinute: 1 }, () => rig.clock.now),
    });
    for (let n = 0; n < 20; n += 1) expect(Reflect.get((await exchange(BODY, PEER)).body, "code")).toBe("RATE_LIMITED");
    expect((await exchange({ ...BODY, idToken: "junk" }, PEER)).status).toBe(401);
    expect(reasonOf(await exchange({ ...BODY, idToken: "junk" }, PEER))).toBe("refused-too-often");
  });

  test("who keeps being refused is told to wait; a good proof from the same address is served", async () => {
    const rig = edgeRig();
    const exchange = rig.exchangeWith({
      budget: createProbingBudget({ burst: 3, perMinute: 60 }, () => rig.clock.now),
    });
    const junk = async (address: string) => (await exchange({ ...BODY, idToken: "junk" }, { ...PEER, address })).status;
    const statuses = [
      await junk(PEER.address),
      await junk(PEER.address),
      await junk(PEER.address),
      await junk(PEER.address),
    ];
    expect(statuses).toEqual([401, 401, 401, 429]);
    expect((await exchange(BODY, PEER)).status).toBe(200);
    expect(await junk("10.0.0.9")).toBe(401);
    rig.clock.now += 1000;
    expect(await junk(PEER.address)).toBe(401);
  });

  test("a refusal of somebody known keeps its reason, however often it is asked for", async () => {
    const rig = edgeRig({ policy: "granted" });
    for (let n = 0; n < 100; n += 1) expect((await ask(rig)).status).toBe(403);
  });

  test("more exchanges at once than allowed are put off, and nothing is held for them", async () => {
    const rig = edgeRig();
    const held: (() => void)[] = [];
    const exchange = rig.exchangeWith({
      maxInFlight: 2,
      idp: { verify: () => new Promise((resolve) => held.push(() => resolve({ ok: false, fault: "expired" }))) },
    });
    const waiting = [exchange(BODY, PEER), exchange(BODY, PEER)];
    const answer = await exchange(BODY, PEER);
    expect([answer.status, reasonOf(answer), answer.headers]).toEqual([503, "busy", { "retry-after": "1" }]);
    for (const go of held) go();
    expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual([401, 401]);
    const late = exchange(BODY, PEER);
    for (const go of held.slice(2)) go();
    expect((await late).status).toBe(401);
  });
});

describe("one person who asks for very much at once", () => {
  test("has a share of the exchange, and the others are served", async () => {
    const rig = edgeRig();
    const flooder = rig.ownerOf("flooder");
    const held: (() => void)[] = [];
    let isSlow = true;
    const exchange = rig.exchangeWith({
      maxInFlight: 8,
      authority: {
        ...rig.authority,
        enrol: async (p, by) => {
          if (isSlow && p.owner === flooder) await new Promise<void>((resolve) => held.push(resolve));
          return rig.authority.enrol(p, by);
        },
      },
    });
    const ask = (subject: string) => exchange({ ...BODY, idToken: `subject:${subject}` }, PEER);
    const flood = Array.from({ length: 20 }, () => ask("flooder"));
    await expect.poll(() => held.length).toBe(2);
    expect((await ask("other")).status).toBe(200);
    isSlow = false;
    for (const go of held) go();
    const reasons = (await Promise.all(flood)).map((answer) => [answer.status, reasonOf(answer), answer.headers]);
    expect(reasons.filter(([status]) => status === 200)).toHaveLength(2);
    expect(reasons.filter(([status]) => status !== 200)).toContainEqual([429, "busy-with-you", { "retry-after": "1" }]);
    expect((await ask("flooder")).status).toBe(200);
  });
});

describe("with a real OpenID provider", () => {
  let provider: IdentityProvider;
  let elsewhere: IdentityProvider;
  beforeAll(async () => {
    provider = await startIdentityProvider({ clients: ["cotal", "other"] });
    elsewhere = await startIdentityProvider({ claims: { purpose: "dm-reader" } });
  });
  afterAll(() => Promise.all([provider.stop(), elsewhere.stop()]));

  test("W10.20 W10.32 an ID token is exchanged; each that is not one is refused for its reason, with nothing written", async () => {
    const now = { ms: Date.now() };
    const idp = createIdentityProvider({ issuer: provider.issuer, audience: "cotal", now: () => now.ms });
    const rig = edgeRig({ idp });
    const token = await provider.signIn("person");
    expect((await ask(rig, { idToken: token })).status).toBe(200);
    const [head = "", body = "", tail = ""] = token.split(".");
    const other = Buffer.from(JSON.stringify({ alg: "RS256", kid: "unheard-of" })).toString("base64url");
    const none = Buffer.from(JSON.stringify({ alg: "none" })).toString("base64url");
    const cases = [
      [await provider.signIn("person", "other"), "proof-wrong-audience"],
      [`${other}.${body}.${tail}`, "proof-unknown-key"],
      [`${none}.${body}.`, "proof-wrong-algorithm"],
      [`${head}.${body}.${tail.split("").reverse().join("")}`, "proof-bad-signature"],
      ["junk", "proof-malformed"],
    ] as const;
    for (const [idToken, reason] of cases) await expectRefused(rig, { ...BODY, idToken }, 401, reason);
    now.ms += 3_600_000;
    await expectRefused(rig, { ...BODY, idToken: token }, 401, "proof-expired");

    const foreign = edgeRig({
      idp: createIdentityProvider({ issuer: elsewhere.issuer, audience: "cotal", now: Date.now }),
    });
    await expectRefused(foreign, { ...BODY, idToken: await elsewhere.signIn("p") }, 401, "proof-purpose");
    // Its key is another one under the same id.
    await expectRefused(foreign, { ...BODY, idToken: token }, 401, "proof-bad-signature");
  });

  test("no answer and no event holds the proof, or a bearer that was not asked for", async () => {
    const idp = createIdentityProvider({ issuer: provider.issuer, audience: "cotal", now: Date.now });
    const rig = edgeRig({ idp });
    const token = await provider.signIn("person");
    const good = await ask(rig, { idToken: token });
    const refused = [
      await ask(rig, { idToken: token, actor: "a.b" }),
      await ask(rig, { idToken: token, view: "admin" }),
      await ask(rig, { idToken: `${token}x` }),
      await ask(rig, { idToken: token, space: "lab" }),
      await ask(rig, { idToken: token, extra: token }),
    ];
    expect(refused.map(({ status }) => status)).toEqual([400, 403, 401, 400, 400]);
    const said = JSON.stringify([refused, rig.events, good.headers ?? {}]);
    for (const part of token.split(".")) expect(said).not.toContain(part);
    expect(said).not.toContain(ExchangeAnswer.shape.bearer.parse(Reflect.get(good.body, "bearer")));
  });
});
