/**
 * An issuer whose tokens say whatever a test wants them to: a key, its JWKS over HTTP, and nothing else.
 * Where people really sign in is `identity-provider.ts`.
 */
import { type Server, createServer } from "node:http";
import { SignJWT, exportJWK, generateKeyPair } from "jose";

export type TokenIssuer = {
  readonly issuer: string;
  readonly jwks: string;
  /** An ID token with these claims; `iss`, `iat` and `exp` are filled in, and one that is `undefined` is left out. */
  readonly sign: (claims: Readonly<Record<string, unknown>>) => Promise<string>;
  readonly stop: () => Promise<void>;
};

export async function startTokenIssuer(): Promise<TokenIssuer> {
  const { privateKey, publicKey } = await generateKeyPair("ES256");
  const keys = [{ ...(await exportJWK(publicKey)), kid: "k1", alg: "ES256", use: "sig" }];
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(request.url === "/jwks" ? 200 : 404, { "content-type": "application/json" });
    response.end(JSON.stringify({ keys }));
  });
  const issuer = await listen(server);
  return {
    issuer,
    jwks: `${issuer}/jwks`,
    sign: (claims) => {
      const seconds = Math.floor(Date.now() / 1000);
      const whole = { iss: issuer, iat: seconds, exp: seconds + 600, ...claims };
      return new SignJWT(JSON.parse(JSON.stringify(whole)) as Record<string, unknown>)
        .setProtectedHeader({ alg: "ES256", kid: "k1", typ: "JWT" })
        .sign(privateKey);
    },
    stop: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}

function listen(server: Server): Promise<string> {
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      resolve(`http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`);
    });
  });
}
