/**
 * The development issuer: signs in the one person of a machine, so that a space can be used without any
 * identity provider.
 *
 * IT PROVES NOTHING ABOUT ANYBODY. Whoever holds the capability of the loopback face, that is: whoever can
 * read the run folder, is that person. It is off unless asked for, and says so wherever it is on.
 *
 * Invariants
 * 1. One subject for a space, drawn once and kept: the same person after every restart.
 * 2. Its name is under `.invalid` and resolves nowhere; its tokens live for minutes, and only for this
 *    space; nobody else's issuer can be called so.
 * 3. Tokens go through the same checks as those of any other issuer (`edge/idp.ts`).
 */
import { type JWK, SignJWT, createLocalJWKSet, importJWK } from "jose";
import { ExchangePath } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { keptDevIssuer } from "../../shared/trust/dev-issuer.ts";
import { jsonObject } from "../../shared/trust/nats-jwt.ts";
import type { FaceRoute } from "./edge/http.ts";
import { type IdentityProvider, ProofFault, createIdentityProvider } from "./edge/idp.ts";

/** For the log, as loud as it gets. */
export const DEV_ISSUER_NOTICE =
  "THE DEVELOPMENT ISSUER IS ON: nobody's identity is proved; whoever can read the run folder is this space's one person";

const ISSUER = "https://dev-issuer.cotal.invalid/";
const ALGORITHM = "EdDSA";
const LIFE_SECONDS = 300;

export type DevIssuerOptions = {
  /** Where its key and its person are kept: the auth service's own folder of the space. */
  readonly folder: string;
  readonly space: string;
  /** Epoch milliseconds. */
  readonly now: () => number;
};

export type DevIssuer = {
  readonly issuer: string;
  /** For the loopback face. */
  readonly routes: readonly FaceRoute[];
  /** An ID token of the one person. */
  readonly token: () => Promise<string>;
  /** Proves its tokens, and asks the other one, if there is one, about all others. */
  readonly beside: (other: IdentityProvider | undefined) => IdentityProvider;
};

export async function createDevIssuer({ folder, space, now }: DevIssuerOptions): Promise<DevIssuer> {
  const issuer = `${ISSUER}${space}`;
  const audience = `cotal-dev:${space}`;
  const { jwk, subject } = keptDevIssuer(folder);
  const kid = "dev";
  const { kty, crv, x } = jwk;
  const keys: { keys: JWK[] } = { keys: [{ kty, crv, x, kid, alg: ALGORITHM, use: "sig" }] };
  const key = await importJWK({ ...jwk, alg: ALGORITHM }, ALGORITHM);
  const own = createIdentityProvider({
    issuer,
    audience,
    algorithms: [ALGORITHM],
    keys: createLocalJWKSet(keys),
    now,
  });
  const token = (): Promise<string> => {
    const seconds = Math.floor(now() / 1000);
    return new SignJWT({ dev: true })
      .setProtectedHeader({ alg: ALGORITHM, kid, typ: "JWT" })
      .setIssuer(issuer)
      .setAudience(audience)
      .setSubject(subject)
      .setIssuedAt(seconds)
      .setExpirationTime(seconds + LIFE_SECONDS)
      .sign(key);
  };
  return {
    issuer,
    token,
    routes: [
      {
        method: "POST",
        path: ExchangePath.DevToken,
        guarded: true,
        handle: async () => ({ status: 200, body: { idToken: await token(), expiresIn: LIFE_SECONDS, dev: true } }),
      },
      { method: "GET", path: "/dev/jwks", guarded: false, handle: () => ({ status: 200, body: keys }) },
    ],
    beside: (other) => ({
      verify: (idToken) => {
        if (issuerOf(idToken) === issuer) return own.verify(idToken);
        return other === undefined
          ? Promise.resolve({ ok: false, fault: ProofFault.WrongIssuer })
          : other.verify(idToken);
      },
    }),
  };
}

/** Whom a token says it is of: it decides who is asked, and nothing else. */
function issuerOf(idToken: string): unknown {
  return jsonObject(idToken.split(".", 2)[1] ?? "")?.["iss"];
}
