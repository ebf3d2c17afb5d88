/**
 * The end of a chat session (§10): holder row fenced · session row retired · lifecycle settled · slot
 * released · holder row `settled`. A day after its expiry: the UID's footprint removed again · session
 * row compacted · holder row `compacted`.
 *
 * Invariants
 * 1. From the fence on nobody is let in, and no opening gets any further.
 * 2. The slot is released last, and only once the gate and the head are retired.
 * 3. Every step is safe to run again, by whoever finds the row next.
 * 4. Only the plane ends a lifecycle (decision H45); an edge fences, and says what remains.
 */
import type { Row } from "../../../../shared/ledger/store.ts";
import { CotalError, ErrorCode } from "../../../../shared/protocol/base/errors.ts";
import type { ChatHolderRow } from "../../../../shared/protocol/ledger/chat-rows.ts";
import { touchAcl } from "../acl.ts";
import { activationOf } from "../activation.ts";
import { refusal, settled } from "../parts.ts";
import { beginEnd, beginToEnd, finishEnd } from "../retire.ts";
import {
  type ChatParts,
  type HolderName,
  actorOf,
  endHolder,
  moveSession,
  principalOf,
  readHolder,
  readSession,
} from "./parts.ts";
import { releaseSlot } from "./quota.ts";

export type RetiredChat = {
  readonly holder: ChatHolderRow;
  /** Why its slot is still taken, in words; absent once it is free. */
  readonly remains?: string;
};

/** On its holder's word. Throws `not-found` where the hash never opened anything. */
export async function retireChat(parts: ChatParts, name: HolderName): Promise<RetiredChat> {
  const fenced = await settled(parts, async () => {
    const found = await readHolder(parts, name);
    if (found === undefined) throw gone();
    return fence(parts, found);
  });
  return settleFenced(parts, fenced);
}

const gone = (): CotalError =>
  refusal(ErrorCode.NotFound, "no chat session was opened with this secret", "nothing is left to retire");

/** The fence: pinned to the row as it was read. Throws `conflict` if it has moved since. */
export async function fence(parts: ChatParts, holder: Row<ChatHolderRow>): Promise<Row<ChatHolderRow>> {
  return holder.value.state === "retired" ? holder : endHolder(parts, holder, "fenced");
}

/** Everything after the fence. What can't be done yet is said, and left to the sweep. */
export async function settleFenced(parts: ChatParts, holder: Row<ChatHolderRow>): Promise<RetiredChat> {
  if (holder.value.state === "retired" && holder.value.end !== "fenced") return { holder: holder.value };
  if (!parts.holdsPlane()) {
    return { holder: holder.value, remains: "the process that holds the authority plane ends its lifecycle" };
  }
  try {
    await settleLifecycle(parts, holder.value);
    await releaseSlot(parts, holder.value);
    return { holder: await markSettled(parts, holder.value) };
  } catch (thrown) {
    if (!(thrown instanceof CotalError)) throw thrown;
    const { message, next } = thrown;
    return { holder: holder.value, remains: next === undefined ? message : `${message}; ${next}` };
  }
}

/** For a slot that was taken while the session ended: whoever took it sees that it comes back. */
export async function endAgain(parts: ChatParts, name: HolderName): Promise<void> {
  const found = await readHolder(parts, name);
  if (found?.value.state !== "retired") return;
  const { holder } = await settleFenced(parts, found);
  if (holder.state === "retired" && holder.end !== "fenced") await releaseSlot(parts, holder);
}

/** Several may have settled it at once; one of them says so. */
async function markSettled(parts: ChatParts, name: HolderName): Promise<ChatHolderRow> {
  return settled(parts, async () => {
    const found = await readHolder(parts, name);
    if (found === undefined) throw gone();
    const isDone = found.value.state === "retired" && found.value.end !== "fenced";
    return isDone ? found.value : (await endHolder(parts, found, "settled")).value;
  });
}

async function settleLifecycle(parts: ChatParts, holder: ChatHolderRow): Promise<void> {
  const { lifecycleUid: uid } = holder;
  const p = principalOf(holder);
  await settled(parts, async () => {
    const session = await readSession(parts, uid);
    if (session === undefined || session.value.state === "retired") return;
    // As a revocation does: what is stored for it is handed on no more.
    await touchAcl(parts, { ...actorOf(session.value), allowSubscribe: [] }, uid);
    await moveSession(parts, session, "retired");
  });
  await settled(parts, () => beginToEnd(parts, activationOf(parts, "chat", p, uid)));
  await beginEnd(parts, p, uid);
  await finishEnd(parts, p, uid);
}

/** A day after its expiry. An opening that was late may have left something: it is removed once more. */
export async function compactChat(parts: ChatParts, holder: Row<ChatHolderRow>): Promise<void> {
  const { lifecycleUid: uid } = holder.value;
  await parts.removeRemains(principalOf(holder.value), uid);
  await releaseSlot(parts, holder.value);
  await settled(parts, async () => {
    const session = await readSession(parts, uid);
    if (session === undefined) return;
    if (session.value.state === "retired") return moveSession(parts, session, "compacted");
    await moveSession(parts, session, "retired");
    const again = await readSession(parts, uid);
    if (again !== undefined) await moveSession(parts, again, "compacted");
  });
  await endHolder(parts, holder, "compacted");
}
