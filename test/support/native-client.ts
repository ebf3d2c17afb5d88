/** Somebody who signs in with the command line's own flow, in process, and a sign-in kept as it keeps one. */
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { signInByBrowser } from "../../cli/oidc/browser.ts";
import { type Tokens, findProvider } from "../../cli/oidc/provider.ts";
import { type LoginPlace, type ProviderLogin, readLogin, writeLogin } from "../../cli/login-file.ts";
import { walk } from "./browsing.ts";
import type { IdentityProvider } from "./identity-provider.ts";

export const NATIVE_CLIENT = "cotal-cli";

async function tokensFor(idp: IdentityProvider, login: string): Promise<Tokens> {
  const provider = await findProvider({ issuer: idp.issuer, clientId: NATIVE_CLIENT });
  return signInByBrowser(provider, {
    waitMs: 10_000,
    show: (address) => void walk(address.href, { login }).then(({ url }) => fetch(url)),
  });
}

export type Kept = {
  readonly place: LoginPlace;
  readonly login: () => ProviderLogin;
  readonly write: (change: Partial<ProviderLogin>) => void;
};

/** A fresh sign-in in a state folder of its own. */
export async function keptSignIn(idp: IdentityProvider, login: string): Promise<Kept> {
  const place = { state: mkdtempSync(join(tmpdir(), "cotal-login-")), space: "main" };
  const tokens = await tokensFor(idp, login);
  writeLogin(place, { v: 1, kind: "provider", issuer: idp.issuer, clientId: NATIVE_CLIENT, ...tokens });
  const kept = (): ProviderLogin => {
    const found = readLogin(place);
    if (found?.kind === "provider") return found;
    throw new Error(`no sign-in at a provider is kept, but ${JSON.stringify(found)}`);
  };
  return { place, login: kept, write: (change) => writeLogin(place, { ...kept(), ...change }) };
}

/** A token that says so of itself, signed by nobody. */
export function sayingToken(subject: string, issuedAgo: number, left: number): string {
  const now = Math.floor(Date.now() / 1000);
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  return `${part({ alg: "none" })}.${part({ sub: subject, iat: now - issuedAgo, exp: now + left })}.c2ln`;
}
