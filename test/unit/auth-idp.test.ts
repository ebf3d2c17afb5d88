/** The proof of a person, against a real OpenID provider: what is believed, and each thing that is not. */
import { createHmac, createPublicKey } from "node:crypto";
import { createServer } from "node:http";
import { type JWTPayload, SignJWT, importJWK } from "jose";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { ProofFault, createIdentityProvider } from "../../services/auth/edge/idp.ts";
import { type IdentityProvider, newSigningJwk, startIdentityProvider } from "../support/identity-provider.ts";
import { refusal } from "../support/refusal.ts";

let provider: IdentityProvider;
let impostor: IdentityProvider;
let purposeful: IdentityProvider;
let token: string;

beforeAll(async () => {
  provider = await startIdentityProvider({ clients: ["cotal", "elsewhere"] });
  // The same keys under another name: only the issuer differs.
  impostor = await startIdentityProvider({ keys: provider.keys });
  purposeful = await startIdentityProvider({ claims: { purpose: "dm-reader" } });
  token = await provider.signIn("alice");
});
afterAll(() => Promise.all([provider.stop(), impostor.stop(), purposeful.stop()]));

const at = (of: IdentityProvider, over: Partial<Parameters<typeof createIdentityProvider>[0]> = {}) =>
  createIdentityProvider({ issuer: of.issuer, audience: "cotal", now: Date.now, ...over });

async function expectFault(idToken: string, fault: ProofFault, idp = at(provider)): Promise<void> {
  expect(await idp.verify(idToken)).toEqual({ ok: false, fault });
}

/** Whatever claims, under the provider's own key. */
async function signed(claims: JWTPayload, header: object = {}): Promise<string> {
  const [key] = provider.keys;
  if (key === undefined) throw new Error("no key");
  const now = Math.floor(Date.now() / 1000);
  const whole = { iss: provider.issuer, aud: "cotal", sub: "alice", iat: now, exp: now + 60, ...claims };
  return new SignJWT(whole).setProtectedHeader({ alg: key.alg, kid: key.kid, ...header }).sign(await importJWK(key));
}

const decoded = (part: string | undefined): Record<string, unknown> =>
  JSON.parse(Buffer.from(part ?? "", "base64url").toString()) as Record<string, unknown>;
const encoded = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");

describe("a person who signed in", () => {
  test("is believed, found by discovery or at an address of the keys", async () => {
    const person = { issuer: provider.issuer, subject: "alice" };
    expect(await at(provider).verify(token)).toMatchObject({ ok: true, person });
    expect(await at(provider, { jwks: `${provider.issuer}/jwks` }).verify(token)).toMatchObject({ ok: true, person });
  });

  test("with a provider that signs ES256", async () => {
    const other = await startIdentityProvider({ algorithm: "ES256" });
    try {
      expect(await at(other).verify(await other.signIn("bob"))).toMatchObject({ ok: true });
    } finally {
      await other.stop();
    }
  });
});

test("W10.28 W10.32 times with a fraction, which a NumericDate may have: whole seconds come out, never more than the token says", async () => {
  const now = Math.floor(Date.now() / 1000);
  const proof = await at(provider).verify(await signed({ iat: now - 0.5, exp: now + 60.5 }));
  expect(proof).toMatchObject({ ok: true, issued: now - 1, expires: now + 60 });
});

describe("W10.32 a proof that is refused, each for its own reason", () => {
  test("expired", () => expectFault(token, ProofFault.Expired, at(provider, { now: () => Date.now() + 3_600_000 })));

  test("not yet valid", () =>
    expectFault(token, ProofFault.NotYetValid, at(provider, { now: () => Date.now() - 3_600_000 })));

  test("for another audience", async () =>
    expectFault(await provider.signIn("alice", "elsewhere"), ProofFault.WrongAudience));

  test("of another issuer with the same keys", async () =>
    expectFault(await impostor.signIn("alice"), ProofFault.WrongIssuer));

  test("alg none", async () => {
    const [head, body] = token.split(".");
    await expectFault(`${encoded({ ...decoded(head), alg: "none" })}.${body ?? ""}.`, ProofFault.WrongAlgorithm);
  });

  test("alg swapped: the public key as a shared secret", async () => {
    const [head, body] = token.split(".");
    const [key] = provider.keys;
    const pem = createPublicKey({ key: key ?? {}, format: "jwk" }).export({ type: "spki", format: "pem" });
    const text = `${encoded({ ...decoded(head), alg: "HS256" })}.${body ?? ""}`;
    const mac = createHmac("sha256", pem).update(text).digest("base64url");
    await expectFault(`${text}.${mac}`, ProofFault.WrongAlgorithm);
  });

  test("alg swapped within the list: the key is not of that kind", async () => {
    const [head, body, tail] = token.split(".");
    for (const alg of ["ES256", "EdDSA"]) {
      await expectFault(`${encoded({ ...decoded(head), alg })}.${body ?? ""}.${tail ?? ""}`, ProofFault.UnknownKey);
    }
  });

  test("an algorithm that the space does not allow", () =>
    expectFault(token, ProofFault.WrongAlgorithm, at(provider, { algorithms: ["ES256"] })));

  test("unknown kid, and a stranger's key under a known kid", async () => {
    const stranger = newSigningJwk("stranger");
    const make = async (kid: string) =>
      new SignJWT(decoded(token.split(".")[1]))
        .setProtectedHeader({ alg: "RS256", kid })
        .sign(await importJWK(stranger));
    await expectFault(await make("stranger"), ProofFault.UnknownKey);
    await expectFault(await make(provider.keys[0]?.kid ?? ""), ProofFault.BadSignature);
  });

  test("claims changed after signing", async () => {
    const [head, body, tail] = token.split(".");
    const changed = encoded({ ...decoded(body), sub: "root" });
    await expectFault(`${head ?? ""}.${changed}.${tail ?? ""}`, ProofFault.BadSignature);
  });

  test("W10.20 a token with a purpose, whatever the purpose is", async () => {
    await expectFault(await purposeful.signIn("alice"), ProofFault.Purpose, at(purposeful));
    for (const purpose of ["", null, false, 0, {}]) await expectFault(await signed({ purpose }), ProofFault.Purpose);
  });

  test("another kind of token of the same issuer for the same audience", async () => {
    await expectFault(await signed({}, { typ: "logout+jwt" }), ProofFault.WrongType);
    await expectFault(await signed({}, { typ: "at+jwt" }), ProofFault.WrongType);
    await expectFault(await signed({ events: {} }), ProofFault.WrongType);
    expect(await at(provider).verify(await signed({}, { typ: "JWT" }))).toMatchObject({ ok: true });
  });

  test.each(["sub", "iat", "exp", "iss", "aud"])("without %s", async (claim) =>
    expectFault(await signed({ [claim]: undefined }), ProofFault.MissingClaim),
  );

  test("an empty or endless subject", async () => {
    await expectFault(await signed({ sub: "" }), ProofFault.MissingClaim);
    await expectFault(await signed({ sub: "s".repeat(600) }), ProofFault.MissingClaim);
  });

  test("a subject that is no text of Unicode: two of them would be one person", async () => {
    await expectFault(await signed({ sub: "\ud800" }), ProofFault.MissingClaim);
    await expectFault(await signed({ sub: "a\udc00b" }), ProofFault.MissingClaim);
    expect(await at(provider).verify(await signed({ sub: "\u{1f600}" }))).toMatchObject({ ok: true });
  });

  test("no token at all", async () => {
    for (const text of ["", "x", "a.b", "a.b.c", "....", token.slice(0, 30)]) {
      await expectFault(text, ProofFault.Malformed);
    }
    await expectFault("x".repeat(17_000), ProofFault.TooLarge);
  });
});

describe("an issuer that is not there", () => {
  /** Serves the provider's keys, or breaks down. */
  async function shakyKeys() {
    const state = { isUp: false, asked: 0 };
    const keys = await (await fetch(`${provider.issuer}/jwks`)).text();
    const server = createServer((_, response) => {
      state.asked += 1;
      response.writeHead(state.isUp ? 200 : 500).end(keys);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void server.close());
    const address = server.address();
    return { state, url: `http://127.0.0.1:${typeof address === "object" ? (address?.port ?? 0) : 0}/` };
  }

  test("is nobody's fault, is not asked again at once, and is found when it is back", async () => {
    let now = Date.now();
    const { state, url } = await shakyKeys();
    const idp = at(provider, { jwks: url, now: () => now });
    for (let n = 0; n < 50; n += 1) await expectFault(token, ProofFault.Unreachable, idp);
    expect(state.asked).toBe(1);
    state.isUp = true;
    await expectFault(token, ProofFault.Unreachable, idp);
    now += 10_000;
    expect(await idp.verify(token)).toMatchObject({ ok: true });
    expect(state.asked).toBe(2);
  });

  test("a clock that is set back does not keep people out until it has caught up", async () => {
    let now = Date.now();
    const { state, url } = await shakyKeys();
    const idp = at(provider, { jwks: url, now: () => now });
    now += 3_600_000;
    await expectFault(token, ProofFault.Unreachable, idp);
    state.isUp = true;
    now -= 3_600_000;
    expect(await idp.verify(token)).toMatchObject({ ok: true });
  });

  test("no discovery document: the same", () =>
    expectFault(token, ProofFault.Unreachable, at(provider, { issuer: "http://127.0.0.1:9" })));

  test("people whose key is known still come in while a stranger's can't be looked up", async () => {
    const { state, url } = await shakyKeys();
    state.isUp = true;
    vi.useFakeTimers({ toFake: ["Date"] });
    onTestFinished(() => void vi.useRealTimers());
    const idp = at(provider, { jwks: url });
    expect(await idp.verify(token)).toMatchObject({ ok: true });
    state.isUp = false;
    vi.setSystemTime(Date.now() + 11_000);
    const [, body, tail] = token.split(".");
    const strange = `${encoded({ alg: "RS256", kid: "strange" })}.${body ?? ""}.${tail ?? ""}`;
    await expectFault(strange, ProofFault.Unreachable, idp);
    await expectFault(strange, ProofFault.UnknownKey, idp);
    expect(await idp.verify(token)).toMatchObject({ ok: true });
    expect(state.asked).toBe(2);
  });

  test("a flood of unknown key ids is one request for the keys", async () => {
    const idp = at(provider);
    await idp.verify(token);
    const before = provider.keyRequests();
    const [, body, tail] = token.split(".");
    for (let n = 0; n < 200; n += 1) {
      const head = encoded({ alg: "RS256", kid: `k${n}` });
      await expectFault(`${head}.${body ?? ""}.${tail ?? ""}`, ProofFault.UnknownKey, idp);
    }
    expect(provider.keyRequests() - before).toBeLessThanOrEqual(1);
  });

  test("a discovery document that speaks for another issuer is nobody's", () =>
    expectFault(token, ProofFault.Unreachable, at(provider, { issuer: `${provider.issuer}/` })));
});

test.each([
  [{ issuer: "http://idp.example" }],
  [{ issuer: "ftp://127.0.0.1" }],
  [{ issuer: "nonsense" }],
  [{ jwks: "http://idp.example/jwks" }],
  [{ algorithms: ["HS256"] }],
  [{ algorithms: ["none"] }],
  [{ algorithms: [] }],
])("settings that would trust more than they should are refused: %j", (over) => {
  const settings = { issuer: "https://idp.example", audience: "cotal", now: Date.now };
  expect(refusal(() => createIdentityProvider({ ...settings, ...over })).code).toBe("bad-request");
});
