/**
 * Which identity provider somebody signs in at, and as which client: what the command line says, else the
 * environment, else what the space's exchange says of itself.
 *
 * Invariant: the client that an exchange names belongs to the issuer that it names, and to no other.
 */
import { type ExchangeAt, getOpen, refusalOf } from "../../shared/client/exchange.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { ExchangePath, SignInAnswer } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { UsageError } from "../exit.ts";
import type { ProviderAt } from "./provider.ts";

export type ProviderWords = { readonly issuer?: string; readonly clientId?: string };

const ASK_MS = 10_000;
const NOT_FOUND = 404;

/** `undefined`: neither anybody nor the exchange names one. */
export async function whichProvider(
  words: ProviderWords,
  env: Readonly<Record<string, string | undefined>>,
  exchange: () => ExchangeAt,
): Promise<ProviderAt | undefined> {
  const issuer = words.issuer ?? filled(env["COTAL_IDP_ISSUER"]);
  const clientId = words.clientId ?? filled(env["COTAL_IDP_CLIENT_ID"]);
  if (issuer !== undefined && clientId !== undefined) return { issuer, clientId };
  const named = await askSignIn(exchange());
  if (issuer === undefined && named.issuer === undefined) {
    if (clientId === undefined) return undefined;
    throw new UsageError("--client-id needs an issuer, and the exchange names none", { next: "add --issuer URL" });
  }
  const isNamed = issuer === undefined || issuer === named.issuer;
  const client = clientId ?? (isNamed ? named.clientId : undefined);
  if (client === undefined) {
    throw new UsageError("it is not said as which client to sign in", { next: "add --client-id ID" });
  }
  const scopes = isNamed && named.scopes !== undefined ? { scopes: named.scopes } : {};
  return { issuer: issuer ?? named.issuer ?? "", clientId: client, ...scopes };
}

const filled = (value: string | undefined): string | undefined => (value === "" ? undefined : value);

async function askSignIn(exchange: ExchangeAt): Promise<SignInAnswer> {
  const { status, retryAfter, body } = await getOpen(exchange, ExchangePath.SignIn, AbortSignal.timeout(ASK_MS));
  if (status === NOT_FOUND) return {};
  if (status !== 200) throw refusalOf(status, retryAfter, body, []);
  const parsed = SignInAnswer.safeParse(body);
  if (parsed.success) return parsed.data;
  throw new CotalError(ErrorCode.Internal, "the exchange does not say where people sign in", {
    outcome: Outcome.NotExecuted,
    next: "name the provider: --issuer URL --client-id ID",
  });
}
