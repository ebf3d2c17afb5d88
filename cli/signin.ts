/**
 * Acting as somebody who has signed in (§10): which spaces ask for it, where their exchange is, and with
 * which identity token.
 *
 * Invariant: the face file and the sign-in are read again at each exchange: an auth service that was
 * started again is somewhere else, with another capability.
 */
import { existsSync, readFileSync } from "node:fs";
import {
  AWAY_DETAIL,
  type ExchangeAt,
  type Exchanged,
  askExchange,
  post,
  refusalOf,
} from "../shared/client/exchange.ts";
import type { UserCredentials } from "../shared/client/identity.ts";
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";
import { type AskedView, DevToken, ExchangePath, FaceFile } from "../shared/protocol/endpoint/exchange-shapes.ts";
import type { AuthMode } from "../shared/protocol/chat/space-settings.ts";
import { trustPaths } from "../shared/trust/folder.ts";
import { keptAuthMode } from "../shared/trust/space-file.ts";
import { planePaths } from "../launcher/state-folder.ts";
import { type Login, type LoginPlace, type SignedIn, exchangeUrl, hasLogin, readLogin, timesOf } from "./login-file.ts";

/** The actor of a person who names none (§10, "the human's own `cli` grant"). */
export const OWN_ACTOR = "cli";

const ASK_MS = 10_000;

/** Does one sign in to this space? */
export function isUserSpace(at: LoginPlace): boolean {
  return isOwnSpace(at) || hasLogin(at);
}

/** Is it a space of this state's own broker? */
export function isOwnSpace({ state, space }: LoginPlace): boolean {
  return existsSync(trustPaths(state).sentinel(space));
}

/** Credentials of an actor of whoever has signed in; as the view that is asked for, if one is (§10). */
export function userCredentials(at: LoginPlace, actor: string, asks: AskedView = {}): UserCredentials {
  return {
    kind: "user",
    space: at.space,
    actor,
    exchange: () => exchangeOf(at, loginOf(at)),
    idToken: () => idTokenOf(at, loginOf(at)),
    asks,
  };
}

/** One exchange, without a connection: for who wants to know who they are. */
export async function exchangeOnce(at: LoginPlace, actor: string, login = loginOf(at)): Promise<Exchanged> {
  const idToken = await idTokenOf(at, login);
  const { space } = at;
  return askExchange(exchangeOf(at, login), { space, idToken, actor }, AbortSignal.timeout(ASK_MS));
}

/** The sign-in that counts; on the machine of a space its one person need not sign in first. */
export function loginOf(at: LoginPlace): SignedIn {
  const login = readLogin(at) ?? { v: 1, kind: "dev" };
  if (login.kind !== "out") return login;
  throw new CotalError(ErrorCode.Unauthenticated, `nobody is signed in to ${at.space}`, {
    outcome: Outcome.NotExecuted,
    next: "sign in: cotal login",
  });
}

function exchangeOf(at: LoginPlace, login: Login): ExchangeAt {
  return exchangeAt(at, exchangeUrl(login));
}

/** The exchange at that address, or this machine's. */
export function exchangeAt(at: LoginPlace, url: string | undefined): ExchangeAt {
  return url === undefined ? localFace(at) : { url };
}

/** This machine's exchange of the space. */
function localFace({ state, space }: LoginPlace): ExchangeAt {
  const path = planePaths(state).face(space);
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (cause) {
    throw new CotalError(ErrorCode.Unavailable, `there is no exchange of space ${space} on this machine`, {
      outcome: Outcome.NotExecuted,
      next: "start the space with cotal up; for somebody else's space sign in with cotal login --exchange URL",
      details: [{ kind: AWAY_DETAIL }],
      cause,
    });
  }
  try {
    const { url, capability } = FaceFile.parse(JSON.parse(text));
    return { url, capability };
  } catch {
    // Without the cause: it may quote the capability.
    throw new CotalError(ErrorCode.FailedPrecondition, `${path} does not name an exchange`, {
      outcome: Outcome.NotExecuted,
      next: "start the space again: cotal down, then cotal up",
    });
  }
}

/** Proves that this machine's exchange answers; a space of somebody else's exchange is not asked. */
export async function reachExchange(at: LoginPlace): Promise<void> {
  if (exchangeUrl(readLogin(at)) !== undefined) return;
  const face = localFace(at);
  const { status, retryAfter, body } = await askDevToken(face);
  if (status !== 200 && status !== 404) throw refusalOf(status, retryAfter, body, [face.capability]);
}

function askDevToken(face: ExchangeAt) {
  return post(face, ExchangePath.DevToken, {}, [face.capability], AbortSignal.timeout(ASK_MS));
}

async function idTokenOf(at: LoginPlace, login: SignedIn): Promise<string> {
  if (login.kind === "token") return liveToken(login.idToken);
  if (login.kind === "provider") {
    // Few commands need to renew, and none should load what it takes before it does.
    const { freshIdToken } = await import("./oidc/renew.ts");
    return freshIdToken(at, login);
  }
  const face = localFace(at);
  const { status, retryAfter, body } = await askDevToken(face);
  if (status === 404) {
    throw new CotalError(ErrorCode.Unauthenticated, `space ${at.space} has no development issuer`, {
      outcome: Outcome.NotExecuted,
      next: "sign in at its identity provider: cotal login",
    });
  }
  const parsed = DevToken.safeParse(body);
  if (status !== 200 || !parsed.success) throw refusalOf(status, retryAfter, body, [face.capability]);
  return parsed.data.idToken;
}

/** A token whose end is known is not presented after it. */
function liveToken(idToken: string): string {
  const { expires } = timesOf(idToken);
  if (expires === undefined || expires * 1000 > Date.now()) return idToken;
  throw new CotalError(ErrorCode.Unauthenticated, `the sign-in ended at ${new Date(expires * 1000).toISOString()}`, {
    outcome: Outcome.NotExecuted,
    next: "sign in again: cotal login",
  });
}

export function noSignIn({ state, space }: LoginPlace): CotalError {
  const isStatic = keptAuthMode(state, space) === "static";
  const [message, next] = isStatic
    ? [`nobody signs in to space ${space}: it has credential files`, "cotal mint makes one, cotal deprovision ends one"]
    : [
        `nobody signs in to space ${space} from this state folder`,
        "name the exchange of somebody else's space with --exchange URL, or make one of your own: cotal up --auth user",
      ];
  return new CotalError(ErrorCode.FailedPrecondition, message, { outcome: Outcome.NotExecuted, next });
}

/** For what there is only where people sign in; a space that is known to be another kind is not asked. */
export function demandSignIn(at: LoginPlace & { readonly auth?: AuthMode }): void {
  if (!isUserSpace(at) && (at.auth === "open" || keptAuthMode(at.state, at.space) === "static")) throw noSignIn(at);
}
