/**
 * A throw-away certificate authority for tests of TLS. X.509 by hand, as little of it as a client checks:
 * Node signs and reads certificates and makes none, and `npm test` needs no other program.
 */
import { type KeyObject, X509Certificate, generateKeyPairSync, randomBytes, sign } from "node:crypto";

export type Certificate = {
  /** PEM, its issuer's behind it. */
  readonly cert: string;
  /** PEM. */
  readonly key: string;
  readonly fingerprint: string;
};

export type Authority = {
  /** PEM, for who is to trust it. */
  readonly ca: string;
  /** A certificate of a server at 127.0.0.1, ::1 and localhost. */
  readonly issue: () => Certificate;
};

export function newAuthority(name = "Throw-away CA"): Authority {
  const issuer = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const ca = certificate({ subject: name, issuer: name, of: issuer.publicKey, by: issuer.privateKey, isCa: true });
  return {
    ca,
    issue: () => {
      const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
      const cert = certificate({
        subject: "localhost",
        issuer: name,
        of: publicKey,
        by: issuer.privateKey,
        isCa: false,
      });
      const key = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
      return { cert: `${cert}${ca}`, key, fingerprint: new X509Certificate(cert).fingerprint256 };
    },
  };
}

type Subject = {
  readonly subject: string;
  readonly issuer: string;
  readonly of: KeyObject;
  readonly by: KeyObject;
  readonly isCa: boolean;
};

const DAY_MS = 86_400_000;

function certificate({ subject, issuer, of, by, isCa }: Subject): string {
  const extensions = isCa
    ? [extension(OID.basicConstraints, seq(TRUE)), extension(OID.keyUsage, bits(Buffer.of(0x06), 1))]
    : [extension(OID.basicConstraints, seq()), extension(OID.subjectAltName, NAMES)];
  const content = seq(
    tlv(0xa0, integer(Buffer.of(2))),
    integer(Buffer.concat([Buffer.of(1), randomBytes(15)])),
    ECDSA_SHA256,
    nameOf(issuer),
    seq(time(Date.now() - DAY_MS), time(Date.now() + DAY_MS)),
    nameOf(subject),
    of.export({ type: "spki", format: "der" }),
    tlv(0xa3, seq(...extensions)),
  );
  const der = seq(content, ECDSA_SHA256, bits(sign("sha256", content, by), 0));
  const lines = der.toString("base64").replace(/.{64}/g, "$&\n").trimEnd();
  return `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`;
}

// DER, X.690: a tag, a length, the content.

function tlv(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(parts);
  const size = content.length;
  const length = size < 0x80 ? [size] : size < 0x100 ? [0x81, size] : [0x82, size >> 8, size & 0xff];
  return Buffer.concat([Buffer.of(tag, ...length), content]);
}

function seq(...parts: readonly Uint8Array[]): Buffer {
  return tlv(0x30, ...parts);
}

function integer(value: Uint8Array): Buffer {
  return tlv(0x02, value);
}

function bits(value: Uint8Array, unused: number): Buffer {
  return tlv(0x03, Buffer.of(unused), value);
}

function time(at: number): Buffer {
  const text = new Date(at).toISOString().replace(/^\d\d|[-:T]|\.\d+/g, "");
  return tlv(0x17, Buffer.from(text, "latin1"));
}

function nameOf(common: string): Buffer {
  return seq(tlv(0x31, seq(OID.commonName, tlv(0x0c, Buffer.from(common)))));
}

function extension(oid: Uint8Array, value: Uint8Array): Buffer {
  return seq(oid, TRUE, tlv(0x04, value));
}

const oid = (...bytes: readonly number[]): Buffer => tlv(0x06, Buffer.of(...bytes));

const OID = {
  commonName: oid(0x55, 0x04, 0x03),
  keyUsage: oid(0x55, 0x1d, 0x0f),
  subjectAltName: oid(0x55, 0x1d, 0x11),
  basicConstraints: oid(0x55, 0x1d, 0x13),
};
const ECDSA_SHA256 = seq(oid(0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02));
const TRUE = Buffer.of(0x01, 0x01, 0xff);
const NAMES = seq(
  tlv(0x82, Buffer.from("localhost")),
  tlv(0x87, Buffer.of(127, 0, 0, 1)),
  tlv(0x87, Buffer.concat([Buffer.alloc(15), Buffer.of(1)])),
);
