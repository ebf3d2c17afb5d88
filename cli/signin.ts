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
import { DevToken, ExchangePath, FaceFile } from "../shared/protocol/endpoint/exchange-shapes.ts";
import { trustPaths } from "../shared/trust/folder.ts";
import { planePaths } from "../launcher/state-folder.ts";
import { type Login, readLogin } from "./login-file.ts";
import type { Target } from "./target.ts";

/** The actor of a person who names none (§10, "the human's own `cli` grant"). */
export const OWN_ACTOR = "cli";

const ASK_MS = 10_000;

type Place = Pick<Target, "state" | "space">;

/** Does one sign in to this space? */
export function isUserSpace(at: Place): boolean {
  return existsSync(trustPaths(at.state).sentinel(at.space)) || readLogin(at) !== undefined;
}

/** Credentials of an actor of whoever has signed in. */
export function userCredentials(at: Place, actor: string): UserCredentials {
  return {
    kind: "user",
    space: at.space,
    actor,
    exchange: () => exchangeOf(at, loginOf(at)),
    idToken: () => idTokenOf(at, loginOf(at)),
  };
}

/** One exchange, without a connection: for who wants to know who they are. */
export async function exchangeOnce(at: Place, actor: string, login = loginOf(at)): Promise<Exchanged> {
  const idToken = await idTokenOf(at, login);
  const { space } = at;
  return askExchange(exchangeOf(at, login), { space, idToken, actor }, AbortSignal.timeout(ASK_MS));
}

/** The sign-in that counts; on the machine of a space its one person need not sign in first. */
export function loginOf(at: Place): Exclude<Login, { kind: "out" }> {
  const login = readLogin(at) ?? { v: 1, kind: "dev" };
  if (login.kind !== "out") return login;
  throw new CotalError(ErrorCode.Unauthenticated, `nobody is signed in to ${at.space}`, {
    outcome: Outcome.NotExecuted,
    next: "sign in: cotal login",
  });
}

function exchangeOf(at: Place, login: Login): ExchangeAt {
  if (login.kind === "token" && login.exchange !== undefined) return { url: login.exchange };
  return localFace(at);
}

/** This machine's exchange of the space. */
function localFace({ state, space }: Place): ExchangeAt {
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
export async function reachExchange(at: Place): Promise<void> {
  const login = readLogin(at);
  if (login?.kind === "token" && login.exchange !== undefined) return;
  const face = localFace(at);
  const { status, retryAfter, body } = await askDevToken(face);
  if (status !== 200 && status !== 404) throw refusalOf(status, retryAfter, body, [face.capability]);
}

function askDevToken(face: ExchangeAt) {
  return post(face, ExchangePath.DevToken, {}, [face.capability], AbortSignal.timeout(ASK_MS));
}

async function idTokenOf(at: Place, login: Exclude<Login, { kind: "out" }>): Promise<string> {
  if (login.kind === "token") return liveToken(login.idToken);
  const face = localFace(at);
  const { status, retryAfter, body } = await askDevToken(face);
  if (status === 404) {
    throw new CotalError(ErrorCode.Unauthenticated, `space ${at.space} has no development issuer`, {
      outcome: Outcome.NotExecuted,
      next: "sign in with a token of its identity provider: cotal login --token-file FILE",
    });
  }
  const parsed = DevToken.safeParse(body);
  if (status !== 200 || !parsed.success) throw refusalOf(status, retryAfter, body, [face.capability]);
  return parsed.data.idToken;
}

/** A token whose end is known is not presented after it. */
function liveToken(idToken: string): string {
  const expires = expiryOf(idToken);
  if (expires === undefined || expires * 1000 > Date.now()) return idToken;
  throw new CotalError(ErrorCode.Unauthenticated, `the sign-in ended at ${new Date(expires * 1000).toISOString()}`, {
    outcome: Outcome.NotExecuted,
    next: "sign in again: cotal login",
  });
}

/** Unix seconds at which a token says it ends. */
export function expiryOf(idToken: string): number | undefined {
  try {
    const claims: unknown = JSON.parse(Buffer.from(idToken.split(".")[1] ?? "", "base64url").toString("utf8"));
    const exp: unknown = typeof claims === "object" && claims !== null ? Reflect.get(claims, "exp") : undefined;
    return typeof exp === "number" && Number.isFinite(exp) ? exp : undefined;
  } catch {
    return undefined;
  }
}
