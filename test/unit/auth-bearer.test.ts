/** The bearer: what is signed is read back, and what else is refused and as what. */
import { createHmac, generateKeyPairSync, sign } from "node:crypto";
import { compactVerify, importJWK } from "jose";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { bearerAudience, bearerIssuer } from "../../shared/trust/auth-folder.ts";
import {
  type BearerClaims,
  BearerFault,
  MAX_BEARER_BYTES,
  bearerSigner,
  formerBearer,
  formerBearerKey,
  newBearerJwk,
  signBearer,
  verifyBearer,
} from "../../shared/trust/bearer.ts";
import { nearMissText } from "../support/near-miss.ts";
import { refusal } from "../support/refusal.ts";

const NOW = 1_800_000_000;
const jwkText = newBearerJwk();
const signer = bearerSigner(jwkText);
const other = bearerSigner(newBearerJwk());
const account = `A${"A".repeat(55)}`;
const scope = {
  issuer: bearerIssuer("main", account),
  audience: bearerAudience("main"),
  keys: [signer],
  nowSeconds: NOW,
};
const CLAIMS: BearerClaims = {
  iss: scope.issuer,
  aud: scope.audience,
  iat: NOW,
  exp: NOW + 900,
  jti: "j".repeat(22),
  act: {
    owner: `u_${"a".repeat(26)}`,
    actor: "alice",
    lifecycleUid: "l".repeat(26),
    credentialId: `r_${"c".repeat(26)}`,
    name: "alice",
  },
};
const good = signBearer(CLAIMS, signer);
const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");
const HEADER = { alg: "EdDSA", typ: "cotal-bearer+jwt", kid: signer.kid };

/** Whatever header and claims, under this space's own signature. */
function forged(header: object, claims: object): string {
  const text = `${encode(header)}.${encode(claims)}`;
  return `${text}.${Buffer.from(signer.sign(Buffer.from(text))).toString("base64url")}`;
}

const faultOf = (token: string | undefined, over: Partial<typeof scope> = {}): BearerFault | undefined => {
  const verified = verifyBearer(token, { ...scope, ...over });
  return verified.ok ? undefined : verified.fault;
};

describe("a bearer of the space", () => {
  test("comes back with its claims", () => {
    expect(verifyBearer(good, scope)).toEqual({ ok: true, claims: CLAIMS });
    const withView = { ...CLAIMS, act: { ...CLAIMS.act, view: "admin" } } as const;
    expect(verifyBearer(signBearer(withView, signer), scope)).toEqual({ ok: true, claims: withView });
  });

  test("is an ordinary JWS: another implementation verifies it with the published key", async () => {
    const { payload, protectedHeader } = await compactVerify(good, await importJWK({ ...signer.jwk }));
    expect(JSON.parse(Buffer.from(payload).toString())).toEqual(CLAIMS);
    expect(protectedHeader).toEqual(HEADER);
    expect(signer.jwk).not.toHaveProperty("d");
  });

  test("A.07 of a former key counts until its last one has ended, and nothing of it after that", () => {
    const former = formerBearerKey(formerBearer(jwkText, NOW + 900));
    const keys = [other, former];
    expect(verifyBearer(good, { ...scope, keys })).toEqual({ ok: true, claims: CLAIMS });
    const late = signBearer({ ...CLAIMS, iat: NOW + 890, exp: NOW + 1700 }, signer);
    expect(verifyBearer(late, { ...scope, keys, nowSeconds: NOW + 899 }).ok).toBe(true);
    expect(verifyBearer(late, { ...scope, keys, nowSeconds: NOW + 900 })).toEqual({ ok: false, fault: "unknown-key" });
    const { d } = JSON.parse(jwkText) as { d: string };
    expect(formerBearer(jwkText, NOW)).not.toContain(d);
  });

  test("its key file is read back as the same key", () => {
    const again = bearerSigner(jwkText);
    expect(again.kid).toBe(signer.kid);
    expect(verifyBearer(signBearer(CLAIMS, again), scope).ok).toBe(true);
  });
});

describe("a bearer that was seen before", () => {
  const [head, body, tail] = good.split(".") as [string, string, string];

  test("is judged anew at each time: its claims, its audience, its end", () => {
    expect(verifyBearer(good, scope)).toMatchObject({ ok: true });
    expect(verifyBearer(good, { ...scope, nowSeconds: CLAIMS.exp })).toMatchObject({ ok: false, fault: "expired" });
    expect(verifyBearer(good, { ...scope, audience: "another" })).toMatchObject({ ok: false, fault: "wrong-audience" });
  });

  test("says nothing of another: one changed byte of any part, or another key, is asked again", () => {
    expect(verifyBearer(good, scope)).toMatchObject({ ok: true });
    const forged = Buffer.from(JSON.stringify({ ...CLAIMS, jti: "z".repeat(22) })).toString("base64url");
    expect(verifyBearer(`${head}.${forged}.${tail}`, scope)).toMatchObject({ fault: "bad-signature" });
    const turned = Buffer.from(tail, "base64url");
    turned[0] = (turned[0] ?? 0) ^ 1;
    expect(verifyBearer(`${head}.${body}.${turned.toString("base64url")}`, scope)).toMatchObject({ ok: false });
    const key = { kid: signer.kid, publicKey: other.publicKey };
    expect(verifyBearer(good, { ...scope, keys: [key] })).toMatchObject({ fault: "bad-signature" });
  });
});

describe("what is no bearer of this space, or not now", () => {
  const cases: readonly (readonly [string, BearerFault, string | undefined, Partial<typeof scope>?])[] = [
    ["nothing", BearerFault.Absent, undefined],
    ["an empty text", BearerFault.Absent, ""],
    ["more than 16 KiB", BearerFault.TooLarge, "x".repeat(MAX_BEARER_BYTES + 1)],
    ["a word", BearerFault.Malformed, "bearer"],
    ["four parts", BearerFault.Malformed, `${good}.x`],
    ["a part that is no base64url", BearerFault.Malformed, good.replace(".", "=.")],
    ["another algorithm in the header", BearerFault.WrongAlgorithm, forged({ ...HEADER, alg: "RS256" }, CLAIMS)],
    ["another type of token", BearerFault.WrongType, forged({ ...HEADER, typ: "JWT" }, CLAIMS)],
    ["a header that asks for more", BearerFault.Malformed, forged({ ...HEADER, crit: ["b64"] }, CLAIMS)],
    ["another key's id", BearerFault.UnknownKey, signBearer(CLAIMS, other)],
    ["another key under our id", BearerFault.BadSignature, signBearer(CLAIMS, { ...other, kid: signer.kid })],
    ["another issuer", BearerFault.WrongIssuer, good, { issuer: bearerIssuer("main", "A2") }],
    ["another space's audience", BearerFault.WrongAudience, good, { audience: bearerAudience("lab") }],
    ["no act", BearerFault.Claimless, forged(HEADER, { ...CLAIMS, act: undefined })],
    [
      "no credential id",
      BearerFault.Claimless,
      forged(HEADER, { ...CLAIMS, act: { ...CLAIMS.act, credentialId: undefined } }),
    ],
    [
      "a user key as its credential",
      BearerFault.Claimless,
      forged(HEADER, { ...CLAIMS, act: { ...CLAIMS.act, credentialId: `U${"A".repeat(55)}` } }),
    ],
    ["an actor with a dot", BearerFault.Claimless, forged(HEADER, { ...CLAIMS, act: { ...CLAIMS.act, actor: "a.b" } })],
    [
      "a claim of act that nobody knows",
      BearerFault.Claimless,
      forged(HEADER, { ...CLAIMS, act: { ...CLAIMS.act, scope: ["admin"] } }),
    ],
    ["a claim that nobody knows", BearerFault.Claimless, forged(HEADER, { ...CLAIMS, purpose: "x" })],
    ["one that begins tomorrow", BearerFault.NotYetValid, good, { nowSeconds: NOW - 3600 }],
    ["one that has ended", BearerFault.Expired, good, { nowSeconds: NOW + 900 }],
    ["one for a day", BearerFault.TooLong, forged(HEADER, { ...CLAIMS, exp: NOW + 86_400 })],
  ];

  const named = cases.map(([what, fault, token, over]) => ({ what, fault, token, over }));
  test.each(named)("W10.32 $what is refused as $fault", ({ fault, token, over }) => {
    expect(faultOf(token, over)).toBe(fault);
  });

  test("W10.32 alg none, and the public key as a shared secret", () => {
    const body = good.split(".")[1] ?? "";
    for (const alg of ["none", "None", "HS256"]) {
      const text = `${encode({ ...HEADER, alg })}.${body}`;
      const mac = createHmac("sha256", Buffer.from(signer.jwk.x, "base64url")).update(text).digest("base64url");
      expect(faultOf(`${text}.`)).toBe(BearerFault.WrongAlgorithm);
      expect(faultOf(`${text}.${mac}`)).toBe(BearerFault.WrongAlgorithm);
    }
  });

  test("W10.21 one that was signed and has ended still names its principal; one that was not names nobody", () => {
    expect(verifyBearer(good, { ...scope, nowSeconds: NOW + 901 })).toMatchObject({ ok: false, claims: CLAIMS });
    const unsigned = verifyBearer(signBearer(CLAIMS, { ...other, kid: signer.kid }), scope);
    expect(unsigned).toEqual({ ok: false, fault: BearerFault.BadSignature });
  });

  test("near misses of a bearer are refused, whatever was changed", () => {
    fc.assert(
      fc.property(nearMissText([good]), (near) => {
        const verified = verifyBearer(near, scope);
        expect(verified.ok).toBe(near === good);
      }),
      { numRuns: 2000 },
    );
  });
});

describe("a key file", () => {
  const whole = JSON.parse(jwkText) as Record<string, string>;
  const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" });

  test.each([
    ["", "nothing"],
    ["{", "no JSON"],
    [JSON.stringify({ ...whole, d: undefined }), "the public half"],
    [JSON.stringify({ ...whole, kid: undefined }), "no kid"],
    [JSON.stringify({ ...whole, kid: "a b" }), "a kid that is no id"],
    [JSON.stringify({ ...whole, x: other.jwk.x }), "halves of two keys"],
    [JSON.stringify({ ...rsa, kid: "k" }), "another kind of key"],
  ])("that is broken is refused, and nothing of it is repeated (%#)", (text) => {
    const error = refusal(() => bearerSigner(text));
    expect(error.code).toBe("bad-request");
    expect(error.cause).toBeUndefined();
    expect(`${error.message} ${error.next ?? ""}`).not.toContain(whole["d"]);
  });

  test("signs as node:crypto does with the same key", () => {
    const { privateKey, publicKey } = generateKeyPairSync("ed25519");
    const { x, d } = privateKey.export({ format: "jwk" });
    const made = bearerSigner(JSON.stringify({ kty: "OKP", crv: "Ed25519", x, d, kid: "k1" }));
    const data = Buffer.from("data");
    expect(Buffer.from(made.sign(data))).toEqual(sign(null, data, privateKey));
    expect(made.publicKey.equals(publicKey)).toBe(true);
  });
});
