/** Curve keys against the nkeys library, both ways. */
import { createCurve, createUser, fromCurveSeed } from "@nats-io/nkeys";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { MAX_SEALED_BYTES, curveKeyFromSeed, newCurveKey } from "../../shared/trust/xkey.ts";
import { refusal } from "../support/refusal.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const text = (data: Uint8Array | null | undefined) => (data ? Buffer.from(data).toString("hex") : data);
const ours = newCurveKey();
const theirs = createCurve();
const stockOurs = fromCurveSeed(bytes(ours.seedText()));

describe("a curve key is an nkey", () => {
  test("its public text begins with X, its seed with SX, and the library reads both", () => {
    expect(ours.publicKey).toMatch(/^X[A-Z2-7]{55}$/);
    expect(ours.seedText()).toMatch(/^SX[A-Z2-7]{56}$/);
    expect(stockOurs.getPublicKey()).toBe(ours.publicKey);
    expect(curveKeyFromSeed(`${ours.seedText()}\n`).publicKey).toBe(ours.publicKey);
  });

  test("two draws differ", () => {
    expect(newCurveKey().publicKey).not.toBe(newCurveKey().publicKey);
  });

  test("what is no curve seed is refused and never repeated", () => {
    const seed = ours.seedText();
    const user = Buffer.from(createUser().getSeed()).toString();
    const last = seed.slice(-1);
    const otherSpelling = `${seed.slice(0, -1)}${String.fromCharCode(last.charCodeAt(0) + 1)}`;
    for (const broken of ["", "x", ours.publicKey, user, seed.slice(1), seed.slice(0, -1), otherSpelling]) {
      const error = refusal(() => curveKeyFromSeed(broken));
      expect(error.code).toBe("bad-request");
      expect(`${error.message}${String(error.cause)}`).not.toContain(broken.length < 10 ? "\u0000" : broken);
    }
  });

  test("what is printed of a key holds no seed", () => {
    expect(JSON.stringify(ours)).not.toContain(ours.seedText());
  });
});

describe("xkv1", () => {
  const message = fc.uint8Array({ maxLength: 3000 });

  test("the library opens what is sealed here", () => {
    fc.assert(
      fc.property(message, (plain) => {
        const sealed = ours.seal(theirs.getPublicKey(), plain);
        expect(Buffer.from(sealed.subarray(0, 4)).toString()).toBe("xkv1");
        expect(text(theirs.open(sealed, ours.publicKey))).toBe(text(plain));
      }),
      { numRuns: 40 },
    );
  });

  test("what the library seals is opened here", () => {
    fc.assert(
      fc.property(message, (plain) => {
        const sealed = theirs.seal(plain, ours.publicKey);
        expect(text(ours.open(theirs.getPublicKey(), sealed))).toBe(text(plain));
      }),
      { numRuns: 40 },
    );
  });

  test("a nonce is never used twice", () => {
    const seen = Array.from({ length: 200 }, () =>
      Buffer.from(ours.seal(theirs.getPublicKey(), bytes("same")).subarray(4, 28)).toString("hex"),
    );
    expect(new Set(seen).size).toBe(200);
  });

  test("more peers than keys are kept: each still reads its own and nobody else's", () => {
    const peers = Array.from({ length: 80 }, newCurveKey);
    const sealed = peers.map((peer, at) => ours.seal(peer.publicKey, bytes(`for ${at}`)));
    const read = peers.map((peer, at) =>
      Buffer.from(peer.open(ours.publicKey, sealed[at] ?? bytes("")) ?? []).toString(),
    );
    expect(read).toEqual(peers.map((_, at) => `for ${at}`));
    const [first, second] = peers;
    expect(first?.open(ours.publicKey, sealed[1] ?? bytes(""))).toBeUndefined();
    expect(second?.open(ours.publicKey, sealed[1] ?? bytes(""))).toBeDefined();
  });

  test("a failed opening leaves nothing behind that makes a later one succeed, or fail", () => {
    const [peer, stranger] = [newCurveKey(), newCurveKey()];
    const sealed = peer.seal(ours.publicKey, bytes("hello"));
    expect(ours.open(stranger.publicKey, sealed)).toBeUndefined();
    expect(ours.open(peer.publicKey, sealed)).toEqual(bytes("hello"));
    expect(ours.open(stranger.publicKey, sealed)).toBeUndefined();
  });
});

describe("opening is total", () => {
  const sender = theirs.getPublicKey();
  const good = theirs.seal(bytes("a message of some length"), ours.publicKey);

  test("any bytes from any sender: nothing, and no error", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.oneof(fc.string(), fc.constant(sender)), (noise, from) => {
        expect(ours.open(from, noise)).toBeUndefined();
        expect(ours.open(from, Buffer.concat([bytes("xkv1"), noise]))).toBeUndefined();
      }),
    );
  });

  test("one byte changed, or the end cut off: nothing", () => {
    fc.assert(
      fc.property(fc.nat(good.length - 1), fc.integer({ min: 1, max: 255 }), (at, flip) => {
        const bad = Uint8Array.from(good);
        bad[at] = (bad[at] ?? 0) ^ flip;
        expect(ours.open(sender, bad)).toBeUndefined();
        expect(ours.open(sender, good.subarray(0, at))).toBeUndefined();
      }),
    );
  });

  test("a sender that is no curve key, or one with a wrong checksum: nothing", () => {
    const last = sender.endsWith("A") ? "B" : "A";
    for (const from of ["", "X", createUser().getPublicKey(), `${sender.slice(0, -1)}${last}`, sender.toLowerCase()]) {
      expect(ours.open(from, good)).toBeUndefined();
      expect(refusal(() => ours.seal(from, bytes("x"))).code).toBe("bad-request");
    }
  });

  test("more than the bound is not looked at, though its seal is good", () => {
    const fits = ours.seal(ours.publicKey, new Uint8Array(MAX_SEALED_BYTES - 44));
    const over = ours.seal(ours.publicKey, new Uint8Array(MAX_SEALED_BYTES - 43));
    expect([fits.length, over.length]).toEqual([MAX_SEALED_BYTES, MAX_SEALED_BYTES + 1]);
    expect(ours.open(ours.publicKey, fits)).toBeDefined();
    expect(ours.open(ours.publicKey, over)).toBeUndefined();
  });
});
