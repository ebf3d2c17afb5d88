/**
 * Opening a chat session (§10).
 *
 * In order: parent · lists and size · room · holder row `reserved` · slot · holder row `provisioning` ·
 * session row `pending` · lifecycle and root credential · session row `active` · holder row `active`.
 *
 * Invariants
 * 1. Every step is a create or a pinned compare-and-set that a retry with the same holder hash finds done
 *    and passes: a crash anywhere converges on the same session.
 * 2. Actor, UID and end are drawn once, with the holder row; a retry that asks for something else is a
 *    conflict, and a retired hash is refused for ever.
 * 3. What is refused before the holder row is created has written nothing.
 */
import { type Row, createOrRead } from "../../../../shared/ledger/store.ts";
import { canonicalDigest } from "../../../../shared/protocol/base/canonical.ts";
import { CotalError, ErrorCode, Outcome, badRequest } from "../../../../shared/protocol/base/errors.ts";
import { MAX_NAME_LENGTH } from "../../../../shared/protocol/base/grammar.ts";
import { drawLifecycleUid, encodeToken } from "../../../../shared/protocol/base/principals.ts";
import { checkName } from "../../../../shared/protocol/chat/presence.ts";
import {
  type ChatHolderRow,
  type ChatSession,
  ChatSessionRow,
  chatKey,
} from "../../../../shared/protocol/ledger/chat-rows.ts";
import { beyond, normalised } from "../envelope.ts";
import { demandPlane, refusal, settled } from "../parts.ts";
import { activateSession } from "./lifecycle.ts";
import { type ChatParent, demandParent, samePin } from "./parent.ts";
import {
  type ChatParts,
  type HolderName,
  MAX_SESSION_SECONDS,
  actorOf,
  advanceHolder,
  endHolder,
  moveSession,
  readHolder,
  readSession,
} from "./parts.ts";
import { demandRoom, takeSlot } from "./quota.ts";
import { endAgain } from "./retire.ts";

/** What is left out is the parent's, and the longest life. */
export type OpenChat = HolderName & {
  readonly name?: string | undefined;
  readonly allowSubscribe?: readonly string[] | undefined;
  readonly allowPublish?: readonly string[] | undefined;
  readonly lifeSeconds?: number | undefined;
};

/** Throws with an outcome: `unknown` only where a retry with the same hash has to tell. */
export async function openChat(parts: ChatParts, asked: OpenChat): Promise<ChatSession> {
  const progress = { wrote: false };
  try {
    return await settled(parts, () => openOnce(parts, asked, progress));
  } catch (thrown) {
    throw progress.wrote ? honest(thrown) : thrown;
  }
}

/** Codes of a refusal that is the last word, whatever was written on the way to it. */
const FINAL: ReadonlySet<ErrorCode> = new Set([
  ErrorCode.PermissionDenied,
  ErrorCode.FailedPrecondition,
  ErrorCode.ResourceExhausted,
  ErrorCode.Expired,
]);

function honest(thrown: unknown): unknown {
  if (!(thrown instanceof CotalError) || FINAL.has(thrown.code)) return thrown;
  const { code, message, details } = thrown;
  const next = "ask again with the same holder hash: it goes on where this one stopped";
  return new CotalError(code, message, { outcome: Outcome.Unknown, next, details, cause: thrown });
}

async function openOnce(parts: ChatParts, asked: OpenChat, progress: { wrote: boolean }): Promise<ChatSession> {
  await demandPlane(parts);
  const requestDigest = digestOfRequest(asked);
  const found = await readHolder(parts, asked);
  if (found !== undefined) demandOpen(parts, found.value, requestDigest);
  const parent = await demandParent(parts, asked.owner);
  const holder = found ?? (await reserve(parts, asked, requestDigest, parent, progress));
  progress.wrote = true;
  const kept = await readSession(parts, holder.value.lifecycleUid);
  if (kept !== undefined) demandPinned(holder.value, kept.value, parent);
  if (holder.value.state === "active" && kept !== undefined) return kept.value;
  const provisioning = holder.value.state === "reserved" ? await provision(parts, holder) : holder;
  const session = kept ?? (await pend(parts, asked, provisioning.value, parent));
  await activateSession(parts, session.value);
  if (session.value.state === "pending") await moveSession(parts, session, "active");
  await advanceHolder(parts, provisioning, "active");
  return { ...session.value, state: "active" };
}

function digestOfRequest(asked: OpenChat): string {
  const { owner, holderHash, name = null, allowSubscribe = null, allowPublish = null, lifeSeconds = null } = asked;
  return canonicalDigest({ owner, holderHash, name, allowSubscribe, allowPublish, lifeSeconds });
}

function demandOpen({ now }: ChatParts, holder: ChatHolderRow, requestDigest: string): void {
  const another = "draw a new holder secret and open with that";
  if (holder.state === "retired") {
    throw refusal(ErrorCode.FailedPrecondition, "the session of this holder hash was retired", another);
  }
  if (holder.requestDigest !== requestDigest) {
    throw refusal(ErrorCode.AlreadyExists, "this holder hash opened a session with other arguments", another);
  }
  if (holder.exp * 1000 <= now()) {
    throw refusal(ErrorCode.Expired, "the session of this holder hash has ended", another);
  }
}

function demandPinned(holder: ChatHolderRow, session: ChatSession, parent: ChatParent): void {
  if (session.state !== "retired" && samePin(session.parent, parent.pin)) return;
  throw new CotalError(ErrorCode.PermissionDenied, "the grant that this session was opened under has changed", {
    outcome: holder.state === "active" ? Outcome.Executed : Outcome.NotExecuted,
    next: "retire it and open a new one",
  });
}

/** The holder row, with everything that is drawn once. */
async function reserve(
  parts: ChatParts,
  asked: OpenChat,
  requestDigest: string,
  parent: ChatParent,
  progress: { wrote: boolean },
): Promise<Row<ChatHolderRow>> {
  const { owner, holderHash, lifeSeconds = MAX_SESSION_SECONDS } = asked;
  if (lifeSeconds > MAX_SESSION_SECONDS) {
    throw badRequest("a chat session lives for 8 hours at most", "ask for less, and open another one after it");
  }
  const at = parts.now();
  const value: ChatHolderRow = {
    v: 1,
    state: "reserved",
    owner,
    holderHash,
    actor: `chat_${encodeToken(parts.random(17), 26)}`,
    lifecycleUid: drawLifecycleUid(parts.random),
    requestDigest,
    exp: Math.floor(at / 1000) + lifeSeconds,
    at,
  };
  await parts.tryMint(actorOf(sessionOf(asked, value, parent)));
  await demandRoom(parts, asked);
  progress.wrote = true;
  return { value, revision: await parts.ledger.create("auth", chatKey.holder(value), value) };
}

/** The slot, and with it the right to write a lifecycle. Without either the hash is of no use any more. */
async function provision(parts: ChatParts, holder: Row<ChatHolderRow>): Promise<Row<ChatHolderRow>> {
  try {
    await takeSlot(parts, holder.value);
  } catch (thrown) {
    const isFull = thrown instanceof CotalError && thrown.code === ErrorCode.ResourceExhausted;
    if (isFull) await endHolder(parts, holder, "fenced");
    throw thrown;
  }
  try {
    return await advanceHolder(parts, holder, "provisioning");
  } catch (thrown) {
    // Whoever ended it in between may not have seen the slot.
    await endAgain(parts, holder.value);
    throw thrown;
  }
}

async function pend(
  parts: ChatParts,
  asked: OpenChat,
  holder: ChatHolderRow,
  parent: ChatParent,
): Promise<Row<ChatSession>> {
  const key = chatKey.session(holder.lifecycleUid);
  const session = sessionOf(asked, holder, parent);
  const { value, revision } = await createOrRead(parts.ledger, "auth", key, ChatSessionRow, session);
  if (value.state === "pending" || value.state === "active") return { value, revision };
  throw refusal(ErrorCode.FailedPrecondition, "the session was retired while it opened", "open a new one");
}

/** Throws unless the lists lie within the parent's (§9). */
function sessionOf(asked: OpenChat, holder: ChatHolderRow, { grant, pin }: ChatParent): ChatSession {
  const { owner, holderHash, actor, lifecycleUid, exp, at } = holder;
  const { allowSubscribe, allowPublish } = normalised({
    allowSubscribe: asked.allowSubscribe ?? grant.allowSubscribe,
    allowPublish: asked.allowPublish ?? grant.allowPublish,
    capabilities: [],
  });
  const excess = beyond(grant, { allowSubscribe, allowPublish, capabilities: [] });
  if (excess !== undefined) {
    throw refusal(
      ErrorCode.PermissionDenied,
      `the session would reach past the grant of ${pin.actor}: ${excess}`,
      "ask for lists within it",
    );
  }
  const name = asked.name === undefined ? nameBeside(grant.name) : checkName(asked.name);
  return {
    v: 1,
    state: "pending",
    owner,
    actor,
    lifecycleUid,
    holderHash,
    name,
    allowSubscribe,
    allowPublish,
    parent: pin,
    exp,
    at,
  };
}

/** Another name than the person's own: a mention of one of two that share a name reaches neither. */
function nameBeside(name: string): string {
  const mark = " (chat)";
  const room = MAX_NAME_LENGTH - mark.length;
  return `${name.slice(0, room).toWellFormed()}${mark}`;
}
