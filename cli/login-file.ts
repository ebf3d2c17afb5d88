/**
 * Who has signed in to a space from this state folder: `<state>/spaces/<s>/login.json`.
 *
 * Invariants: the file is a secret (0600) when it holds a token; it is replaced whole or not at all; it
 * is read again at each use, so that a new sign-in reaches a command that runs. Whoever replaces it holds
 * `login-lock.ts`.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { parseJson } from "../shared/protocol/base/json.ts";
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";
import { trustPaths, writePrivate } from "../shared/trust/folder.ts";
import { keeping } from "./keeping.ts";

/** Where the exchange is; this machine's, if left out. */
const exchange = z.string().optional();

export const Login = z.discriminatedUnion("kind", [
  /** The one person of this machine, by the development issuer. */
  z.strictObject({ v: z.literal(1), kind: z.literal("dev") }),
  /** Somebody with a token of the space's identity provider. */
  z.strictObject({ v: z.literal(1), kind: z.literal("token"), idToken: z.string(), exchange }),
  /** Somebody who signed in at the space's identity provider with this CLI. */
  z.strictObject({
    v: z.literal(1),
    kind: z.literal("provider"),
    issuer: z.string(),
    clientId: z.string(),
    idToken: z.string(),
    /** Missing where the provider gave none, or takes it no more. */
    refreshToken: z.string().optional(),
    exchange,
  }),
  /** Signed out: nobody, until the next sign-in. */
  z.strictObject({ v: z.literal(1), kind: z.literal("out"), exchange }),
]);
export type Login = z.infer<typeof Login>;
export type SignedIn = Exclude<Login, { kind: "out" }>;
export type ProviderLogin = Extract<Login, { kind: "provider" }>;

/** A space of a state folder: what a sign-in is for. */
export type LoginPlace = { readonly state: string; readonly space: string };

export function loginPath({ state, space }: LoginPlace): string {
  return join(trustPaths(state).space(space), "login.json");
}

export function hasLogin(place: LoginPlace): boolean {
  return existsSync(loginPath(place));
}

/** The sign-in that is kept; `undefined` if there never was one. */
export function readLogin(place: LoginPlace): Login | undefined {
  const path = loginPath(place);
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
  try {
    return Login.parse(JSON.parse(text));
  } catch {
    // Without the cause: it may quote the file.
    throw new CotalError(ErrorCode.FailedPrecondition, `${path} does not hold a sign-in`, {
      outcome: Outcome.NotExecuted,
      next: "sign in again: cotal login",
    });
  }
}

export function writeLogin(place: LoginPlace, login: Login): void {
  keeping(place, () => writePrivate(loginPath(place), JSON.stringify(login)));
}

/** Where the exchange of this sign-in is; `undefined`: on this machine. */
export function exchangeUrl(login: Login | undefined): string | undefined {
  return login === undefined || login.kind === "dev" ? undefined : login.exchange;
}

type Times = { readonly issued: number | undefined; readonly expires: number | undefined };

/** Unix seconds that a token says of itself; it was checked when it was stored. */
export function timesOf(idToken: string): Times {
  const { iat, exp } = claimsOf(idToken);
  return { issued: iat, expires: exp };
}

export function subjectOf(idToken: string): string | undefined {
  return claimsOf(idToken).sub;
}

/** Each claim for itself: one that is wrong is not said, and takes no other along. */
const Claims = z.object({
  iat: z.number().optional().catch(undefined),
  exp: z.number().optional().catch(undefined),
  sub: z.string().optional().catch(undefined),
});

function claimsOf(idToken: string): z.infer<typeof Claims> {
  return Claims.safeParse(parseJson(Buffer.from(idToken.split(".")[1] ?? "", "base64url"))).data ?? {};
}
