/** Chat sessions, put together: what the routes ask, what the sweep does. */
import { ErrorCode } from "../../../../shared/protocol/base/errors.ts";
import type { ChatHolderRow, ChatSession } from "../../../../shared/protocol/ledger/chat-rows.ts";
import { refusal } from "../parts.ts";
import { createTurns } from "../../../../shared/ledger/turns.ts";
import { type ChatBearer, type ChatSigner, chatBearer } from "./bearer.ts";
import { type OpenChat, openChat } from "./open.ts";
import { type ChatParts, type HolderName, readHolder } from "./parts.ts";
import { type RetiredChat, retireChat } from "./retire.ts";

export type Chat = {
  readonly open: (asked: OpenChat) => Promise<ChatSession>;
  /** Throws `not-found` where the hash never opened anything. */
  readonly holder: (name: HolderName) => Promise<ChatHolderRow>;
  readonly bearer: (holder: ChatHolderRow, proofExpires: number) => Promise<ChatBearer>;
  readonly retire: (name: HolderName) => Promise<RetiredChat>;
};

/** Here, or where the plane is. */
function openWhere(parts: ChatParts, asked: OpenChat): Promise<ChatSession> {
  const plane = parts.holdsPlane() ? undefined : parts.plane();
  return plane === undefined ? openChat(parts, asked) : plane.openChat(asked);
}

export function createChat(parts: ChatParts, signer: ChatSigner): Chat {
  const inTurn = createTurns();
  return {
    // One owner's openings would only take each other's slot.
    open: (asked) => inTurn(asked.owner, () => openWhere(parts, asked)),
    holder: async (name) => {
      const found = await readHolder(parts, name);
      if (found !== undefined) return found.value;
      throw refusal(ErrorCode.NotFound, "no chat session was opened with this secret", "open one");
    },
    bearer: (holder, proofExpires) => chatBearer(parts, signer, holder, proofExpires),
    retire: (name) => retireChat(parts, name),
  };
}
