/**
 * The sentinel (§9): the credential that everybody who signs in presents beside their bearer.
 *
 * It names the auth account, so that the broker asks that account's callout, and it allows nothing: if
 * the callout were ever gone, its holder could connect and do nothing at all. It is a bearer JWT
 * without a seed and is no secret, so it may be handed to anyone, and one serves a whole space.
 *
 * It carries no limits: the broker applies them to the connection while it waits for the callout, and
 * would end it with a word about subscriptions (measured).
 */
import { ACCOUNT_NKEY } from "../protocol/base/grammar.ts";
import { badRequest } from "../protocol/base/errors.ts";
import type { SigningKey } from "./keys.ts";
import { signedJwt, verifiedClaims } from "./nats-jwt.ts";

/**
 * Ten years. Its end would lock out everybody at once and protect nobody: what ends is the bearer. It is
 * replaced by handing out another one.
 */
export const SENTINEL_LIFE_SECONDS = 10 * 366 * 86_400;

export type SentinelRequest = {
  /** Identity key of the auth account. */
  readonly account: string;
  /** That account's key, or a signing key of it. */
  readonly signer: SigningKey;
  /** A public user key of which nobody needs the seed. */
  readonly userKey: string;
  readonly nowSeconds: number;
};

/** The sentinel's JWT. */
export function sentinelUser({ account, signer, userKey, nowSeconds }: SentinelRequest): string {
  return signedJwt(
    {
      sub: userKey,
      name: "sentinel",
      iat: nowSeconds,
      exp: nowSeconds + SENTINEL_LIFE_SECONDS,
      nats: {
        pub: { deny: [">"] },
        sub: { deny: [">"] },
        subs: -1,
        data: -1,
        payload: -1,
        bearer_token: true,
        ...(signer.publicKey === account ? {} : { issuer_account: account }),
        type: "user",
      },
    },
    signer,
  );
}

const MAX_SENTINEL_BYTES = 4096;

/** Throws `bad-request` for a text that is no sentinel of this account. */
export function assertSentinelOf(account: string, jwt: string): void {
  const read = verifiedClaims(Buffer.from(jwt), MAX_SENTINEL_BYTES, ACCOUNT_NKEY);
  const nats = read.ok ? read.claims["nats"] : undefined;
  const named = typeof nats === "object" && nats !== null && "issuer_account" in nats ? nats.issuer_account : undefined;
  if (named !== account) throw badRequest("this is no sentinel of that account");
}
