/** What chat sessions are given, their numbers (§10), and how a row of theirs is read and moved. */
import type { Row } from "../../../../shared/ledger/store.ts";
import { readRow } from "../../../../shared/ledger/store.ts";
import { CotalError, ErrorCode, Outcome } from "../../../../shared/protocol/base/errors.ts";
import { type Principal, dotForm, principal } from "../../../../shared/protocol/base/principals.ts";
import type { ActorRow } from "../../../../shared/protocol/ledger/actor-rows.ts";
import {
  type ChatEnd,
  ChatHolderRow,
  type ChatSession,
  ChatSessionRow,
  END_EDGES,
  HOLDER_EDGES,
  SESSION_EDGES,
  chatKey,
  mayMove,
} from "../../../../shared/protocol/ledger/chat-rows.ts";
import type { LedgerPage, PlaneParts } from "../parts.ts";

export type ChatParts = PlaneParts & {
  /** Sessions that one owner may have at once. */
  readonly slotsPerOwner: number;
  /** Holder rows in the order of their last change, at most so many, from this sequence on. */
  readonly holderPage: (fromSeq: number, limit: number) => Promise<LedgerPage>;
};

export type LedgerParts = Pick<PlaneParts, "ledger">;

export const MAX_SESSION_SECONDS = 8 * 3600;

/** Which session: an owner, and the hash of the secret that keeps it. */
export type HolderName = Pick<ChatHolderRow, "owner" | "holderHash">;

export const principalOf = ({ owner, actor }: Principal): Principal => principal(owner, actor);

export async function readHolder({ ledger }: LedgerParts, name: HolderName): Promise<Row<ChatHolderRow> | undefined> {
  const key = chatKey.holder(name);
  const found = await readRow(ledger, "auth", key, ChatHolderRow);
  if (found === undefined || chatKey.holder(found.value) === key) return found;
  throw foreign(key);
}

/** A session's row as long as it is one; a compacted one holds nothing any more. */
export async function readSession({ ledger }: LedgerParts, uid: string): Promise<Row<ChatSession> | undefined> {
  const key = chatKey.session(uid);
  const found = await readRow(ledger, "auth", key, ChatSessionRow);
  if (found === undefined) return undefined;
  const { value, revision } = found;
  if (value.lifecycleUid !== uid) throw foreign(key);
  return value.state === "compacted" ? undefined : { value, revision };
}

function foreign(key: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the ledger row ${key} names another one`, {
    outcome: Outcome.NotExecuted,
    next: "nothing is decided on it; compare it with a backup, or restore the space",
  });
}

/** One edge of a holder row that lives on. */
export async function advanceHolder(
  { ledger, now }: Pick<ChatParts, "ledger" | "now">,
  { value, revision }: Row<ChatHolderRow>,
  state: "provisioning" | "active",
): Promise<Row<ChatHolderRow>> {
  if (value.state === "retired" || !mayMove(HOLDER_EDGES, value.state, state)) throw noEdge();
  const next: ChatHolderRow = { ...value, state, at: now() };
  return { value: next, revision: await ledger.cas("auth", chatKey.holder(value), next, revision) };
}

/** One edge of a holder row's end. From `fenced` on nobody is let in by it. */
export async function endHolder(
  { ledger, now }: Pick<ChatParts, "ledger" | "now">,
  { value, revision }: Row<ChatHolderRow>,
  end: ChatEnd,
): Promise<Row<ChatHolderRow>> {
  const isLive = value.state !== "retired";
  if (isLive && !mayMove(HOLDER_EDGES, value.state, "retired")) throw noEdge();
  if (!mayMove(END_EDGES, isLive ? "absent" : value.end, end)) throw noEdge();
  const next: ChatHolderRow = { ...value, state: "retired", end, at: now() };
  return { value: next, revision: await ledger.cas("auth", chatKey.holder(value), next, revision) };
}

export async function moveSession(
  { ledger, now }: Pick<ChatParts, "ledger" | "now">,
  { value, revision }: Row<ChatSession>,
  state: "active" | "retired" | "compacted",
): Promise<void> {
  if (!mayMove(SESSION_EDGES, value.state, state)) throw noEdge();
  const { lifecycleUid } = value;
  const next: ChatSessionRow =
    state === "compacted" ? { v: 1, state, lifecycleUid, at: now() } : { ...value, state, at: now() };
  await ledger.cas("auth", chatKey.session(lifecycleUid), next, revision);
}

function noEdge(): CotalError {
  return new CotalError(ErrorCode.Internal, "the state machine has no such edge");
}

/** The session as an actor: its lists and nothing else, bounded by its parent as every child is. */
export function actorOf(session: ChatSession): ActorRow {
  const { owner, actor, lifecycleUid, name, allowSubscribe, allowPublish, parent, at } = session;
  return {
    v: 1,
    owner,
    actor,
    lifecycleUid,
    state: "active",
    kind: "interactive",
    name,
    allowSubscribe,
    allowPublish,
    capabilities: [],
    parent: { owner, actor: parent.actor, lifecycleUid: parent.lifecycleUid },
    at,
  };
}

export const sessionName = (row: Principal): string => `the chat session ${dotForm(row)}`;
