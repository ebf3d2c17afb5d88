/**
 * Who a command acts as: a credential file, a kept credential of this state, a name of whoever has
 * signed in, or a name in an open space.
 *
 * Invariants
 * 1. `--as` mints once, at first use, and renews what ends soon, only where the operator's state is
 *    at hand.
 * 2. In an open space the lifecycle uid is drawn once and kept: without it an inbox would not
 *    survive the command (decision H37).
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Credentials } from "../shared/client/identity.ts";
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";
import { OPEN_OWNER, principal } from "../shared/protocol/base/principals.ts";
import type { AskedView } from "../shared/protocol/endpoint/exchange-shapes.ts";
import { parseCreds } from "../shared/trust/creds.ts";
import { keptUid, trustPaths } from "../shared/trust/folder.ts";
import { UsageError, argument } from "./exit.ts";
import { keeping } from "./keeping.ts";
import { EVERY_CHANNEL, LOCAL_OWNER, mintInto, renewInto } from "./minting.ts";
import { assertKnown, operatorCredentials, withRail } from "./operator.ts";
import type { Output } from "./output.ts";
import { OWN_ACTOR, isUserSpace, userCredentials } from "./signin.ts";
import type { CommonOptions, Target } from "./target.ts";

/** The credentials that the options name; `undefined` if they name none. Who signs in may ask for a view. */
export async function namedCredentials(
  target: Target,
  options: CommonOptions,
  out: Output,
  asks?: AskedView,
): Promise<Credentials | undefined> {
  if (options.creds !== undefined && options.as !== undefined) {
    throw new UsageError("--creds and --as both say who acts", { next: "use one of them" });
  }
  if (options.creds !== undefined) return { kind: "static", file: options.creds };
  if (options.as === undefined) return undefined;
  const actor = argument(() => principal(OPEN_OWNER, options.as ?? "")).actor;
  if (isUserSpace(target)) return userCredentials(target, actor, asks);
  if (isOpen(target)) return openCredentials(target, actor);
  return { kind: "static", file: await keptCredential(target, actor, out) };
}

/** As `namedCredentials`, for a command that acts as somebody. */
export async function memberCredentials(target: Target, options: CommonOptions, out: Output): Promise<Credentials> {
  const named = await namedCredentials(target, options, out);
  if (named !== undefined) return named;
  if (isUserSpace(target)) return userCredentials(target, OWN_ACTOR);
  assertKnown(target);
  throw new UsageError("it is not said who acts", {
    next: "add --as ACTOR (any name, on the machine that runs the space) or --creds FILE",
  });
}

/**
 * Who asks for what an operator does: the credentials that are named, else the operator's of this state. Where
 * these are not at hand it is whoever has signed in, as `asks` says; without it nobody else may.
 */
export async function askingCredentials(
  target: Target,
  options: CommonOptions,
  out: Output,
  asks?: AskedView,
): Promise<Credentials> {
  const named = await namedCredentials(target, options, out, asks);
  if (named !== undefined) return named;
  const hasOperator = existsSync(trustPaths(target.state).operatorCreds(target.space));
  if (asks !== undefined && !hasOperator && isUserSpace(target)) return userCredentials(target, OWN_ACTOR, asks);
  return operatorCredentials(target);
}

/** A link without a kept state behind it leads to a space that anybody may enter, or to a refusal. */
function isOpen(target: Target): boolean {
  if (target.auth !== undefined) return target.auth === "open";
  return !existsSync(trustPaths(target.state).operatorCreds(target.space));
}

function openCredentials(target: Target, actor: string): Credentials {
  const file = join(trustPaths(target.state).agents(target.space), `${actor}.uid`);
  const uid = existsSync(file) ? keptUid(file) : keeping(target, () => keptUid(file));
  return { kind: "open", actor, uid, ...(target.secret === undefined ? {} : { secret: target.secret }) };
}

async function keptCredential(target: Target, actor: string, out: Output): Promise<string> {
  const file = trustPaths(target.state).agentCreds(target.space, actor);
  const hasOperator = existsSync(trustPaths(target.state).operatorCreds(target.space));
  if (existsSync(file)) {
    if (hasOperator) await renewIfSoon(target, file, Date.now() / 1000);
    return file;
  }
  if (target.auth === undefined && !hasOperator) {
    throw new CotalError(ErrorCode.FailedPrecondition, `there is no credential of ${actor} in ${target.state}`, {
      outcome: Outcome.NotExecuted,
      next: "ask the operator for one (cotal mint) and name it with --creds FILE",
    });
  }
  const minted = await withRail(target, operatorCredentials(target), (rail) =>
    mintInto(rail, target, file, {
      profile: "agent",
      owner: LOCAL_OWNER,
      actor,
      name: actor,
      allowSubscribe: [...EVERY_CHANNEL],
      allowPublish: [...EVERY_CHANNEL],
    }),
  );
  out.note(`minted ${minted.principal} for ${actor}; it is kept in ${file}`);
  return file;
}

/** Time left at which a kept credential is renewed. */
const RENEW_SECONDS = 7 * 86_400;

/** Renews a kept credential that ends soon; one that can't be renewed is used as long as it lasts. */
export async function renewIfSoon(target: Target, file: string, nowSeconds: number): Promise<void> {
  const text = readFileSync(file, "utf8");
  const expires = parseCreds(text).view.expires ?? Number.POSITIVE_INFINITY;
  if (expires - nowSeconds > RENEW_SECONDS) return;
  try {
    await withRail(target, operatorCredentials(target), (rail) => renewInto(rail, target, file, text));
  } catch (thrown) {
    if (expires <= nowSeconds) throw thrown;
  }
}
