/**
 * Addresses of an identity provider: its issuer, and whatever its documents name.
 *
 * Invariant: nothing is asked of, and no person is sent to, an address that is not https; plain http is
 * for this machine alone. What is no web address is never handed to a browser.
 */
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";

export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(host);
}

/** The address, if it is one of the two kinds. */
export function safeAddress(text: string): URL | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || url.username !== "" || url.password !== "") return undefined;
  const isSafe = url.protocol === "https:" || (url.protocol === "http:" && isLoopback(url.hostname));
  return isSafe ? url : undefined;
}

/** An issuer's address (OIDC Discovery, 3); throws for what can't be one. */
export function issuerAddress(text: string): URL {
  const url = safeAddress(text);
  if (url !== undefined && url.search === "" && url.hash === "") return url;
  throw new CotalError(ErrorCode.BadRequest, `${JSON.stringify(text.slice(0, 200))} is no issuer's address`, {
    outcome: Outcome.NotExecuted,
    next: "write it as the provider's tokens spell it, like https://login.example.com",
  });
}
