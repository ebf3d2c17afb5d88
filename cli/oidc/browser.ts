/**
 * Signing in through a browser on this machine: authorization code with PKCE (RFC 8252, RFC 7636).
 *
 * Invariants: verifier, state and nonce are drawn for each sign-in and never leave this process but for
 * the verifier's hash, state and nonce in the address; nothing is returned that `id-token.ts` did not take.
 */
import * as oidc from "openid-client";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { safeAddress } from "./address.ts";
import { misshapen } from "./faults.ts";
import { checkIdToken, providerKeys } from "./id-token.ts";
import { listenForAnswer } from "./loopback.ts";
import { type Provider, type Tokens, asked, askedScope, tokensOf } from "./provider.ts";

export type BrowserSignIn = {
  /** Shows the address, which carries no secret. */
  readonly show: (address: URL) => void;
  readonly waitMs: number;
};

export async function signInByBrowser(provider: Provider, { show, waitMs }: BrowserSignIn): Promise<Tokens> {
  const { config, host } = provider;
  const [verifier, state, nonce] = [oidc.randomPKCECodeVerifier(), oidc.randomState(), oidc.randomNonce()];
  const loopback = await listenForAnswer(state);
  try {
    const address = oidc.buildAuthorizationUrl(config, {
      ...askedScope(provider),
      redirect_uri: loopback.redirect,
      code_challenge: await oidc.calculatePKCECodeChallenge(verifier),
      code_challenge_method: "S256",
      state,
      nonce,
    });
    if (safeAddress(address.href) === undefined) throw misshapen(host, "its sign-in page is not https");
    show(address);
    const answer = await inTime(loopback.answer, waitMs);
    const got = await asked(
      host,
      () =>
        oidc.authorizationCodeGrant(config, answer, {
          pkceCodeVerifier: verifier,
          expectedState: state,
          expectedNonce: nonce,
          idTokenExpected: true,
        }),
      [verifier, answer.searchParams.get("code") ?? ""],
    );
    const tokens = tokensOf(host, got);
    await checkIdToken(tokens.idToken, provider, providerKeys(provider), { nonce });
    return tokens;
  } finally {
    loopback.close();
  }
}

async function inTime<T>(answer: Promise<T>, waitMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(nobodyCame(waitMs)), waitMs);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}

function nobodyCame(waitMs: number): CotalError {
  return new CotalError(ErrorCode.DeadlineExceeded, `nobody signed in within ${Math.round(waitMs / 1000)} s`, {
    outcome: Outcome.NotExecuted,
    next: "start again and open the address in a browser on this machine; without one: cotal login --device",
  });
}
