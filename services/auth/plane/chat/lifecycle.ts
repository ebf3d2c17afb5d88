/**
 * The lifecycle under a chat session (§13.1): its activation.
 *
 * Invariants
 * 1. One operation for one UID, whoever drives it: an opening, its retry, or the sweep.
 * 2. The root credential ends with the session, so nothing that the callout mints under it outlives it.
 * 3. The holder row is read again once the head is active and before the gate opens: whoever fences it
 *    either finds the head and ends it, or has fenced before that reading and stops the activation there.
 */
import { activate } from "../../../../shared/ledger/activation.ts";
import { enterCredential } from "../../../../shared/ledger/entry.ts";
import { rootCredentialId } from "../../../../shared/ledger/root.ts";
import { createOrRead } from "../../../../shared/ledger/store.ts";
import { ErrorCode } from "../../../../shared/protocol/base/errors.ts";
import type { ChatSession } from "../../../../shared/protocol/ledger/chat-rows.ts";
import { AclRow, ledgerKey } from "../../../../shared/protocol/ledger/rows.ts";
import { aclOf } from "../acl.ts";
import { activationOf } from "../activation.ts";
import { type PlaneParts, refusal } from "../parts.ts";
import { actorOf, principalOf, readHolder, sessionName } from "./parts.ts";

/** A chat session's process is never replaced: its first root is its only one. */
const EPOCH = 1;

/** Everything that must be durable before a bearer may leave; safe to run again. */
export async function activateSession(parts: PlaneParts, session: ChatSession): Promise<void> {
  const { lifecycleUid: uid, exp } = session;
  const p = principalOf(session);
  const credentialId = rootCredentialId(uid, EPOCH);
  await activate(parts.ledger, activationOf(parts, "chat", p, uid), async () => {
    await parts.makeDurables(p, uid, undefined);
    const acl = aclOf(actorOf(session), credentialId, parts.now());
    await createOrRead(parts.ledger, "acl", ledgerKey.acl(p, uid), AclRow, acl);
    const holder = await readHolder(parts, session);
    if (holder?.value.state === "provisioning" && holder.value.lifecycleUid === uid) return;
    throw refusal(ErrorCode.FailedPrecondition, `${sessionName(p)} was ended while it opened`, "open a new one");
  });
  await enterCredential(parts.ledger, { principal: p, uid, credentialId, expires: exp });
}
