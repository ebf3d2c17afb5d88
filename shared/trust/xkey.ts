/**
 * Curve keys (`xkey`): what the broker and the callout seal their messages with, in the `xkv1` form of
 * nkeys: four letters, a nonce of 24 bytes, then the box.
 *
 * The stock library works the shared key out anew for each message, which costs more than the rest of
 * a callout together. A server keeps its curve key for its whole run, so the shared key is kept.
 *
 * Invariants
 * 1. `open` is total: whatever was not sealed for this key by that sender is `undefined`.
 * 2. At most `MAX_PEERS` shared keys are kept, and a sender's only once it has proved to hold its key.
 * 3. A seed leaves this file only through `seedText`, for a 0600 file.
 */
import { randomBytes } from "node:crypto";
import { createCurve, fromCurveSeed } from "@nats-io/nkeys";
import { LRUCache } from "lru-cache";
import nacl from "tweetnacl";
import { badRequest } from "../protocol/base/errors.ts";
import { CURVE_NKEY } from "../protocol/base/grammar.ts";
import { isOneSpelling, isPublicKey, noSeed, rawPublicKey, rawSeed } from "./keys.ts";

const MAX_PEERS = 64;
const VERSION = Buffer.from("xkv1");
const NONCE_BYTES = 24;
const HEAD_BYTES = VERSION.length + NONCE_BYTES;

/** The largest message that is opened; the broker's own limit is the same. */
export const MAX_SEALED_BYTES = 1_048_576;

export type CurveKey = {
  /** The public key, `X…`. */
  readonly publicKey: string;
  /** The seed, for a 0600 file and nothing else. */
  readonly seedText: () => string;
  /** What the sender sealed for this key; `undefined` for anything else. */
  readonly open: (sender: string, sealed: Uint8Array) => Uint8Array | undefined;
  /** Seals for a public curve key; throws `bad-request` if it is none. */
  readonly seal: (recipient: string, plain: Uint8Array) => Uint8Array;
};

/** Draws a fresh key. */
export function newCurveKey(): CurveKey {
  return wrap(Buffer.from(createCurve().getSeed()).toString("ascii"));
}

/** A key from its seed (`SX…`); throws `bad-request` without repeating it. */
export function curveKeyFromSeed(text: string): CurveKey {
  const seed = text.trim();
  try {
    fromCurveSeed(Buffer.from(seed));
  } catch {
    throw noSeed();
  }
  if (!isOneSpelling(seed)) throw noSeed();
  return wrap(seed);
}

function wrap(seed: string): CurveKey {
  const publicKey = fromCurveSeed(Buffer.from(seed)).getPublicKey();
  const secret = rawSeed(seed);
  const shared = new LRUCache<string, Uint8Array>({ max: MAX_PEERS });
  const sharedWith = (peer: string): Uint8Array => shared.get(peer) ?? nacl.box.before(rawPublicKey(peer), secret);
  return {
    publicKey,
    seedText: () => seed,
    open: (sender, sealed) => {
      if (sealed.length <= HEAD_BYTES || sealed.length > MAX_SEALED_BYTES) return undefined;
      if (!VERSION.equals(sealed.subarray(0, VERSION.length)) || !isPublicKey(CURVE_NKEY, sender)) return undefined;
      const key = sharedWith(sender);
      const plain = nacl.box.open.after(sealed.subarray(HEAD_BYTES), sealed.subarray(VERSION.length, HEAD_BYTES), key);
      if (plain === null) return undefined;
      shared.set(sender, key);
      return plain;
    },
    seal: (recipient, plain) => {
      if (!isPublicKey(CURVE_NKEY, recipient)) throw badRequest("the recipient is no public curve key");
      const key = sharedWith(recipient);
      shared.set(recipient, key);
      const nonce = randomBytes(NONCE_BYTES);
      return Buffer.concat([VERSION, nonce, nacl.box.after(plain, nonce, key)]);
    },
  };
}
