/**
 * The slots of an owner (§10): how many chat sessions one person may have at once.
 *
 * Invariants
 * 1. A slot belongs to one holder hash: whoever retries finds its own, and takes no second one.
 * 2. A slot is given back once, by who has settled the session's lifecycle (`retire.ts`).
 */
import { type Row, readRow } from "../../../../shared/ledger/store.ts";
import { ErrorCode } from "../../../../shared/protocol/base/errors.ts";
import {
  type ChatHolderRow,
  ChatOwnerRow,
  MAX_CHAT_SLOTS,
  chatKey,
} from "../../../../shared/protocol/ledger/chat-rows.ts";
import { refusal, settled } from "../parts.ts";
import type { ChatParts, HolderName, LedgerParts } from "./parts.ts";

type QuotaParts = Pick<ChatParts, "ledger" | "random" | "slotsPerOwner">;

async function readSlots({ ledger }: LedgerParts, owner: string): Promise<Row<ChatOwnerRow> | undefined> {
  const key = chatKey.owner(owner);
  const found = await readRow(ledger, "auth", key, ChatOwnerRow);
  if (found === undefined || found.value.owner === owner) return found;
  throw refusal(ErrorCode.FailedPrecondition, `the ledger row ${key} names another owner`, "restore the space");
}

/** Throws `resource-exhausted` where every slot is somebody else's. Asked before anything is written. */
export async function demandRoom(parts: QuotaParts, name: HolderName): Promise<void> {
  const found = await readSlots(parts, name.owner);
  if (!has(found?.value, name)) demandFree(parts, found?.value);
}

export async function takeSlot(parts: QuotaParts, holder: ChatHolderRow): Promise<void> {
  const { owner, holderHash, lifecycleUid } = holder;
  await settled(parts, async () => {
    const found = await readSlots(parts, owner);
    if (has(found?.value, holder)) return;
    demandFree(parts, found?.value);
    const slots = [...(found?.value.slots ?? []), { holderHash, lifecycleUid }];
    const row: ChatOwnerRow = { v: 1, owner, slots };
    if (found === undefined) await parts.ledger.create("auth", chatKey.owner(owner), row);
    else await parts.ledger.cas("auth", chatKey.owner(owner), row, found.revision);
  });
}

/** Safe to run again. */
export async function releaseSlot(parts: Pick<ChatParts, "ledger" | "random">, holder: ChatHolderRow): Promise<void> {
  await settled(parts, async () => {
    const found = await readSlots(parts, holder.owner);
    if (found === undefined || !has(found.value, holder)) return;
    const slots = found.value.slots.filter(({ holderHash }) => holderHash !== holder.holderHash);
    await parts.ledger.cas("auth", chatKey.owner(holder.owner), { ...found.value, slots }, found.revision);
  });
}

function has(row: ChatOwnerRow | undefined, { holderHash }: HolderName): boolean {
  return row?.slots.some((slot) => slot.holderHash === holderHash) === true;
}

function demandFree({ slotsPerOwner }: QuotaParts, row: ChatOwnerRow | undefined): void {
  const most = Math.min(slotsPerOwner, MAX_CHAT_SLOTS);
  const taken = row?.slots.length ?? 0;
  if (taken < most) return;
  throw refusal(
    ErrorCode.ResourceExhausted,
    `this person has ${taken} chat sessions already, and ${most} are allowed at once`,
    "retire one of them; a slot is free once nothing of its session is connected",
  );
}
