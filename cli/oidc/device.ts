/**
 * Signing in on a machine without a browser: a code that is typed in on another one (RFC 8628).
 *
 * Invariants: the device code stays in this process; what the provider wants shown is text of somebody
 * else. A provider that is away for a moment ends nothing: it is asked on until the code is over.
 */
import { setTimeout as sleep } from "node:timers/promises";
import * as oidc from "openid-client";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { safeAddress } from "./address.ts";
import { misshapen } from "./faults.ts";
import { checkIdToken, providerKeys } from "./id-token.ts";
import { type Provider, type Tokens, asked, askedScope, tokensOf } from "./provider.ts";

export type DeviceSignIn = {
  /** Shows the page and the code to type in there. */
  readonly show: (page: URL, code: string) => void;
  readonly waitMs: number;
};

type DeviceCode = Awaited<ReturnType<typeof oidc.initiateDeviceAuthorization>>;

const AWAY_MS = 5000;

export async function signInByDevice(provider: Provider, { show, waitMs }: DeviceSignIn): Promise<Tokens> {
  const { config, host } = provider;
  if (config.serverMetadata().device_authorization_endpoint === undefined) throw notOffered(host);
  const device = await asked(host, () => oidc.initiateDeviceAuthorization(config, askedScope(provider)));
  const page = safeAddress(device.verification_uri);
  if (page === undefined) throw misshapen(host, "its page for codes is not https");
  show(page, device.user_code);
  const deadline = performance.now() + Math.min(waitMs, device.expires_in * 1000);
  const tokens = tokensOf(host, await poll(provider, device, deadline));
  await checkIdToken(tokens.idToken, provider, providerKeys(provider), {});
  return tokens;
}

async function poll({ config, host }: Provider, device: DeviceCode, deadline: number) {
  for (;;) {
    const leftMs = deadline - performance.now();
    if (leftMs <= 0) throw nobodyCame();
    const signal = AbortSignal.timeout(Math.ceil(leftMs));
    try {
      return await asked(host, () => oidc.pollDeviceAuthorizationGrant(config, device, undefined, { signal }), [
        device.device_code,
      ]);
    } catch (thrown) {
      if (signal.aborted) throw nobodyCame();
      if (!(thrown instanceof CotalError) || thrown.code !== ErrorCode.Unavailable) throw thrown;
      await sleep(AWAY_MS);
    }
  }
}

function notOffered(host: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the identity provider ${host} offers no sign-in by device`, {
    outcome: Outcome.NotExecuted,
    next: "sign in on a machine with a browser, or bring an ID token: cotal login --token-file FILE",
  });
}

function nobodyCame(): CotalError {
  return new CotalError(ErrorCode.DeadlineExceeded, "the code was not used in time", {
    outcome: Outcome.NotExecuted,
    next: "start again: cotal login --device",
  });
}
