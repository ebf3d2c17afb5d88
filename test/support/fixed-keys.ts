/** Keys that are the same at every run: from constants, for bytes that a test compares by their hash. */
import { createHash } from "node:crypto";
import { type KeyKind, type SigningKey, keyFromSeed } from "../../shared/trust/keys.ts";

/** Of the byte that a public key of the kind begins with. */
const ROLE: Readonly<Record<KeyKind, number>> = { operator: 112, account: 0, user: 160 };
const SEED = 144;
const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/** The key that this label always gives. */
export function fixedKey(kind: KeyKind, label: string): SigningKey {
  const role = ROLE[kind];
  const lead = Buffer.from([SEED | (role >> 5), (role & 31) << 3]);
  const raw = Buffer.concat([lead, createHash("sha256").update(label).digest()]);
  const check = Buffer.alloc(2);
  check.writeUInt16LE(crc16(raw));
  return keyFromSeed(base32(Buffer.concat([raw, check])));
}

/** CRC-16/XMODEM. */
function crc16(bytes: Uint8Array): number {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return crc;
}

function base32(bytes: Uint8Array): string {
  const bits = [...bytes].map((byte) => byte.toString(2).padStart(8, "0")).join("");
  const groups = bits.match(/.{1,5}/g) ?? [];
  return groups.map((group) => ALPHABET[Number.parseInt(group.padEnd(5, "0"), 2)] ?? "").join("");
}
