/**
 * Keys of the broker's trust: nkeys, signed and verified natively.
 *
 * The stock library signs about 70 times slower than `node:crypto` (measured), so it is used for
 * the encoding of keys only. Invariant: a seed leaves this file only through `seedText`, which is
 * for writing a 0600 file; it is never logged and never part of an error.
 */
import { type KeyObject, createPrivateKey, createPublicKey, sign, verify } from "node:crypto";
import { type KeyPair, createAccount, createOperator, createUser, fromPublic, fromSeed } from "@nats-io/nkeys";
import { LRUCache } from "lru-cache";
import { badRequest } from "../protocol/base/errors.ts";

export type KeyKind = "operator" | "account" | "user";

const CREATE = { operator: createOperator, account: createAccount, user: createUser } as const;

/** DER lead of a PKCS#8 Ed25519 private key; the 32 raw bytes follow. */
const PKCS8_LEAD = Buffer.from("302e020100300506032b657004220420", "hex");
const SPKI_LEAD = Buffer.from("302a300506032b6570032100", "hex");

export type SigningKey = {
  /** The public nkey. */
  readonly publicKey: string;
  /** Signs natively. */
  readonly sign: (data: Uint8Array) => Uint8Array;
  /** The seed, for a 0600 file and nothing else. */
  readonly seedText: () => string;
  /** The shape that the JWT library asks for; signs natively too. */
  readonly pair: KeyPair;
};

/** Draws a fresh key. */
export function newKey(kind: KeyKind): SigningKey {
  return wrap(CREATE[kind]());
}

/** A key from its seed; throws `bad-request` without repeating it. */
export function keyFromSeed(seed: string): SigningKey {
  let pair: KeyPair;
  try {
    pair = fromSeed(new TextEncoder().encode(seed.trim()));
  } catch {
    throw noSeed();
  }
  if (!isOneSpelling(seed.trim())) throw noSeed();
  return wrap(pair);
}

/** Two bits of a seed's last character mean nothing, and are zero in the one spelling that counts. */
export const isOneSpelling = (seed: string): boolean => /[AEIMQUY4]$/.test(seed);

export const noSeed = () => badRequest("the key file does not hold an nkey seed");

function wrap(stock: KeyPair): SigningKey {
  const seed = Buffer.from(stock.getSeed()).toString("ascii");
  const native = createPrivateKey({
    key: Buffer.concat([PKCS8_LEAD, rawSeed(seed)]),
    format: "der",
    type: "pkcs8",
  });
  const publicKey = stock.getPublicKey();
  const signNative = (data: Uint8Array): Uint8Array => new Uint8Array(sign(null, data, native));
  // The JWT library asks for it at each signature and uses it for nothing; the stock one derives it anew.
  let privateKey: Uint8Array | undefined;
  const pair: KeyPair = {
    getPublicKey: () => publicKey,
    getPrivateKey: () => (privateKey ??= stock.getPrivateKey()),
    getSeed: () => stock.getSeed(),
    sign: signNative,
    verify: (data, signature) => verifyNative(publicKey, data, signature),
    clear: () => {
      privateKey = undefined;
      stock.clear();
    },
    seal: (data, recipient, nonce) => stock.seal(data, recipient, nonce),
    open: (data, sender) => stock.open(data, sender),
  };
  return { publicKey, sign: signNative, seedText: () => seed, pair };
}

/** A seed is base32 of two prefix bytes, 32 key bytes and a checksum; the library checked it. */
export function rawSeed(seed: string): Buffer {
  return base32(seed).subarray(2, 34);
}

/**
 * The 32 bytes of a public nkey: base32 of one prefix byte, 32 key bytes and a checksum. Throws for
 * anything else.
 */
export function rawPublicKey(publicKey: string): Buffer {
  fromPublic(publicKey);
  return base32(publicKey).subarray(1, 33);
}

/** True for a public nkey of that kind (`grammar.ts`) whose checksum holds. */
export function isPublicKey(kind: RegExp, text: string): boolean {
  if (!kind.test(text)) return false;
  try {
    fromPublic(text);
    return true;
  } catch {
    return false;
  }
}

/** Few keys sign most of what is verified: the servers of a cluster, the accounts of a space. */
const publicObjects = new LRUCache<string, KeyObject>({ max: 256 });

function publicObject(publicKey: string): KeyObject {
  const known = publicObjects.get(publicKey);
  if (known !== undefined) return known;
  const key = Buffer.concat([SPKI_LEAD, rawPublicKey(publicKey)]);
  const made = createPublicKey({ key, format: "der", type: "spki" });
  publicObjects.set(publicKey, made);
  return made;
}

/** Verifies a signature natively; false for anything malformed. */
export function verifyNative(publicKey: string, data: Uint8Array, signature: Uint8Array): boolean {
  try {
    return verify(null, data, publicObject(publicKey), signature);
  } catch {
    return false;
  }
}

function base32(text: string): Buffer {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  const out: number[] = [];
  let bits = 0;
  let held = 0;
  for (const character of text) {
    held = ((held << 5) | alphabet.indexOf(character)) & 0xfff;
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      out.push((held >> bits) & 0xff);
    }
  }
  return Buffer.from(out);
}
