/**
 * Staying signed in: the ID token of a kept sign-in, renewed with its refresh token before it ends.
 *
 * ```
 * fresh ──due (60 to 75 % of its life)──▶ renewed   due ──provider away──▶ used while it lives, tried at each use
 * due ──invalid_grant──▶ spent: used while it lives, then "sign in again"
 * ```
 *
 * Invariants
 * 1. A token that is known to be over is presented to nobody, and a refresh token that was refused is
 *    asked with no more, by no process: it is taken out of the file (field case 20).
 * 2. When it is renewed is placed from its end, with a spread, and tried again at every use until then
 *    (field case 22); whoever uses it paces the uses (`bearer-source.ts`).
 * 3. One renewal at a time in all processes (`login-lock.ts`): who waited takes what the other got.
 * 4. A rotated refresh token is on the disk before anything else is done with the answer (RFC 9700, 4.14.2).
 */
import * as oidc from "openid-client";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { type LoginPlace, type ProviderLogin, readLogin, subjectOf, timesOf, writeLogin } from "../login-file.ts";
import { holdingLogin } from "../login-lock.ts";
import { isSpent, providerFault } from "./faults.ts";
import { checkIdToken, providerKeys } from "./id-token.ts";
import { findProvider } from "./provider.ts";

/** Part of its life at which a token is renewed: from the first to the second. */
const RENEW_FROM = 0.6;
const RENEW_SPREAD = 0.15;

/** An ID token that is not over. Throws `unauthenticated` when the sign-in is. */
export async function freshIdToken(place: LoginPlace, login: ProviderLogin): Promise<string> {
  const { idToken, refreshToken } = login;
  if (refreshToken === undefined && leftMs(idToken) <= 0) throw over(place, `it ended at ${endOf(idToken)}`);
  if (refreshToken === undefined || !isDue(idToken, Math.random())) return idToken;
  try {
    return await holdingLogin(place, () => renewedOrTaken(place, login));
  } catch (thrown) {
    if (leftMs(idToken) > 0) return idToken;
    throw thrown;
  }
}

/** The same token is due from a moment on that `random`, in [0, 1), places. */
export function isDue(idToken: string, random: number, nowMs = Date.now()): boolean {
  const { issued, expires } = timesOf(idToken);
  if (expires === undefined) return false;
  const lifeMs = (expires - (issued ?? expires)) * 1000;
  return nowMs >= expires * 1000 - lifeMs * (1 - RENEW_FROM - RENEW_SPREAD * random);
}

function leftMs(idToken: string): number {
  const { expires } = timesOf(idToken);
  return expires === undefined ? Number.POSITIVE_INFINITY : expires * 1000 - Date.now();
}

/** What another process got meanwhile, or else a new one. */
async function renewedOrTaken(place: LoginPlace, before: ProviderLogin): Promise<string> {
  const login = kept(place);
  if (login.idToken !== before.idToken && leftMs(login.idToken) > 0) return login.idToken;
  if (login.refreshToken === undefined) throw over(place, `it ended at ${endOf(login.idToken)}`);
  return renewed(place, login, login.refreshToken);
}

/** What is kept now: somebody may have signed out meanwhile, or in by other means. */
function kept(place: LoginPlace): ProviderLogin {
  const login = readLogin(place);
  if (login?.kind === "provider") return login;
  throw over(place, "another command ended it");
}

async function renewed(place: LoginPlace, login: ProviderLogin, refreshToken: string): Promise<string> {
  const provider = await findProvider(login);
  const { config, host } = provider;
  let answer: Awaited<ReturnType<typeof oidc.refreshTokenGrant>>;
  try {
    answer = await oidc.refreshTokenGrant(config, refreshToken);
  } catch (thrown) {
    if (isSpent(thrown)) return refused(place, refreshToken, host);
    throw providerFault(host, thrown, [refreshToken]);
  }
  const next = { ...login, refreshToken: answer.refresh_token ?? refreshToken };
  if (next.refreshToken !== refreshToken) writeLogin(place, next);
  const { id_token: idToken } = answer;
  if (idToken === undefined) {
    spend(place, next);
    throw over(place, `${host} renews no ID tokens`);
  }
  const subject = subjectOf(login.idToken);
  await checkIdToken(idToken, provider, providerKeys(provider), subject === undefined ? {} : { subject });
  writeLogin(place, { ...next, idToken });
  return idToken;
}

/** A process that this one can't see may have been faster all the same: then its tokens are there. */
function refused(place: LoginPlace, refreshToken: string, host: string): string {
  const login = kept(place);
  if (login.refreshToken !== refreshToken && leftMs(login.idToken) > 0) return login.idToken;
  spend(place, login);
  throw over(place, `${host} takes its refresh token no more`);
}

/** Forgets the refresh token: it is dead, and the ID token may live on for a while. */
function spend(place: LoginPlace, login: ProviderLogin): void {
  const { refreshToken, ...left } = login;
  if (refreshToken !== undefined) writeLogin(place, left);
}

const endOf = (idToken: string): string => new Date((timesOf(idToken).expires ?? 0) * 1000).toISOString();

function over({ space }: LoginPlace, why: string): CotalError {
  return new CotalError(ErrorCode.Unauthenticated, `the sign-in to ${space} is over: ${why}`, {
    outcome: Outcome.NotExecuted,
    next: "sign in again: cotal login",
  });
}
