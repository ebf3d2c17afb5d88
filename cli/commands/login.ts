/** `cotal login`: who the commands of this state folder act as in a space that people sign in to. */
import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { CompactToken } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { UsageError, argument, wholeNumber } from "../exit.ts";
import { type SignedIn, exchangeUrl, readLogin, timesOf, writeLogin } from "../login-file.ts";
import { holdingLogin } from "../login-lock.ts";
import type { Output } from "../output.ts";
import { type Invocation, handle } from "../program.ts";
import { OWN_ACTOR, exchangeAt, exchangeOnce, isOwnSpace, isUserSpace, noSignIn } from "../signin.ts";
import { issuerAddress } from "../oidc/address.ts";
import { type ProviderWords, whichProvider } from "../oidc/which.ts";
import type { Target } from "../target.ts";
import { oneLine, table } from "../text.ts";

type LoginOptions = ProviderWords & {
  readonly device?: boolean;
  readonly timeout?: number;
  readonly tokenFile?: string;
  readonly exchange?: string;
};

const WAIT_SECONDS = 300;

export function registerLogin(program: Command): void {
  const login = program
    .command("login")
    .description(
      "sign in to a space at its identity provider, and stay signed in; a space of this machine may need none",
    )
    .option("--device", "sign in with a code on another machine's browser")
    .option("--issuer <url>", "identity provider (COTAL_IDP_ISSUER; default: what the space's exchange says)")
    .option("--client-id <id>", "client at the provider (COTAL_IDP_CLIENT_ID; default: as above)")
    .option("--exchange <url>", "where the space's exchange is (default: this machine's)")
    .option("--token-file <file>", "an ID token that you have; - reads standard input")
    .option(
      "--timeout <s>",
      `give up after so many seconds (default ${WAIT_SECONDS})`,
      wholeNumber("--timeout", 1, 3600),
    );
  handle<LoginOptions>(login, signIn);
}

async function signIn({ options, out, target }: Invocation<LoginOptions>): Promise<void> {
  const at = target();
  assertAddresses(options);
  const exchange = options.exchange ?? keptExchange(at);
  if (exchange === undefined && !isUserSpace(at)) throw noSignIn(at);
  const place = exchange === undefined ? {} : { exchange };
  const login =
    options.tokenFile === undefined
      ? await atProvider(at, options, out, place)
      : ({ v: 1, kind: "token", idToken: tokenOf(options, options.tokenFile), ...place } as const);
  // What the exchange does not take is not kept.
  const { owner, lifecycleUid } = await exchangeOnce(at, OWN_ACTOR, taken(login));
  await holdingLogin(at, () => Promise.resolve(writeLogin(at, login)));
  const stays = login.kind === "provider" && login.refreshToken !== undefined;
  const expires = login.kind === "dev" || stays ? undefined : timesOf(login.idToken).expires;
  out.item(
    {
      kind: "login",
      space: at.space,
      owner,
      by: login.kind,
      ...(login.kind === "provider" ? { issuer: login.issuer, stays } : {}),
      ...(expires === undefined ? {} : { expires }),
    },
    `signed in to ${oneLine(at.space)} by ${byWhom(login)}`,
    ...table([
      ["owner", owner],
      ["acts as", `${owner}.${OWN_ACTOR}, or any name with --as`],
      ["uid", lifecycleUid],
      ...(stays ? [["until", "you sign out (cotal logout), or the provider ends it"]] : []),
      ...(expires === undefined ? [] : [["until", new Date(expires * 1000).toISOString()]]),
    ]),
  );
}

/** What is no address is a matter of usage, and nobody is asked. */
function assertAddresses({ exchange, issuer }: LoginOptions): void {
  if (exchange !== undefined && !URL.canParse(exchange)) {
    throw new UsageError("--exchange takes an address", { next: "write it like https://auth.example.com" });
  }
  if (issuer !== undefined) argument(() => issuerAddress(issuer));
}

/** Who signed in to somebody else's space once need not name its exchange again. */
function keptExchange(at: Target): string | undefined {
  if (isOwnSpace(at)) return undefined;
  try {
    return exchangeUrl(readLogin(at));
  } catch {
    // What is kept can't be read: this sign-in replaces it.
    return undefined;
  }
}

type Exchange = { readonly exchange?: string };

async function atProvider(at: Target, options: LoginOptions, out: Output, place: Exchange): Promise<SignedIn> {
  const provider = await whichProvider(options, process.env, () => exchangeAt(at, place.exchange));
  if (provider !== undefined) {
    // Nothing but a sign-in should load what it takes.
    const { signInAt } = await import("../oidc/sign-in.ts");
    const { device = false, timeout = WAIT_SECONDS } = options;
    const tokens = await signInAt(provider, { device, waitMs: timeout * 1000, out });
    const { issuer, clientId } = provider;
    return { v: 1, kind: "provider", issuer, clientId, ...tokens, ...place };
  }
  if (place.exchange === undefined && options.device !== true) return { v: 1, kind: "dev" };
  throw new CotalError(ErrorCode.FailedPrecondition, `the exchange of ${at.space} names no identity provider`, {
    outcome: Outcome.NotExecuted,
    next: "name it: --issuer URL --client-id ID; or bring an ID token: --token-file FILE",
  });
}

/** The same sign-in as the exchange sees it: the token at hand, which nothing renews yet. */
function taken(login: SignedIn): SignedIn {
  if (login.kind !== "provider") return login;
  const { idToken, exchange } = login;
  return { v: 1, kind: "token", idToken, ...(exchange === undefined ? {} : { exchange }) };
}

function byWhom(login: SignedIn): string {
  switch (login.kind) {
    case "dev":
      return "the development issuer";
    case "token":
      return "an identity token";
    case "provider":
      return oneLine(login.issuer);
  }
}

function tokenOf({ device, issuer, clientId }: LoginOptions, file: string): string {
  if (device === true || issuer !== undefined || clientId !== undefined) {
    throw new UsageError("--token-file brings a token: nobody is asked for one", {
      next: "leave --device, --issuer and --client-id out",
    });
  }
  return readToken(file);
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
