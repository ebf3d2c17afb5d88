/**
 * `WHO`: an `owner.actor`, or a display name of exactly one live instance (issue contract).
 *
 * Invariants
 * 1. Two live matches refuse and list both: a message to the wrong one can't be taken back.
 * 2. "Nobody has that name" is said only after a whole roster was read (field case 16); presence
 *    decides nothing else.
 */
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";
import { type Principal, parseDotForm } from "../shared/protocol/base/principals.ts";
import { oneLine } from "./text.ts";

/** What a roster says of one instance, as far as names go. */
export type Named = { readonly id: string; readonly name: string; readonly live: boolean };

/** The principal meant; `roster` is asked only if the text is no principal. */
export async function resolveWho(text: string, roster: () => Promise<readonly Named[]>): Promise<Principal> {
  const direct = parseDotForm(text);
  if (direct !== undefined) return direct;
  const matches = (await roster()).filter(({ live, name }) => live && name === text);
  const ids = [...new Set(matches.map(({ id }) => id))].toSorted();
  const [id] = ids;
  const found = id === undefined ? undefined : parseDotForm(id);
  if (found !== undefined && ids.length === 1) return found;
  throw ids.length > 1 ? ambiguous(text, ids) : unknown(text);
}

function ambiguous(text: string, ids: readonly string[]): CotalError {
  return new CotalError(ErrorCode.Conflict, `${ids.length} live instances are called ${oneLine(text)}: ${ids.join(", ")}`, {
    outcome: Outcome.NotExecuted,
    next: "name the one you mean by its owner.actor",
    details: [{ kind: "ai.cotal.who.matches", ids }],
  });
}

function unknown(text: string): CotalError {
  return new CotalError(ErrorCode.NotFound, `nobody who is live is called ${oneLine(text)}`, {
    outcome: Outcome.NotExecuted,
    next: "write owner.actor, which works for whoever is away too; cotal who lists who is live",
  });
}

