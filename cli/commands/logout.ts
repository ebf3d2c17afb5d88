/** `cotal logout`: forgets the sign-in of this state folder, and ends it at the identity provider. */
import type { Command } from "commander";
import { toCotalError } from "../../shared/protocol/base/errors.ts";
import { type Login, exchangeUrl, readLogin, writeLogin } from "../login-file.ts";
import { holdingLogin } from "../login-lock.ts";
import { type Invocation, handle } from "../program.ts";
import { isUserSpace, noSignIn } from "../signin.ts";
import type { Target } from "../target.ts";
import { oneLine } from "../text.ts";

export function registerLogout(program: Command): void {
  handle(program.command("logout").description("sign out here and at the identity provider"), signOut);
}

async function signOut({ out, target }: Invocation<object>): Promise<void> {
  const at = target();
  if (!isUserSpace(at)) throw noSignIn(at);
  const revoked = await holdingLogin(at, async () => {
    const login = keptLogin(at);
    const told = await tellProvider(login);
    const exchange = exchangeUrl(login);
    writeLogin(at, { v: 1, kind: "out", ...(exchange === undefined ? {} : { exchange }) });
    return told;
  });
  const { provider, why } = revoked;
  out.item(
    { kind: "logout", space: at.space, ...(provider === undefined ? {} : { provider }) },
    `signed out of ${oneLine(at.space)}`,
  );
  if (why !== undefined) out.notice({ kind: "notice", about: "provider", message: why }, oneLine(why));
  out.note("what is connected goes on until its bearer ends, within 15 minutes");
}

function keptLogin(at: Target): Login | undefined {
  try {
    return readLogin(at);
  } catch {
    // What can't be read can't be revoked, and is replaced.
    return undefined;
  }
}

type Told = { readonly provider?: "revoked" | "not-told"; readonly why?: string };

/** Signing out here is not held up by a provider that can't be told. */
async function tellProvider(login: Login | undefined): Promise<Told> {
  if (login?.kind !== "provider" || login.refreshToken === undefined) return {};
  const { refreshToken } = login;
  const { revokeSignIn } = await import("../oidc/revoke.ts");
  try {
    const told = await revokeSignIn({ ...login, refreshToken });
    if (told === "revoked") return { provider: told };
    return { provider: "not-told", why: `${login.issuer} has no way to be told; the sign-in ends there by itself` };
  } catch (thrown) {
    const { message } = toCotalError(thrown);
    return { provider: "not-told", why: `the sign-in goes on at ${login.issuer} until you end it there: ${message}` };
  }
}
