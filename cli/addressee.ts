/**
 * Whom the name of a command means: `owner.actor`, an actor of one's own, or somebody who is here (§2, §6).
 *
 * A display name is whatever its bearer calls itself, so it must not lead what is meant for an agent of one's own to a
 * stranger; and the roster knows nobody who is away.
 *
 * Invariants
 * 1. An actor of one's own comes first: one that is here, one whose credential this state folder keeps, or one that the
 *    actor ledger has, which only the operator's credential may ask. One that has no inbox yet is refused: nothing that
 *    is sent to it would ever be read.
 * 2. Somebody else is meant by a name only while he is here, and it is said that he is somebody else. Of those who are
 *    away none is guessed: the error says what to write.
 */
import { existsSync } from "node:fs";
import type { Session } from "../shared/client/session-types.ts";
import { isCode } from "../shared/broker/errors.ts";
import { AuthCommand, DeliveryCommand } from "../shared/grants/commands.ts";
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";
import { type Principal, dotForm, parseDotForm } from "../shared/protocol/base/principals.ts";
import { ActorListAnswer, type ShownActor } from "../shared/protocol/endpoint/auth-shapes.ts";
import { PendingAnswer } from "../shared/protocol/endpoint/proof-shapes.ts";
import { trustPaths } from "../shared/trust/folder.ts";
import { resolvedOrKept } from "./kept.ts";
import { type Rail, operatorCredentials, withRail } from "./operator.ts";
import type { Output } from "./output.ts";
import { isUserSpace } from "./signin.ts";
import type { Target } from "./target.ts";
import { oneLine } from "./text.ts";

/** Who writes, and whom it finds in the roster. */
export type Asking = { readonly me: Principal; readonly resolve: Session["resolve"] };

/** The principal that is meant; throws where nobody is, or several could be. */
export async function addressee(at: Target, session: Asking, who: string, out: Output): Promise<Principal> {
  const here = (): Promise<Principal> => session.resolve(who);
  if (parseDotForm(who) !== undefined) return here();
  if (!isUserSpace(at)) return resolvedOrKept(at, who, here);
  const found = await here().catch((thrown: unknown) => {
    if (isCode(thrown, ErrorCode.NotFound)) return undefined;
    throw thrown;
  });
  const { owner } = session.me;
  if (found?.owner === owner) return found;
  const { called, meant } = await asOperator(at, who, owner);
  if (meant !== undefined) return meant;
  if (found === undefined || called.some((one) => one.owner === owner)) throw nobody(who, owner, called);
  out.note(`${oneLine(who)} is ${dotForm(found)}, somebody else's`);
  return found;
}

/** Actors of that name, or called so, and which of one's own is meant; none where the ledger can't be asked from here. */
async function asOperator(at: Target, who: string, owner: string) {
  if (!existsSync(trustPaths(at.state).operatorCreds(at.space))) return { called: [], meant: undefined };
  return withRail(at, operatorCredentials(at), async (rail) => {
    const called = await calledSo(rail, who);
    const own = called.filter((one) => one.owner === owner);
    const meant = own.find(({ actor }) => actor === who) ?? (own.length === 1 ? own[0] : undefined);
    if (meant !== undefined && !(await hasInbox(rail, meant))) throw noInbox(meant);
    return { called, meant };
  });
}

async function calledSo({ askAuth }: Rail, who: string): Promise<readonly Principal[]> {
  const found: Principal[] = [];
  for (let cursor: number | undefined; ;) {
    const args = cursor === undefined ? {} : { cursor };
    const page = await askAuth(AuthCommand.ActorList, args, ActorListAnswer);
    found.push(...page.actors.filter((row) => isCalled(row, who)).map(({ owner, actor }) => ({ owner, actor })));
    if (page.cursor === undefined) return found;
    ({ cursor } = page);
  }
}

/** What is written to an actor before its first sign-in it never gets (§13.1). Where nobody can tell, it is sent. */
async function hasInbox({ askDelivery }: Rail, of: Principal): Promise<boolean> {
  for (let cursor: number | undefined; ;) {
    const args = { of, ...(cursor === undefined ? {} : { cursor }) };
    const page = await askDelivery(DeliveryCommand.Pending, args, PendingAnswer).catch((thrown: unknown) => {
      if (AWAY.some((code) => isCode(thrown, code))) return undefined;
      throw thrown;
    });
    if (page === undefined || page.members.length > 0) return true;
    if (page.cursor === undefined) return false;
    ({ cursor } = page);
  }
}

/** The delivery service does not answer: a direct message needs it for nothing. */
const AWAY = [ErrorCode.Unavailable, ErrorCode.DeadlineExceeded];

function noInbox(who: Principal): CotalError {
  const id = dotForm(who);
  return new CotalError(ErrorCode.FailedPrecondition, `${id} has no inbox yet, and would never get it`, {
    outcome: Outcome.NotExecuted,
    next: `let it sign in once: cotal tail --as ${who.actor}`,
  });
}

const isCalled = ({ actor, name, state }: ShownActor, who: string): boolean =>
  state === "active" && (actor === who || name === who);

/** So many are listed. */
const SHOWN = 5;

function nobody(who: string, owner: string, called: readonly Principal[]): CotalError {
  const name = JSON.stringify(who.slice(0, 128));
  const say = (code: ErrorCode, message: string, next: string): CotalError =>
    new CotalError(code, message, { outcome: Outcome.NotExecuted, next });
  const ids = called.slice(0, SHOWN).map(dotForm).join(", ");
  const meant = `write the one you mean: ${ids}${called.length > SHOWN ? `, or another (cotal actor list)` : ""}`;
  if (called.some((one) => one.owner === owner)) return say(ErrorCode.Conflict, `several are called ${name}`, meant);
  if (called.length > 0) return say(ErrorCode.NotFound, `nobody here, and no actor of yours, is called ${name}`, meant);
  return say(
    ErrorCode.NotFound,
    `nobody here is called ${name}`,
    `see who is here (cotal who); an actor of yours that is away is written ${owner}.NAME`,
  );
}
