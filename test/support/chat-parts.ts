/** What chat sessions need, over a ledger in memory: pages in the order of writes, as the broker gives them. */
import { createHash } from "node:crypto";
import type { ChatParts } from "../../services/auth/plane/chat/parts.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { chatKey } from "../../shared/protocol/ledger/chat-rows.ts";
import { NOW_MS, type TestParts, memoryParts } from "./plane-parts.ts";

export type TestChatParts = ChatParts & Pick<TestParts, "made" | "removed">;

export function memoryChatParts(ledger: LedgerStore, over: Partial<ChatParts> = {}): TestChatParts {
  return { ...memoryParts(ledger, over), slotsPerOwner: 8, holderPage: memoryHolderPage(ledger), ...over };
}

export function memoryHolderPage(ledger: Pick<LedgerStore, "keys" | "read">): ChatParts["holderPage"] {
  return async (fromSeq, limit) => {
    const keys = await ledger.keys("auth", chatKey.allHolders.replace(">", "*"));
    const rows = await Promise.all(
      keys.map(async (key) => {
        const row = await ledger.read("auth", key);
        return row.kind === "value" ? [{ key, seq: row.revision, timeMs: NOW_MS, value: row.value }] : [];
      }),
    );
    const after = rows
      .flat()
      .filter(({ seq }) => seq >= fromSeq)
      .toSorted((a, b) => a.seq - b.seq);
    const page = after.slice(0, limit);
    // A full page does not know whether there is more.
    const last = page.at(-1);
    return page.length < limit || last === undefined ? { rows: page } : { rows: page, cursor: last.seq + 1 };
  };
}

export const hashOf = (secret: string): string => createHash("sha256").update(secret).digest("hex");
