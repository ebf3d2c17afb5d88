/**
 * Signing in at an identity provider, by browser and by device: a real provider, a person who walks its
 * pages, and everything that must not count as an answer.
 */
import { request } from "node:http";
import { SignJWT, createLocalJWKSet, importJWK } from "jose";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { findOpener } from "../../cli/oidc/opener.ts";
import { signInByBrowser } from "../../cli/oidc/browser.ts";
import { signInByDevice } from "../../cli/oidc/device.ts";
import { checkIdToken } from "../../cli/oidc/id-token.ts";
import { type ProviderAt, type Tokens, findProvider } from "../../cli/oidc/provider.ts";
import { whichProvider } from "../../cli/oidc/which.ts";
import { ErrorCode } from "../../shared/protocol/base/errors.ts";
import { walk } from "../support/browsing.ts";
import { type IdentityProvider, newSigningJwk, startIdentityProvider } from "../support/identity-provider.ts";
import { failure } from "../support/refusal.ts";

const CLIENT = "cotal-cli";

let idp: IdentityProvider;
let es: IdentityProvider;
let plain: IdentityProvider;

beforeAll(async () => {
  idp = await startIdentityProvider({ native: [CLIENT, "elsewhere"] });
  es = await startIdentityProvider({ native: [CLIENT], algorithm: "ES256" });
  plain = await startIdentityProvider({
    native: [CLIENT],
    features: { deviceFlow: { enabled: false } },
  });
});
afterEach(() => {
  idp.intercept = undefined;
});
afterAll(() => Promise.all([idp.stop(), es.stop(), plain.stop()]));

const at = (of: IdentityProvider = idp, more: Partial<ProviderAt> = {}): ProviderAt => ({
  issuer: of.issuer,
  clientId: CLIENT,
  ...more,
});

type Started = { readonly address: URL; readonly redirect: URL; readonly ended: Promise<Tokens> };

/** A sign-in that has shown its address. */
async function started(where = at(), waitMs = 10_000): Promise<Started> {
  const provider = await findProvider(where);
  return new Promise((resolve, reject) => {
    const ended = signInByBrowser(provider, {
      waitMs,
      show: (address) => resolve({ address, redirect: new URL(address.searchParams.get("redirect_uri") ?? ""), ended }),
    });
    ended.catch(reject);
  });
}

const alice = { login: "alice" } as const;
const claimsOf = (token: string): Record<string, unknown> =>
  JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString()) as Record<string, unknown>;

/** The provider's answer, brought to the listener with some of it changed. */
async function answered({ address }: Started, change: (answer: URL) => void = () => undefined): Promise<Response> {
  const { url } = await walk(address.href, alice);
  const answer = new URL(url);
  change(answer);
  return fetch(answer);
}

const discovery = (change: (document: Record<string, unknown>) => void) => {
  idp.intercept = ({ url }, response) => {
    if (url !== "/.well-known/openid-configuration") return false;
    const document: Record<string, unknown> = {
      issuer: idp.issuer,
      authorization_endpoint: `${idp.issuer}/auth`,
      token_endpoint: `${idp.issuer}/token`,
      jwks_uri: `${idp.issuer}/jwks`,
      response_types_supported: ["code"],
      scopes_supported: ["openid"],
    };
    change(document);
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(document));
    return true;
  };
};

describe("by browser", () => {
  test("the address asks for a code, bound to this sign-in by PKCE, state and nonce, to be brought to this machine", async () => {
    const one = await started();
    const asked = Object.fromEntries(one.address.searchParams);
    expect(one.address.href).toMatch(new RegExp(`^${idp.issuer}/auth\\?`));
    expect(asked).toMatchObject({
      response_type: "code",
      client_id: CLIENT,
      code_challenge_method: "S256",
      scope: "openid offline_access",
      prompt: "consent",
    });
    expect(one.redirect.href).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/callback$/);
    const other = await started();
    for (const drawn of ["state", "nonce", "code_challenge", "redirect_uri"]) {
      expect(asked[drawn]?.length).toBeGreaterThan(20);
      expect(other.address.searchParams.get(drawn)).not.toBe(asked[drawn]);
    }
    await Promise.all([answered(one), answered(other)]);
    const tokens = await one.ended;
    expect(claimsOf(tokens.idToken)).toMatchObject({
      iss: idp.issuer,
      aud: CLIENT,
      sub: "alice",
      nonce: asked["nonce"],
    });
    expect(tokens.refreshToken).toMatch(/./);
    await other.ended;
  });

  test("a provider with other signatures, and one that knows no lasting sign-in, will do", async () => {
    const one = await started(at(es));
    await answered(one);
    expect(claimsOf((await one.ended).idToken)["sub"]).toBe("alice");
    discovery(() => undefined);
    const brief = await started();
    expect(brief.address.searchParams.get("scope")).toBe("openid");
    expect(brief.address.searchParams.has("prompt")).toBe(false);
    await answered(brief);
    expect(await brief.ended).not.toHaveProperty("refreshToken");
  });

  test("an answer with another state, or none, or two, counts for nothing: the right one still does", async () => {
    const one = await started();
    const { url } = await walk(one.address.href, alice);
    const before = idp.granted.length;
    const changed = (change: (query: URLSearchParams) => void): URL => {
      const answer = new URL(url);
      change(answer.searchParams);
      return answer;
    };
    const wrong = [
      changed((query) => query.set("state", "x".repeat(43))),
      changed((query) => query.set("state", `${query.get("state") ?? ""}x`)),
      changed((query) => query.delete("state")),
      changed((query) => query.append("state", query.get("state") ?? "")),
      new URL("/callback?error=access_denied&state=guessed", url),
      new URL(url.replace("/callback", "/elsewhere")),
    ];
    for (const answer of wrong) expect((await fetch(answer)).status).toBe(400);
    expect((await fetch(url, { method: "POST" })).status).toBe(400);
    expect(await statusUnderName(url, "evil.example")).toBe(400);
    expect(idp.granted.length).toBe(before);
    const page = await fetch(url);
    expect(page.status).toBe(200);
    expect(await page.text()).not.toContain(new URL(url).searchParams.get("code"));
    expect(claimsOf((await one.ended).idToken)["sub"]).toBe("alice");
  });

  test("an ID token of another sign-in, which its nonce tells, is refused", async () => {
    const one = await started();
    const forged = new URL(one.address);
    forged.searchParams.set("nonce", "of-somebody-else");
    await answered({ ...one, address: forged });
    expect(await failure(one.ended)).toMatchObject({ code: ErrorCode.Unauthenticated });
  });

  test("a code that was asked for with another verifier is worth nothing here", async () => {
    const one = await started();
    const forged = new URL(one.address);
    forged.searchParams.set("code_challenge", "A".repeat(43));
    await answered({ ...one, address: forged });
    expect(await failure(one.ended)).toMatchObject({ code: ErrorCode.Unauthenticated });
  });

  test("an ID token that another key signed is refused, though it came from the provider itself", async () => {
    const [key] = idp.keys;
    const { kty, n, e } = newSigningJwk("k-RS256");
    const one = await started();
    idp.intercept = ({ url }, response) => {
      if (url !== "/jwks") return false;
      const published = { keys: [{ kty, n, e, kid: key?.kid, alg: "RS256", use: "sig" }] };
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(published));
      return true;
    };
    await answered(one);
    const error = await failure(one.ended);
    expect(error).toMatchObject({ code: ErrorCode.Unauthenticated });
    expect(error.message).toContain("signature");
  });

  test("who refuses on the provider's page has not signed in, and is told so", async () => {
    const one = await started();
    const { url } = await walk(one.address.href, { ...alice, refuses: true });
    await fetch(url);
    const error = await failure(one.ended);
    expect(error).toMatchObject({ code: ErrorCode.PermissionDenied });
    expect(error.message).toContain("access_denied");
  });

  test("nobody comes: it ends in time, and its port is free again", async () => {
    const { redirect, ended } = await started(at(), 200);
    expect(await failure(ended)).toMatchObject({ code: ErrorCode.DeadlineExceeded });
    await expect(fetch(redirect)).rejects.toThrow(/fetch failed/);
  });
});

describe("a provider is believed about itself only", () => {
  const found = (where = at()) => failure(findProvider(where));

  test("a document of another issuer, or one that spells it otherwise, is refused", async () => {
    discovery((document) => (document["issuer"] = "https://elsewhere.example"));
    expect(await found()).toMatchObject({ code: ErrorCode.FailedPrecondition });
    discovery((document) => (document["issuer"] = `${idp.issuer}/`));
    expect(await found()).toMatchObject({ code: ErrorCode.FailedPrecondition });
  });

  test("nothing goes to an address that is not https, whoever names it", async () => {
    for (const issuer of ["http://login.example.com", "ftp://x.example", "nothing", "https://u:p@x.example"]) {
      expect(await found(at(idp, { issuer }))).toMatchObject({ code: ErrorCode.BadRequest });
    }
    discovery((document) => (document["authorization_endpoint"] = "http://login.example.com/auth"));
    expect(await failure(started())).toMatchObject({ code: ErrorCode.Internal });
    discovery((document) => (document["token_endpoint"] = "http://login.example.com/token"));
    const one = await started();
    await answered(one);
    expect(await failure(one.ended)).toMatchObject({ code: ErrorCode.Internal });
  });

  test("one that is away, answers nonsense or too much ends as what it is", async () => {
    expect(await found(at(idp, { issuer: "http://127.0.0.1:9" }))).toMatchObject({ code: ErrorCode.Unavailable });
    const saying = (status: number, body: string) => {
      idp.intercept = (_, response) => {
        response.writeHead(status, { "content-type": "application/json" }).end(body);
        return true;
      };
    };
    saying(503, "{}");
    expect(await found()).toMatchObject({ code: ErrorCode.Unavailable });
    saying(404, "{}");
    expect(await found()).toMatchObject({ code: ErrorCode.Internal });
    saying(200, "<html>");
    expect(await found()).toMatchObject({ code: ErrorCode.Internal });
    saying(200, JSON.stringify({ issuer: idp.issuer, more: "x".repeat(300_000) }));
    expect(await found()).toMatchObject({ code: ErrorCode.Internal });
  });
});

describe("an ID token", () => {
  const key = newSigningJwk("k");
  const { kty, n, e, kid } = key;
  const keys = createLocalJWKSet({ keys: [{ kty: "RSA", n: n ?? "", e: e ?? "", kid, use: "sig" }] });
  const where = { at: { issuer: "https://idp.example", clientId: CLIENT }, host: "idp.example" };
  const now = Math.floor(Date.now() / 1000);
  const right = { iss: "https://idp.example", aud: CLIENT, sub: "alice", iat: now, exp: now + 60, nonce: "n" };
  const signed = async (claims: object, alg = "RS256"): Promise<string> =>
    new SignJWT({ ...right, ...claims }).setProtectedHeader({ alg, kid }).sign(await importJWK(key, alg));
  const check = (token: string, expected = { nonce: "n" } as object): Promise<void> =>
    checkIdToken(token, where, keys, expected);

  test("of this issuer, for this client and this sign-in is taken", async () => {
    expect(kty).toBe("RSA");
    await expect(check(await signed({}))).resolves.toBeUndefined();
    await expect(check(await signed({}, "PS384"), { subject: "alice" })).resolves.toBeUndefined();
    await expect(check(await signed({ aud: [CLIENT, "more"], azp: CLIENT }))).resolves.toBeUndefined();
  });

  const WRONG: readonly (readonly [string, object])[] = [
    ["of another issuer", { iss: "https://elsewhere.example" }],
    ["for another client", { aud: "elsewhere" }],
    ["for several clients, without a word whose it is,", { aud: [CLIENT, "elsewhere"] }],
    ["for several clients, made by the other,", { aud: [CLIENT, "elsewhere"], azp: "elsewhere" }],
    ["that is over", { exp: now - 60 }],
    ["that does not count yet", { nbf: now + 60 }],
    ["of another sign-in", { nonce: "other" }],
    ["of no sign-in", { nonce: undefined }],
    ["of nobody", { sub: undefined }],
    ["without a time", { iat: undefined }],
  ];
  test.each(WRONG)("%s is refused", async (_, claims) => {
    expect(await failure(check(await signed(claims)))).toMatchObject({ code: ErrorCode.Unauthenticated });
  });

  test("of another person is refused where it should replace somebody's", async () => {
    const token = await signed({ sub: "mallory" });
    expect(await failure(check(token, { subject: "alice" }))).toMatchObject({ code: ErrorCode.Unauthenticated });
  });

  test("without a signature of a key pair is refused: none, a shared secret, another key", async () => {
    const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
    const [, , signature = ""] = (await signed({})).split(".");
    const none = `${part({ alg: "none" })}.${part(right)}.`;
    const shared = await new SignJWT(right)
      .setProtectedHeader({ alg: "HS256", kid })
      .sign(new TextEncoder().encode(JSON.stringify({ n, e })));
    const strange = await new SignJWT(right)
      .setProtectedHeader({ alg: "RS256", kid: "unknown" })
      .sign(await importJWK(key, "RS256"));
    const swapped = `${part({ alg: "RS256", kid })}.${part({ ...right, sub: "mallory" })}.${signature}`;
    for (const token of [none, shared, strange, swapped, "no token"]) {
      const error = await failure(check(token));
      expect(error).toMatchObject({ code: ErrorCode.Unauthenticated });
      expect(error.message).not.toContain(token);
    }
  });
});

// Whoever asks for a code asks again every five seconds, as RFC 8628 has it: they wait together.
describe.concurrent("by device", () => {
  type Shown = { readonly page: URL; readonly code: string; readonly ended: Promise<Tokens> };
  const shown = async (where = at(), waitMs = 20_000): Promise<Shown> => {
    const provider = await findProvider(where);
    return new Promise((resolve, reject) => {
      const ended = signInByDevice(provider, { waitMs, show: (page, code) => resolve({ page, code, ended }) });
      ended.catch(reject);
    });
  };
  const typed = ({ page, code }: Shown): string => `${page.href}?user_code=${encodeURIComponent(code)}`;

  test("a code that is typed in elsewhere signs in here, and lasts", async () => {
    const one = await shown();
    expect(one.page.href).toBe(`${idp.issuer}/device`);
    const { text } = await walk(typed(one), alice);
    expect(text).toContain("signed in");
    const { idToken, refreshToken } = await one.ended;
    expect(claimsOf(idToken)).toMatchObject({ iss: idp.issuer, aud: CLIENT, sub: "alice" });
    expect(refreshToken).toMatch(/./);
  }, 60_000);

  test("a provider that is away for a moment ends nothing; who refuses does", async () => {
    const one = await shown(at(es));
    let failed = 0;
    es.intercept = ({ url }, response) => {
      if (url !== "/token" || failed > 0) return false;
      failed += 1;
      response.writeHead(502).end("away");
      return true;
    };
    await walk(typed(one), { ...alice, refuses: true });
    expect(await failure(one.ended)).toMatchObject({ code: ErrorCode.PermissionDenied });
    expect(failed).toBe(1);
    es.intercept = undefined;
  }, 60_000);

  test("a code that nobody types in ends in time", async () => {
    const { ended } = await shown(at(), 500);
    expect(await failure(ended)).toMatchObject({ code: ErrorCode.DeadlineExceeded });
  });

  test("a provider that does not offer it is named, with what to do instead", async () => {
    const error = await failure(shown(at(plain)));
    expect(error).toMatchObject({ code: ErrorCode.FailedPrecondition });
    expect(error.next).toContain("--token-file");
  });
});

describe("which provider", () => {
  const unasked = () => {
    throw new Error("the exchange was asked");
  };

  test("the command line beats the environment, and both leave the exchange alone", async () => {
    const env = { COTAL_IDP_ISSUER: "https://env.example", COTAL_IDP_CLIENT_ID: "env" };
    expect(await whichProvider({}, env, unasked)).toEqual({ issuer: "https://env.example", clientId: "env" });
    expect(await whichProvider({ issuer: "https://a.example" }, env, unasked)).toEqual({
      issuer: "https://a.example",
      clientId: "env",
    });
  });

  test("what is missing is asked of the exchange; its client is for its own issuer only", async () => {
    const serve = (answer: object | undefined) => {
      idp.intercept = ({ url, method }, response) => {
        if (url !== "/sign-in" || method !== "GET") return false;
        response.writeHead(answer === undefined ? 404 : 200, { "content-type": "application/json" });
        response.end(JSON.stringify(answer ?? {}));
        return true;
      };
    };
    const asking = (words: object, env = {}) => whichProvider(words, env, () => ({ url: idp.issuer }));
    serve({ issuer: "https://said.example", clientId: "said", scopes: ["openid", "groups"] });
    const said = { issuer: "https://said.example", clientId: "said", scopes: ["openid", "groups"] };
    expect(await asking({})).toEqual(said);
    expect(await asking({}, { COTAL_IDP_ISSUER: "" })).toEqual(said);
    expect(await asking({ clientId: "own" })).toEqual({ ...said, clientId: "own" });
    expect(await failure(asking({ issuer: "https://other.example" }))).toMatchObject({ code: ErrorCode.BadRequest });
    serve({});
    expect(await asking({})).toBeUndefined();
    expect(await failure(asking({ clientId: "own" }))).toMatchObject({ code: ErrorCode.BadRequest });
    serve(undefined);
    expect(await asking({})).toBeUndefined();
    serve({ issuer: 5 });
    expect(await failure(asking({}))).toMatchObject({ code: ErrorCode.Internal });
  });
});

test("a browser is opened only where there is one to see", () => {
  expect(findOpener("linux", { PATH: "/bin:/usr/bin" })).toBeUndefined();
  expect(findOpener("linux", { DISPLAY: ":0", PATH: "/nowhere:relative" })).toBeUndefined();
  expect(findOpener("darwin", {})).toEqual({ file: "/usr/bin/open", args: [] });
  expect(findOpener("win32", {})?.file).toBe("rundll32.exe");
});

/** A request that claims to be for another host, as a page would make it (DNS rebinding). */
function statusUnderName(url: string, host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    request(url, { headers: { host } }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    })
      .once("error", reject)
      .end();
  });
}
