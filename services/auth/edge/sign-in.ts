/**
 * Where people of this space sign in: the issuer that its exchange trusts, and the client they come as.
 *
 * It says to anybody what the provider's own sign-in page says to anybody, so that a person has to know
 * the exchange alone. It is no proof of anything: the exchange checks what comes back as ever.
 */
import { ExchangePath, type SignInAnswer } from "../../../shared/protocol/endpoint/exchange-shapes.ts";
import type { FaceRoute } from "./http.ts";

export type SignInSource = { readonly issuer: string; readonly audience: string; readonly scopes: readonly string[] };

/** For a face; a space without a provider answers with nothing in it. */
export function signInRoute(idp: SignInSource | undefined): FaceRoute {
  // A client's ID tokens carry its id as their audience (OIDC Core, 2).
  const body: SignInAnswer =
    idp === undefined ? {} : { issuer: idp.issuer, clientId: idp.audience, scopes: [...idp.scopes] };
  return { method: "GET", path: ExchangePath.SignIn, guarded: false, handle: () => ({ status: 200, body }) };
}
