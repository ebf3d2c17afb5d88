/** Ending a sign-in at the provider: its refresh token is good for nothing afterwards (RFC 7009). */
import * as oidc from "openid-client";
import type { ProviderLogin } from "../login-file.ts";
import { asked, findProvider } from "./provider.ts";

/** `revoked`, or `not-offered` where the provider has no way to. Throws if it can't be asked. */
export async function revokeSignIn(login: ProviderLogin & { readonly refreshToken: string }) {
  const { config, host } = await findProvider(login);
  if (config.serverMetadata().revocation_endpoint === undefined) return "not-offered";
  const { refreshToken } = login;
  const hint = { token_type_hint: "refresh_token" };
  await asked(host, () => oidc.tokenRevocation(config, refreshToken, hint), [refreshToken]);
  return "revoked";
}
