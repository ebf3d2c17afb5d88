/**
 * The parent of a chat session (§10): the person's own grant, pinned as it was when the session opened.
 *
 * Invariant: two pins are equal only if the grant is of the same lifecycle, its head was not written, and
 * its row is the same to the last field. What moved never moves back.
 */
import { type Row, readRow } from "../../../../shared/ledger/store.ts";
import { canonicalDigest } from "../../../../shared/protocol/base/canonical.ts";
import { ErrorCode } from "../../../../shared/protocol/base/errors.ts";
import { dotForm, principal } from "../../../../shared/protocol/base/principals.ts";
import type { ActorRow } from "../../../../shared/protocol/ledger/actor-rows.ts";
import { CHAT_PARENT, type ChatParentPin } from "../../../../shared/protocol/ledger/chat-rows.ts";
import { HeadRow, ledgerKey } from "../../../../shared/protocol/ledger/rows.ts";
import { outOfBounds, readActor } from "../actor-reads.ts";
import { refusal } from "../parts.ts";
import type { LedgerParts } from "./parts.ts";

export type ChatParent = { readonly grant: ActorRow; readonly pin: ChatParentPin };

/** The grant now, if it lets its person in; `undefined` otherwise. */
export async function parentNow({ ledger }: LedgerParts, owner: string): Promise<ChatParent | undefined> {
  const p = principal(owner, CHAT_PARENT);
  const [row, head] = await Promise.all([readActor(ledger, p), readRow(ledger, "records", ledgerKey.head(p), HeadRow)]);
  if (row?.value.state !== "active" || row.value.kind !== "interactive") return undefined;
  if (!isCurrent(head, row.value)) return undefined;
  const { lifecycleUid } = row.value;
  const pin = {
    actor: CHAT_PARENT,
    lifecycleUid,
    headRevision: head.revision,
    rowDigest: canonicalDigest(row.value),
  } as const;
  return { grant: row.value, pin };
}

/** Active under the row's lifecycle, and stamped: a first sign-in that is still under way would move it. */
function isCurrent(head: Row<HeadRow> | undefined, { owner, actor, lifecycleUid }: ActorRow): head is Row<HeadRow> {
  return (
    head?.value.state === "active" &&
    head.value.owner === owner &&
    head.value.actor === actor &&
    head.value.lifecycleUid === lifecycleUid &&
    head.value.currentCredentialId !== undefined
  );
}

export function samePin(one: ChatParentPin, other: ChatParentPin | undefined): boolean {
  return (
    one.lifecycleUid === other?.lifecycleUid &&
    one.headRevision === other.headRevision &&
    one.rowDigest === other.rowDigest
  );
}

/** The parent of a session that is to be opened. */
export async function demandParent(parts: LedgerParts, owner: string): Promise<ChatParent> {
  const found = await parentNow(parts, owner);
  const p = principal(owner, CHAT_PARENT);
  if (found === undefined) {
    throw refusal(
      ErrorCode.PermissionDenied,
      `${dotForm(p)}, whose grant a chat session needs, has not signed in or is no longer granted`,
      `sign in as ${CHAT_PARENT} once: cotal whoami`,
    );
  }
  const outside = await outOfBounds(parts.ledger, found.grant);
  if (outside === undefined) return found;
  throw refusal(
    ErrorCode.PermissionDenied,
    `${dotForm(p)} may not open a chat session: ${outside}`,
    "ask the operator for a narrower grant: cotal actor narrow",
  );
}
