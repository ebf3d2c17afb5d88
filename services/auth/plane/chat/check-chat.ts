/**
 * What a chat session's connect rests on (§10), beside what every connect does: its rows, and its parent.
 *
 * Invariant: a row comes back only for an active session of this very lifecycle, unexpired, under an
 * active holder row, with the parent's grant exactly as it was pinned, and for a bearer that asks for
 * nothing but to be an agent.
 */
import type { Row } from "../../../../shared/ledger/store.ts";
import type { CotalError } from "../../../../shared/protocol/base/errors.ts";
import { ErrorCode } from "../../../../shared/protocol/base/errors.ts";
import type { ActorRow } from "../../../../shared/protocol/ledger/actor-rows.ts";
import type { BearerAct } from "../authority-type.ts";
import { type PlaneParts, refusal } from "../parts.ts";
import { parentNow, samePin } from "./parent.ts";
import { actorOf, readHolder, readSession, sessionName } from "./parts.ts";

/** The identity that every bearer carries; whatever else one carries is a view, a scope, or a view's claim. */
const IDENTITY: ReadonlySet<string> = new Set(["owner", "actor", "lifecycleUid", "credentialId", "name"]);

/** The session as the actor that it is. Throws a refusal for anything but a clear yes. */
export async function readChatGrant(
  parts: Pick<PlaneParts, "ledger" | "now">,
  act: BearerAct,
): Promise<Row<ActorRow> | undefined> {
  const more = Object.entries(act).find(([claim, value]) => !IDENTITY.has(claim) && value !== undefined);
  if (more !== undefined) throw no(act, `its bearer carries ${more[0]}, and a chat session has no view and no scope`);
  const [found, parent] = await Promise.all([readSession(parts, act.lifecycleUid), parentNow(parts, act.owner)]);
  if (found === undefined) return undefined;
  const { value: session, revision } = found;
  if (session.owner !== act.owner || session.actor !== act.actor) throw no(act, "its lifecycle is another session's");
  if (session.state !== "active") throw no(act, `its row is ${session.state}`);
  if (session.exp * 1000 <= parts.now()) {
    throw refusal(ErrorCode.Expired, `${sessionName(act)} has ended`, "open a new chat session");
  }
  const holder = await readHolder(parts, session);
  if (holder?.value.state !== "active" || holder.value.lifecycleUid !== session.lifecycleUid) {
    throw no(act, `its holder row is ${holder?.value.state ?? "missing"}`);
  }
  if (!samePin(session.parent, parent?.pin)) throw no(act, "the grant it was opened under has changed");
  return { value: actorOf(session), revision };
}

function no(act: BearerAct, why: string): CotalError {
  return refusal(ErrorCode.PermissionDenied, `${sessionName(act)} may not connect: ${why}`, "open a new chat session");
}
