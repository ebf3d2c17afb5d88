/**
 * What a connection presents, as the function that nats.js asks at each dial.
 *
 * Invariants
 * 1. The source is read again at every dial: a renewed credential needs no new connection.
 * 2. It never throws into nats.js, which would end its reconnect loop for good (field case 23). A
 *    source that fails is remembered, and the dial presents a credential that no server accepts.
 * 3. Nothing here keeps, logs or returns a secret; only the size of the CONNECT line is kept.
 */
import { type Auth, type Authenticator as NatsAuthenticator } from "@nats-io/transport-node";

export type Authenticator =
  /** A user JWT; `sign` signs the server's nonce; `token` rides along for a callout. */
  | {
      readonly jwt: () => string;
      /** Left out for a bearer JWT, such as a callout's sentinel. */
      readonly sign?: (nonce: Uint8Array) => Uint8Array;
      readonly token?: () => string;
    }
  | { readonly token: () => string }
  | { readonly user: string; readonly pass: () => string };

export type DialedAuth = {
  readonly authenticate: NatsAuthenticator;
  /** How often a CONNECT was made: a dial that raised it got as far as the server's INFO. */
  readonly count: () => number;
  /** Size of the last CONNECT line, in bytes. */
  readonly connectBytes: () => number;
  /** Why the credential's source failed at the last dial, if it did. */
  readonly failure: () => unknown;
};

/** User name of the dial whose source failed: present, so that no `no_auth_user` steps in. */
const NO_CREDENTIAL = "credential-unavailable";

export function dialedAuth(source: Authenticator | undefined, name: string): DialedAuth {
  let count = 0;
  let bytes = 0;
  let failure: unknown;
  return {
    authenticate: (nonce) => {
      count += 1;
      failure = undefined;
      let auth: Auth = undefined;
      try {
        auth = source === undefined ? undefined : present(source, nonce);
      } catch (thrown) {
        failure = thrown;
        auth = { user: NO_CREDENTIAL };
      }
      bytes = connectBytes(name, auth);
      return auth;
    },
    count: () => count,
    connectBytes: () => bytes,
    failure: () => failure,
  };
}

function present(source: Authenticator, nonce: string | undefined): Auth {
  if ("user" in source) return { user: source.user, pass: source.pass() };
  if (!("jwt" in source)) return { auth_token: source.token() };
  const challenge = new TextEncoder().encode(nonce ?? "");
  return {
    jwt: source.jwt(),
    ...(source.sign === undefined || nonce === undefined
      ? {}
      : { sig: Buffer.from(source.sign(challenge)).toString("base64url") }),
    ...(source.token === undefined ? {} : { auth_token: source.token() }),
  };
}

/** Length of the CONNECT line that nats.js writes, but for the few bytes that vary with its version. */
export function connectBytes(name: string, auth?: Auth): number {
  const fixed = { protocol: 1, version: "0.0.0", lang: "nats.js", verbose: false, pedantic: false };
  const line = `CONNECT ${JSON.stringify({ ...fixed, headers: true, no_responders: true, name, ...auth })}`;
  return Buffer.byteLength(line);
}
