/** Native signatures against the stock library, both ways, and owner tokens. */
import { createHmac } from "node:crypto";
import { createAccount, createOperator, createUser, fromPublic, fromSeed } from "@nats-io/nkeys";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { keyFromSeed, newKey, verifyNative } from "../../shared/trust/keys.ts";
import { ownerToken, staticOwner, systemOwner } from "../../shared/trust/owner.ts";
import { refusal } from "../support/refusal.ts";

/** Made by another implementation of HMAC and base32, over 32 zero bytes. */
const OWNER_VECTORS = { alice: "u_o2mdd3mvwra5c2ynce3v62ci7b", acme: "u_obm2hj262pyz53wkzw2nk3vlzi" };

const bytes = (text: string) => new TextEncoder().encode(text);
const stock = (seed: string) => fromSeed(bytes(seed));

describe("native Ed25519 against the nkeys library", () => {
  const kinds = { operator: "O", account: "A", user: "U" } as const;

  test.each(Object.entries(kinds))("a new %s key is an nkey that begins with %s", (kind, letter) => {
    const key = newKey(kind as keyof typeof kinds);
    expect(key.publicKey).toMatch(new RegExp(`^${letter}[A-Z2-7]{55}$`));
    expect(stock(key.seedText()).getPublicKey()).toBe(key.publicKey);
    expect(key.pair.getPublicKey()).toBe(key.publicKey);
  });

  test("both make the same signature, and each verifies the other's", () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 300 }),
        fc.constantFrom(createUser, createAccount, createOperator),
        (data, create) => {
          const theirs = create();
          const ours = keyFromSeed(new TextDecoder().decode(theirs.getSeed()));
          const signature = ours.sign(data);
          expect(Buffer.from(signature).equals(Buffer.from(theirs.sign(data)))).toBe(true);
          expect(fromPublic(ours.publicKey).verify(data, signature)).toBe(true);
          expect(verifyNative(theirs.getPublicKey(), data, theirs.sign(data))).toBe(true);
          expect(ours.pair.verify(data, signature)).toBe(true);
        },
      ),
      { numRuns: 30 },
    );
  });

  test("a signature over other bytes, by another key, or no signature at all is false", () => {
    const [one, two] = [newKey("user"), newKey("user")];
    const data = bytes("nonce");
    expect(verifyNative(one.publicKey, data, two.sign(data))).toBe(false);
    expect(verifyNative(one.publicKey, bytes("other"), one.sign(data))).toBe(false);
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 80 }), fc.string(), (signature, publicKey) => {
        expect(verifyNative(one.publicKey, data, signature)).toBe(false);
        expect(verifyNative(publicKey, data, one.sign(data))).toBe(false);
      }),
    );
  });

  test("a seed with a line end is a seed; anything else is refused and never repeated", () => {
    const key = newKey("account");
    expect(keyFromSeed(`${key.seedText()}\n`).publicKey).toBe(key.publicKey);
    const seed = key.seedText();
    const broken = [
      "",
      "x",
      key.publicKey,
      seed.slice(1),
      seed.slice(0, -1),
      `${seed.slice(0, -1)}${seed.endsWith("A") ? "B" : "A"}`,
    ];
    for (const text of broken) {
      const error = refusal(() => keyFromSeed(text));
      expect(error.code).toBe("bad-request");
      expect(`${error.message}${String(error.cause)}`).not.toContain(text === "" || text === "x" ? "\u0000" : text);
    }
  });

  test("what is printed of a key holds no seed", () => {
    const key = newKey("user");
    expect(JSON.stringify(key)).not.toContain(key.seedText());
  });
});

describe("W2.02 owner tokens", () => {
  const secret = Buffer.alloc(32, 7);

  test("the same subject of the same issuer always gets the same token: u_ and 26 of base32-lower", () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), fc.uint8Array({ minLength: 32, maxLength: 32 }), (issuer, subject, key) => {
        const token = ownerToken(key, issuer, subject);
        expect(token).toMatch(/^u_[a-z2-7]{26}$/);
        expect(ownerToken(key, issuer, subject)).toBe(token);
      }),
    );
  });

  test("by hand: HMAC-SHA-256 over issuer, NUL, subject, the first 130 bits in base32", () => {
    const digest = createHmac("sha256", secret).update("https://idp\u0000alice").digest();
    const bits = Array.from(digest, (byte) => byte.toString(2).padStart(8, "0")).join("");
    const expected = Array.from({ length: 26 }, (_, at) =>
      "abcdefghijklmnopqrstuvwxyz234567".charAt(Number.parseInt(bits.slice(at * 5, at * 5 + 5), 2)),
    ).join("");
    expect(ownerToken(secret, "https://idp", "alice")).toBe(`u_${expected}`);
  });

  test("vectors: a change of the derivation would rename everybody", () => {
    expect(ownerToken(Buffer.alloc(32), "https://idp.example", "alice")).toBe(OWNER_VECTORS.alice);
    expect(ownerToken(Buffer.alloc(32), "static", "acme")).toBe(OWNER_VECTORS.acme);
    expect(staticOwner(Buffer.alloc(32), "acme")).toBe(OWNER_VECTORS.acme);
  });

  test("issuer, subject, secret and space each count, and none runs into the next", () => {
    const tokens = [
      ownerToken(secret, "a", "b"),
      ownerToken(secret, "ab", ""),
      ownerToken(secret, "", "ab"),
      ownerToken(Buffer.alloc(32, 8), "a", "b"),
      staticOwner(secret, "main"),
      systemOwner(secret, "main"),
      systemOwner(secret, "lab"),
    ];
    expect(new Set(tokens).size).toBe(tokens.length);
  });

  test("a token passes as it stands, a label is hashed (H48)", () => {
    const token = ownerToken(secret, "x", "y");
    expect(staticOwner(secret, token)).toBe(token);
    expect(staticOwner(secret, "acme")).toBe(ownerToken(secret, "static", "acme"));
    expect(staticOwner(secret, "a.b@c")).not.toBe(staticOwner(secret, "a.b@d"));
  });

  test.each(["", "local", "u_", "u_short", `u_${"A".repeat(26)}`, "a b", "-a", "é", "a\u0000b", "a".repeat(65)])(
    "%j is neither",
    (text) => {
      const { code, next } = refusal(() => staticOwner(secret, text));
      expect(code).toBe("bad-request");
      expect(next).toContain("label");
    },
  );
});
