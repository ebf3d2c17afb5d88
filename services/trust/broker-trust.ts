/**
 * Trust of one broker: its operator and its system account. Created once, kept for ever; replacing
 * it is broker-wide and touches every space (§9).
 */
import { encodeToken } from "../../shared/protocol/base/principals.ts";
import { kept, keptKey, trustPaths, writePrivate } from "../../shared/trust/folder.ts";
import { OPERATOR_NKEY } from "../../shared/protocol/base/grammar.ts";
import { jsonObject, verifiedClaims } from "../../shared/trust/nats-jwt.ts";
import { operatorJwt, systemJwt } from "../../shared/trust/accounts.ts";
import { type SigningKey, newKey } from "../../shared/trust/keys.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { drawLifecycleUid, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import { Account } from "../../shared/grants/row.ts";
import { Life } from "../../shared/grants/matrix.ts";
import type { Credential } from "../../shared/trust/creds.ts";
import { readUserJwt } from "../../shared/trust/jwt.ts";
import { randomBytes } from "node:crypto";
import { isDeepStrictEqual } from "node:util";

export type BrokerTrust = {
  readonly operator: SigningKey;
  readonly system: SigningKey;
  readonly systemSigner: SigningKey;
  readonly operatorJwt: string;
  readonly systemJwt: string;
};

/** Reads the broker's trust from the state folder, creating it at first use. */
export async function ensureBrokerTrust(state: string): Promise<BrokerTrust> {
  const paths = trustPaths(state);
  const operator = keptKey(paths.operatorKey, "operator");
  const system = keptKey(paths.systemKey, "account");
  const systemSigner = keptKey(paths.systemSigner, "account");
  const signed = await Promise.all([
    operatorJwt(operator, system.publicKey),
    systemJwt(operator, system, systemSigner),
  ]);
  return {
    operator,
    system,
    systemSigner,
    operatorJwt: kept(paths.operatorJwt, () => signed[0], signedBy(operator, operator)),
    systemJwt: current(paths.systemJwt, signed[1], signedBy(operator, system)),
  };
}

/**
 * The claims in that file while they say what they would say now. Those of an earlier version are signed anew, and the
 * broker takes them up at its next start.
 */
function current(path: string, now: string, check: (jwt: string) => string): string {
  const held = kept(path, () => now, check);
  if (isDeepStrictEqual(saidIn(held), saidIn(now))) return held;
  writePrivate(path, now);
  return now;
}

const saidIn = (jwt: string): unknown => jsonObject(jwt.split(".")[1] ?? "")?.["nats"];

const MAX_CLAIMS = 64 * 1024;

/** Claims of that key, which this operator has signed: others would be a broker that knows none of our accounts. */
function signedBy(operator: SigningKey, subject: SigningKey): (jwt: string) => string {
  return (jwt) => {
    const read = verifiedClaims(Buffer.from(jwt), MAX_CLAIMS, OPERATOR_NKEY);
    if (!read.ok || read.issuer !== operator.publicKey || read.claims["sub"] !== subject.publicKey) {
      throw new TypeError("of another trust");
    }
    return jwt;
  };
}

/** A credential of the system account that lives for minutes and exists in memory only. */
export async function systemCredential(trust: BrokerTrust, nowSeconds: number): Promise<Credential> {
  const user = newKey("user");
  const owner = `u_${encodeToken(Buffer.from(trust.operator.publicKey.slice(1)), 26)}`;
  const { jwt } = await mintUser({
    profile: "system-administrator",
    scope: {
      space: "broker",
      holder: { principal: principal(owner, "trust"), uid: drawLifecycleUid(randomBytes) },
      inboxNonce: drawNonce(randomBytes),
    },
    account: Account.System,
    accountKey: trust.system.publicKey,
    signer: trust.systemSigner,
    userKey: user.publicKey,
    expires: nowSeconds + Life.OneShot,
    limits: { subs: 100, payload: -1 },
  });
  return { view: readUserJwt(jwt), jwt, sign: user.sign };
}
