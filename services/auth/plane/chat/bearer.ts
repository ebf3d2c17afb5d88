/**
 * A bearer of a chat session (§10), for who presents the secret that its holder hash is of.
 *
 * Invariants
 * 1. The session row, the holder row, the parent's pin, the lifecycle head and the root credential are read
 *    current before the bearer is signed and again after; only then it is released (`check-chat.ts`,
 *    `../check.ts`).
 * 2. It ends with the proof, the session, the root or after 900 s, whichever is first.
 */
import { rootCredentialId } from "../../../../shared/ledger/root.ts";
import { readRow } from "../../../../shared/ledger/store.ts";
import { CotalError, ErrorCode, Outcome } from "../../../../shared/protocol/base/errors.ts";
import type { ChatHolderRow } from "../../../../shared/protocol/ledger/chat-rows.ts";
import { HeadRow, ledgerKey } from "../../../../shared/protocol/ledger/rows.ts";
import { type BearerSigner, MAX_BEARER_SECONDS, signBearer } from "../../../../shared/trust/bearer.ts";
import { base64url } from "../../../../shared/trust/nats-jwt.ts";
import type { Authority, Refused } from "../authority-type.ts";
import { refusal } from "../parts.ts";
import { type ChatParts, principalOf } from "./parts.ts";

export type ChatSigner = {
  readonly authority: Pick<Authority, "check">;
  readonly bearer: { readonly issuer: string; readonly audience: string; readonly signer: BearerSigner };
};

/** Secret. */
export type ChatBearer = { readonly bearer: string; readonly expires: number };

type BearerParts = Pick<ChatParts, "ledger" | "now" | "random">;

/** `proofExpires`: Unix seconds, of the proof that came with the secret. */
export async function chatBearer(
  { ledger, now, random }: BearerParts,
  { authority, bearer }: ChatSigner,
  holder: ChatHolderRow,
  proofExpires: number,
): Promise<ChatBearer> {
  const { lifecycleUid, exp } = holder;
  const who = principalOf(holder);
  const head = await readRow(ledger, "records", ledgerKey.head(who), HeadRow);
  const credentialId = head?.value.currentCredentialId ?? rootCredentialId(lifecycleUid, 1);
  const act = { ...who, lifecycleUid, credentialId };
  const checked = await authority.check(act);
  if (!checked.ok) throw denied(checked);
  const iat = Math.floor(now() / 1000);
  const expires = Math.min(iat + MAX_BEARER_SECONDS, proofExpires, exp, checked.rootExpires);
  if (expires <= iat) {
    throw refusal(ErrorCode.Expired, "the identity token has no time left", "sign in again: cotal login");
  }
  const signed = signBearer(
    {
      iss: bearer.issuer,
      aud: bearer.audience,
      iat,
      exp: expires,
      jti: base64url(random(16)),
      act: { ...act, name: checked.actor.name },
    },
    bearer.signer,
  );
  const still = await authority.check(act);
  if (!still.ok) throw denied(still);
  return { bearer: signed, expires };
}

function denied({ code, reason }: Refused): CotalError {
  return new CotalError(code, reason, { outcome: Outcome.NotExecuted, next: "open a new chat session" });
}
