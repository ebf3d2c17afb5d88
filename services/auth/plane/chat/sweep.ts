/**
 * The sweep of chat sessions (§10): ends what has expired, what an opening has left, and what a retirement
 * could not finish; a day later it compacts.
 *
 * Holder rows are walked in the order of their last change, so a row that is final lies behind for good:
 * the next walk begins at the oldest row that is not.
 *
 * Invariants
 * 1. One page is the whole of a pass's own reads, and has at most `MAX_READS`.
 * 2. At most `MAX_ENDS` ends run at once. A pass starts them and waits for none.
 * 3. Quiet is no evidence: an unfinished opening is fenced by a write that is pinned to the row as it was
 *    read. Whoever moved it since has won.
 */
import type { Row } from "../../../../shared/ledger/store.ts";
import { CotalError, ErrorCode } from "../../../../shared/protocol/base/errors.ts";
import { ChatHolderRow, chatKey } from "../../../../shared/protocol/ledger/chat-rows.ts";
import type { ChatParts } from "./parts.ts";
import { compactChat, fence, settleFenced } from "./retire.ts";

export const MAX_READS = 256;
export const MAX_ENDS = 4;
/** How long an unfinished opening must have stood still. */
export const ADMISSION_QUIET_MS = 60_000;
export const COMPACT_AFTER_MS = 24 * 3600 * 1000;
const PASS_MS = 15_000;

/** No event holds a secret: an actor is no more than a name. */
export type SweepEvent =
  | { readonly kind: "settled" | "compacted"; readonly actor: string }
  | { readonly kind: "waiting"; readonly actor: string; readonly remains: string }
  /** Somebody else was faster; nothing is wrong. */
  | { readonly kind: "moved"; readonly actor: string }
  | { readonly kind: "failed"; readonly actor: string; readonly cause: unknown }
  | { readonly kind: "unreadable"; readonly key: string }
  | { readonly kind: "pass-failed"; readonly cause: unknown };

export type ChatSweep = {
  /** One pass. Settles when its own reads are done. */
  readonly pass: () => Promise<void>;
  /** Settles when no end runs any more. */
  readonly idle: () => Promise<void>;
};

type Due = "end" | "compact" | "later" | "never";

/** What a row needs now. */
export function dueOf(row: ChatHolderRow, nowMs: number): Due {
  if (row.state !== "retired") {
    if (row.exp * 1000 <= nowMs) return "end";
    return row.state !== "active" && row.at + ADMISSION_QUIET_MS <= nowMs ? "end" : "later";
  }
  if (row.end === "fenced") return "end";
  if (row.end === "compacted") return "never";
  return row.exp * 1000 + COMPACT_AFTER_MS <= nowMs ? "compact" : "later";
}

export function createChatSweep(parts: ChatParts, onEvent: (event: SweepEvent) => void): ChatSweep {
  const running = new Map<string, Promise<void>>();
  /** Where the next page begins, and where the next walk does. */
  let cursor = 1;
  let oldest: number | undefined;

  const start = (key: string, holder: Row<ChatHolderRow>, due: "end" | "compact"): void => {
    const one = run(parts, holder, due)
      .then(onEvent, (cause: unknown) => onEvent(failed(holder.value, cause)))
      .finally(() => running.delete(key));
    running.set(key, one);
  };

  const look = ({ key, seq, value }: { key: string; seq: number; value: unknown }): boolean => {
    const row = ChatHolderRow.safeParse(value).data;
    const due = row === undefined || chatKey.holder(row) !== key ? undefined : dueOf(row, parts.now());
    if (row === undefined || due === undefined) {
      onEvent({ kind: "unreadable", key });
      return true;
    }
    if (due !== "never") oldest ??= seq;
    if (due === "later" || due === "never" || running.has(key)) return true;
    if (running.size >= MAX_ENDS) return false;
    start(key, { value: row, revision: seq }, due);
    return true;
  };

  const pass = async (): Promise<void> => {
    // One read more tells that there is nothing more.
    const page = await parts.holderPage(cursor, MAX_READS - 1);
    for (const row of page.rows) {
      if (look(row)) {
        cursor = row.seq + 1;
        continue;
      }
      // No room for it: the next pass begins with it.
      cursor = row.seq;
      return;
    }
    if (page.cursor !== undefined) return;
    cursor = oldest ?? cursor;
    oldest = undefined;
  };

  return {
    pass: () => pass().catch((cause: unknown) => onEvent({ kind: "pass-failed", cause })),
    idle: async () => {
      while (running.size > 0) await Promise.all(running.values());
    },
  };
}

async function run(parts: ChatParts, holder: Row<ChatHolderRow>, due: "end" | "compact"): Promise<SweepEvent> {
  const { actor } = holder.value;
  if (due === "compact") {
    await compactChat(parts, holder);
    return { kind: "compacted", actor };
  }
  const { remains } = await settleFenced(parts, await fence(parts, holder));
  return remains === undefined ? { kind: "settled", actor } : { kind: "waiting", actor, remains };
}

function failed({ actor }: ChatHolderRow, cause: unknown): SweepEvent {
  const moved = cause instanceof CotalError && cause.code === ErrorCode.Conflict;
  return moved ? { kind: "moved", actor } : { kind: "failed", actor, cause };
}

/** Passes one after another, the next a while after the last, until stopped; then nothing of it runs. */
export function keepSweeping(sweep: ChatSweep, everyMs = PASS_MS): { readonly stop: () => Promise<void> } {
  let stopped = false;
  let timer: NodeJS.Timeout | undefined;
  let passing = Promise.resolve();
  const plan = (): void => {
    timer = setTimeout(() => {
      passing = sweep.pass().then(() => {
        if (!stopped) plan();
      });
    }, everyMs);
  };
  plan();
  return {
    stop: async () => {
      stopped = true;
      clearTimeout(timer);
      await passing;
      await sweep.idle();
    },
  };
}
