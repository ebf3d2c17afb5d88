/** Authorization requests and answers: what is read, what is refused and as what, and what is written. */
import { type AuthorizationResponse, Types, decode } from "@nats-io/jwt";
import { createServer, fromPublic } from "@nats-io/nkeys";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  MAX_REASON_LENGTH,
  MAX_REQUEST_BYTES,
  type ReadRequest,
  RequestFault,
  type Responder,
  allowResponse,
  denyResponse,
  readCalloutRequest,
} from "../../shared/trust/callout.ts";
import { keyFromSeed, newKey } from "../../shared/trust/keys.ts";
import { type Claims, signedJwt } from "../../shared/trust/nats-jwt.ts";
import { SENTINEL_LIFE_SECONDS, sentinelUser } from "../../shared/trust/sentinel.ts";
import { newCurveKey } from "../../shared/trust/xkey.ts";
import { nearMiss, nearMissText } from "../support/near-miss.ts";
import { refusal } from "../support/refusal.ts";

const NOW = 1_800_000_000;
const server = keyFromSeed(Buffer.from(createServer().getSeed()).toString());
const serverCurve = newCurveKey();
const curve = newCurveKey();
const account = newKey("account");
const signer = newKey("account");
const user = newKey("user").publicKey;
const scope = { account: account.publicKey, curves: [curve], nowSeconds: NOW };
const plainScope = { account: account.publicKey, curves: [], nowSeconds: NOW };

const CLAIMS = {
  sub: account.publicKey,
  aud: "nats-authorization-request",
  iat: NOW,
  exp: NOW + 2,
  nats: {
    server_id: { name: "n1", host: "10.0.0.9", id: server.publicKey, version: "2.14.0", xkey: serverCurve.publicKey },
    user_nkey: user,
    client_info: { host: "10.0.0.7", id: 5, user: "U", kind: "Client", type: "nats", later: 1 },
    connect_opts: { jwt: "eyJ.s.t", auth_token: "bearer", name: "me", lang: "nats.js", version: "3", protocol: 1 },
    type: "authorization_request",
    later: true,
  },
} satisfies Claims;

type Part = Partial<typeof CLAIMS.nats>;
const claims = (over: Partial<Claims> = {}, nats: Part & Record<string, unknown> = {}): Claims => ({
  ...CLAIMS,
  ...over,
  nats: { ...CLAIMS.nats, ...nats },
});
const seal = (jwt: string, by = serverCurve, to = curve.publicKey) => by.seal(to, Buffer.from(jwt));
const readSealed = (jwt: string): ReadRequest => readCalloutRequest(seal(jwt), serverCurve.publicKey, scope);
const good = signedJwt(claims(), server);
const readGood = (): Extract<ReadRequest, { ok: true }>["request"] => {
  const read = readSealed(good);
  if (!read.ok) throw new Error(`it was refused: ${read.fault}`);
  return read.request;
};
const faultOf = (read: ReadRequest): RequestFault | undefined => (read.ok ? undefined : read.fault);

describe("a request is read", () => {
  test("sealed: who asks, for which connection, and what the client presented", () => {
    expect(readGood()).toEqual({
      userKey: user,
      server: CLAIMS.nats.server_id,
      client: { host: "10.0.0.7", id: 5, user: "U", kind: "Client", type: "nats" },
      options: { jwt: "eyJ.s.t", auth_token: "bearer", name: "me", lang: "nats.js", version: "3" },
      expires: NOW + 2,
      sealedFor: curve,
    });
  });

  test("A.07 sealed for either of two curve keys, and answered with that one", () => {
    const second = newCurveKey();
    for (const to of [curve, second]) {
      const sealed = seal(good, serverCurve, to.publicKey);
      const read = readCalloutRequest(sealed, serverCurve.publicKey, { ...scope, curves: [curve, second] });
      if (!read.ok) throw new Error(`it was refused: ${read.fault}`);
      const by: Responder = { account: account.publicKey, signer, curves: [curve, second] };
      expect(serverCurve.open(to.publicKey, denyResponse(read.request, by, "no", NOW))).toBeDefined();
    }
  });

  test("in the clear where the account has no curve key", () => {
    const { xkey: _, ...server_id } = CLAIMS.nats.server_id;
    const jwt = signedJwt(claims({}, { server_id: server_id as typeof CLAIMS.nats.server_id }), server);
    expect(readCalloutRequest(Buffer.from(jwt), undefined, plainScope).ok).toBe(true);
  });

  test("without a token, a name and an address: what is absent is absent", () => {
    const jwt = signedJwt(claims({}, { connect_opts: { protocol: 1 } as never, client_info: {} as never }), server);
    expect(readSealed(jwt)).toMatchObject({ ok: true, request: { client: {}, options: {} } });
  });

  test("a server's clock may be a few seconds behind ours", () => {
    expect(readSealed(signedJwt(claims({ exp: NOW - 9 }), server)).ok).toBe(true);
    expect(faultOf(readSealed(signedJwt(claims({ exp: NOW - 10 }), server)))).toBe(RequestFault.Expired);
  });
});

describe("a request is refused, each with its reason", () => {
  const otherServer = keyFromSeed(Buffer.from(createServer().getSeed()).toString());
  const [head = "", body = "", tail = ""] = good.split(".");
  const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const withHeader = (header: unknown): string => {
    const signed = `${part(header)}.${body}`;
    return `${signed}.${Buffer.from(server.sign(Buffer.from(signed))).toString("base64url")}`;
  };

  test.each<[string, string, RequestFault]>([
    ["another audience", signedJwt(claims({ aud: "NATS" }), server), "wrong-audience"],
    ["asked of another account", signedJwt(claims({ sub: newKey("account").publicKey }), server), "wrong-account"],
    ["signed by another server", signedJwt(claims(), otherServer), "wrong-server"],
    ["signed by an account", signedJwt(claims(), account), "wrong-issuer"],
    ["signed by a user", signedJwt(claims(), newKey("user")), "wrong-issuer"],
    ["somebody else's signature", `${head}.${body}.${signedJwt(claims(), otherServer).split(".")[2]}`, "bad-signature"],
    ["no signature", `${head}.${body}.`, "bad-signature"],
    [
      "another body under the signature",
      `${head}.${part({ ...CLAIMS, iss: server.publicKey })}.${tail}`,
      "bad-signature",
    ],
    ["alg none", withHeader({ typ: "JWT", alg: "none" }), "wrong-algorithm"],
    ["the old algorithm", withHeader({ typ: "JWT", alg: "ed25519" }), "wrong-algorithm"],
    ["another spelling of the signature", `${good}=`, "malformed"],
    ["a fourth part", `${good}.x`, "malformed"],
    ["nothing", "", "malformed"],
    ["a user JWT of the server", signedJwt(claims({}, { type: "user" }), server), "malformed"],
    ["no user key", signedJwt(claims({}, { user_nkey: "U" }), server), "malformed"],
    ["an account as the user key", signedJwt(claims({}, { user_nkey: account.publicKey }), server), "malformed"],
    ["a checksum that is wrong", signedJwt(claims({}, { user_nkey: `U${"A".repeat(55)}` }), server), "malformed"],
    ["no server", signedJwt(claims({}, { server_id: undefined as never }), server), "malformed"],
    [
      "a client number of 0",
      signedJwt(claims({}, { client_info: { ...CLAIMS.nats.client_info, id: 0 } }), server),
      "malformed",
    ],
    [
      "a token that is no text",
      signedJwt(claims({}, { connect_opts: { auth_token: 7 } as never }), server),
      "malformed",
    ],
    ["no end", signedJwt(claims({ exp: undefined as never }), server), "malformed"],
    ["long over", signedJwt(claims({ exp: NOW - 60 }), server), "expired"],
  ])("%s", (_, jwt, fault) => {
    expect(faultOf(readSealed(jwt))).toBe(fault);
  });

  test("in the clear, with or without the header, where the account has a curve key", () => {
    for (const sender of [undefined, serverCurve.publicKey]) {
      expect(faultOf(readCalloutRequest(Buffer.from(good), sender, scope))).toBe(RequestFault.NotSealed);
    }
  });

  test("sealed, but the header is missing, names another key or none", () => {
    const sealed = seal(good);
    expect(faultOf(readCalloutRequest(sealed, undefined, scope))).toBe(RequestFault.NotSealed);
    expect(faultOf(readCalloutRequest(sealed, newCurveKey().publicKey, scope))).toBe(RequestFault.BadSeal);
    expect(faultOf(readCalloutRequest(sealed, "X", scope))).toBe(RequestFault.BadSeal);
  });

  test("sealed for another account's curve key", () => {
    const sealed = seal(good, serverCurve, newCurveKey().publicKey);
    expect(faultOf(readCalloutRequest(sealed, serverCurve.publicKey, scope))).toBe(RequestFault.BadSeal);
  });

  test("a real request sealed anew by somebody in between", () => {
    const between = newCurveKey();
    const read = readCalloutRequest(seal(good, between), between.publicKey, scope);
    expect(faultOf(read)).toBe(RequestFault.WrongServer);
  });

  test("one byte over the bound, before anything is opened", () => {
    expect(faultOf(readCalloutRequest(new Uint8Array(MAX_REQUEST_BYTES + 1), "X", scope))).toBe(RequestFault.TooLarge);
    expect(faultOf(readCalloutRequest(new Uint8Array(MAX_REQUEST_BYTES), "X", scope))).toBe(RequestFault.BadSeal);
  });
});

describe("reading is total", () => {
  const FAULTS: readonly string[] = Object.values(RequestFault);

  test("any bytes under any header end in a reason", () => {
    const header = fc.oneof(fc.constant(undefined), fc.string(), fc.constant(serverCurve.publicKey));
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 400 }), header, fc.constantFrom(scope, plainScope), (bytes, from, at) => {
        expect(FAULTS).toContain(faultOf(readCalloutRequest(bytes, from, at)));
      }),
    );
  });

  test("a good request with its text edited ends in a reason", () => {
    fc.assert(
      fc.property(
        nearMissText([good]).filter((text) => text !== good),
        (text) => {
          expect(FAULTS).toContain(faultOf(readSealed(text)));
        },
      ),
    );
  });

  test("claims that a real server key signed, with anything wrong in them: a reason, or the same connection", () => {
    const parts = fc.oneof(nearMiss([CLAIMS]), fc.jsonValue());
    fc.assert(
      fc.property(parts, (value) => {
        const body = JSON.stringify({ ...(value as object), iss: server.publicKey });
        const signed = `${good.split(".")[0]}.${Buffer.from(body).toString("base64url")}`;
        const jwt = `${signed}.${Buffer.from(server.sign(Buffer.from(signed))).toString("base64url")}`;
        const read = readSealed(jwt);
        const told = read.ok ? [read.request.userKey, read.request.server.id] : read.fault;
        expect(read.ok ? [[user, server.publicKey]] : FAULTS).toContainEqual(told);
      }),
      { numRuns: 300 },
    );
  });
});

describe("an answer", () => {
  const by: Responder = { account: account.publicKey, signer, curves: [curve] };
  const opened = (bytes: Uint8Array): string => Buffer.from(serverCurve.open(curve.publicKey, bytes) ?? []).toString();
  const responseOf = (jwt: string) => decode<AuthorizationResponse>(jwt);

  test("lets in: sealed for the server that asked, made out to its id and the user key", () => {
    const jwt = opened(allowResponse(readGood(), by, "user.jwt.text", NOW));
    expect(responseOf(jwt)).toEqual({
      aud: server.publicKey,
      sub: user,
      iss: signer.publicKey,
      iat: NOW,
      jti: expect.stringMatching(/^[\w-]{43}$/) as string,
      nats: {
        jwt: "user.jwt.text",
        issuer_account: account.publicKey,
        type: Types.AuthorizationResponse,
        version: 2,
      },
    });
    const [head, body, signature] = jwt.split(".");
    const verified = fromPublic(signer.publicKey).verify(
      Buffer.from(`${head}.${body}`),
      Buffer.from(signature ?? "", "base64url"),
    );
    expect(verified).toBe(true);
  });

  test("denies: a reason and no JWT", () => {
    const { nats } = responseOf(opened(denyResponse(readGood(), by, "RATE_LIMITED retry-after 3s", NOW)));
    expect(nats).toMatchObject({ error: "RATE_LIMITED retry-after 3s" });
    expect(nats).not.toHaveProperty("jwt");
  });

  test("signed by the account's own key it names no other account", () => {
    const { nats } = responseOf(opened(allowResponse(readGood(), { ...by, signer: account }, "j", NOW)));
    expect(nats).not.toHaveProperty("issuer_account");
  });

  test("an account without a curve key answers in the clear", () => {
    const bytes = denyResponse({ ...readGood(), sealedFor: undefined }, by, "no", NOW);
    expect(responseOf(Buffer.from(bytes).toString()).nats.error).toBe("no");
  });

  test("with a curve key and a server that has none, nothing is sent in the clear instead", () => {
    const request = readGood();
    const { xkey: _, ...withoutKey } = request.server;
    const error = refusal(() => allowResponse({ ...request, server: withoutKey }, by, "user.jwt", NOW));
    expect(error.code).toBe("failed-precondition");
  });

  test("any reason becomes one short line that says something", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 700 }), (reason) => {
        // By hand: the library's own decoding takes each byte for a character.
        const [, body = ""] = opened(denyResponse(readGood(), by, reason, NOW)).split(".");
        const claims = JSON.parse(Buffer.from(body, "base64url").toString()) as { nats: { error: string } };
        const { error } = claims.nats;
        expect(error).toMatch(/^[^\p{Cc}\u2028\u2029]+$/u);
        expect(error.length).toBeLessThanOrEqual(MAX_REASON_LENGTH);
      }),
      { numRuns: 60 },
    );
  });
});

test("the sentinel denies everything, needs no seed, and lives for ten years", () => {
  const userKey = newKey("user").publicKey;
  const sentinel = decode(sentinelUser({ account: account.publicKey, signer, userKey, nowSeconds: NOW }));
  expect([sentinel.sub, sentinel.iss, sentinel.exp]).toEqual([userKey, signer.publicKey, NOW + SENTINEL_LIFE_SECONDS]);
  expect(sentinel.nats).toMatchObject({
    pub: { deny: [">"] },
    sub: { deny: [">"] },
    bearer_token: true,
    issuer_account: account.publicKey,
    type: "user",
  });
  expect(SENTINEL_LIFE_SECONDS).toBeGreaterThanOrEqual(10 * 365 * 86_400);
});
