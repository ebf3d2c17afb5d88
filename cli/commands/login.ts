/** `cotal login`, `logout`: who the commands of this state folder act as in a space that people sign in to. */
import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { CompactToken } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { UsageError } from "../exit.ts";
import { type Login, writeLogin } from "../login-file.ts";
import { type Invocation, handle } from "../program.ts";
import { OWN_ACTOR, exchangeOnce, expiryOf, isUserSpace } from "../signin.ts";
import type { Target } from "../target.ts";
import { oneLine, table } from "../text.ts";

type LoginOptions = { readonly tokenFile?: string; readonly exchange?: string };

export function registerLogin(program: Command): void {
  const login = program
    .command("login")
    .description("sign in to a space; on its own machine the development issuer needs nothing else")
    .option("--token-file <file>", "an ID token of the space's identity provider; - reads standard input")
    .option("--exchange <url>", "where the space's exchange is (default: this machine's)");
  handle<LoginOptions>(login, signIn);
  handle(program.command("logout").description("forget the sign-in; commands refuse until the next one"), signOut);
}

async function signIn({ options, out, target }: Invocation<LoginOptions>): Promise<void> {
  const at = target();
  const { tokenFile, exchange } = options;
  if (exchange !== undefined && tokenFile === undefined) {
    throw new UsageError("--exchange needs a token of the space's identity provider", {
      next: "add --token-file FILE",
    });
  }
  if (exchange === undefined && !isUserSpace(at)) throw noSignIn(at);
  const login: Exclude<Login, { kind: "out" }> =
    tokenFile === undefined
      ? { v: 1, kind: "dev" }
      : { v: 1, kind: "token", idToken: readToken(tokenFile), ...(exchange === undefined ? {} : { exchange }) };
  // What the exchange does not take is not kept.
  const { owner, lifecycleUid } = await exchangeOnce(at, OWN_ACTOR, login);
  writeLogin(at, login);
  const by = login.kind === "dev" ? "the development issuer" : "an identity token";
  const expires = login.kind === "token" ? expiryOf(login.idToken) : undefined;
  out.item(
    { kind: "login", space: at.space, owner, by: login.kind, ...(expires === undefined ? {} : { expires }) },
    `signed in to ${oneLine(at.space)} by ${by}`,
    ...table([
      ["owner", owner],
      ["acts as", `${owner}.${OWN_ACTOR}, or any name with --as`],
      ["uid", lifecycleUid],
      ...(expires === undefined ? [] : [["until", new Date(expires * 1000).toISOString()]]),
    ]),
  );
}

function signOut({ out, target }: Invocation<object>): Promise<void> {
  const at = target();
  if (!isUserSpace(at)) throw noSignIn(at);
  writeLogin(at, { v: 1, kind: "out" });
  out.item({ kind: "logout", space: at.space }, `signed out of ${oneLine(at.space)}`);
  out.note("what is connected goes on until its bearer ends, within 15 minutes");
  return Promise.resolve();
}

export function noSignIn({ space }: Target): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `nobody signs in to space ${space} from this state folder`, {
    outcome: Outcome.NotExecuted,
    next: "use --as ACTOR or --creds FILE; a space that people sign in to is made with cotal up --auth user",
  });
}

function readToken(file: string): string {
  let text: string;
  try {
    text = readFileSync(file === "-" ? 0 : file, "utf8").trim();
  } catch (cause) {
    throw new CotalError(ErrorCode.NotFound, `the token file ${file} can't be read`, {
      outcome: Outcome.NotExecuted,
      next: "name a file that holds one ID token",
      cause,
    });
  }
  if (CompactToken.safeParse(text).success) return text;
  throw new UsageError("this is no ID token", { next: "give the compact form: three parts with dots between" });
}
