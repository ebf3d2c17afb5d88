/**
 * The identity provider that somebody signs in at: found by its issuer, spoken to through `openid-client`.
 *
 * Invariants
 * 1. The discovery document must name the very issuer that was asked for; every address in it is held to
 *    `address.ts` when it is used.
 * 2. This CLI is a public client: it has no secret, and proves itself by PKCE (RFC 8252, 8.4).
 * 3. Every request is bounded in time, every answer in size, and no redirect is followed.
 */
import * as oidc from "openid-client";
import { isLoopback, issuerAddress, safeAddress } from "./address.ts";
import { misshapen, otherIssuer, providerFault } from "./faults.ts";

export type ProviderAt = {
  readonly issuer: string;
  readonly clientId: string;
  /** What to ask for; `openid` always is. */
  readonly scopes?: readonly string[];
};

export type Provider = {
  readonly at: ProviderAt;
  readonly config: oidc.Configuration;
  /** For words. */
  readonly host: string;
  readonly scopes: readonly string[];
  readonly fetch: typeof boundedFetch;
};

/** What a sign-in gives. */
export type Tokens = { readonly idToken: string; readonly refreshToken?: string };

const REQUEST_SECONDS = 6;
const MAX_ANSWER_BYTES = 256 * 1024;
const OFFLINE = "offline_access";
const DEFAULT_SCOPES = ["openid", OFFLINE];

export async function findProvider(at: ProviderAt): Promise<Provider> {
  const url = issuerAddress(at.issuer);
  const { host } = url;
  const config = await asked(host, () =>
    oidc.discovery(url, at.clientId, { token_endpoint_auth_method: "none" }, oidc.None(), {
      timeout: REQUEST_SECONDS,
      [oidc.customFetch]: boundedFetch,
      // Only to this machine: `boundedFetch` sees to the rest.
      ...(isLoopback(url.hostname) ? { execute: [oidc.allowInsecureRequests] } : {}),
    }),
  );
  const { issuer, scopes_supported: known } = config.serverMetadata();
  if (issuer !== at.issuer) throw otherIssuer(host);
  const wanted = [...new Set(["openid", ...(at.scopes ?? DEFAULT_SCOPES)])];
  const scopes = wanted.filter((scope) => scope !== OFFLINE || known === undefined || known.includes(OFFLINE));
  return { at, config, host, scopes, fetch: boundedFetch };
}

/** What every way of signing in asks for. */
export function askedScope({ scopes }: Provider): Record<string, string> {
  // A refresh token is given for a consent only (OIDC Core, 11).
  return { scope: scopes.join(" "), ...(scopes.includes(OFFLINE) ? { prompt: "consent" } : {}) };
}

/** Runs a request to the provider; what it fails with is said without what was sent. */
export async function asked<T>(host: string, run: () => Promise<T>, secrets: readonly string[] = []): Promise<T> {
  try {
    return await run();
  } catch (thrown) {
    throw providerFault(host, thrown, secrets);
  }
}

/** Takes the two tokens that count out of an answer; the access token is for nothing here and forgotten. */
export function tokensOf(
  host: string,
  answer: { readonly id_token?: string; readonly refresh_token?: string },
): Tokens {
  const { id_token: idToken, refresh_token: refreshToken } = answer;
  if (idToken === undefined) throw misshapen(host, "it gives no ID token");
  return { idToken, ...(refreshToken === undefined ? {} : { refreshToken }) };
}

async function boundedFetch(address: string, options: RequestInit | oidc.CustomFetchOptions): Promise<Response> {
  const url = safeAddress(address);
  if (url === undefined) throw misshapen("which was named", "it names an address that is not https");
  const { method, headers, body, signal } = options;
  const response = await fetch(url, {
    ...(method === undefined ? {} : { method }),
    ...(headers === undefined ? {} : { headers }),
    ...(body === undefined ? {} : { body }),
    ...(signal === undefined ? {} : { signal }),
    redirect: "manual",
  });
  const bytes = await bounded(response, url.host);
  const { status, statusText } = response;
  return new Response(bytes.length === 0 ? null : bytes, { status, statusText, headers: response.headers });
}

async function bounded(response: Response, host: string): Promise<Uint8Array<ArrayBuffer>> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const body: AsyncIterable<Uint8Array> | null = response.body;
  for await (const chunk of body ?? []) {
    size += chunk.length;
    if (size > MAX_ANSWER_BYTES) throw misshapen(host, "its answer is too long");
    chunks.push(chunk);
  }
  return new Uint8Array(Buffer.concat(chunks));
}
