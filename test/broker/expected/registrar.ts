/** A daemon before it has a row: it asks the auth service for one and does nothing else (decision H14). */
import { type Expected, NONCE, type Who, caller, callerDeny, callerMust, dot, pub, sub } from "./kit.ts";

export function registrar(who: Who): Expected[] {
  const { space: s, elsewhere, stranger, sibling } = who;
  return [
    {
      account: "front",
      must: [...callerMust(who), ...pub(`cotal.${s}.ep.one.auth.daemon-enter.${caller(who)}.*`)],
      deny: callerDeny(who),
      mustNot: [
        ...sub(">", "cotal.>", `cotal.${s}.>`, `cotal.${s}.chat.>`, `cotal.${s}.ep.>`, "$SYS.>", "_INBOX.>"),
        ...sub(`_INBOX_${stranger.connId}.>`, `cotal.${s}.ep.one.auth.daemon-enter.>`, `$KV.cotal_presence_${s}.>`),
        ...[stranger, sibling].flatMap((one) => pub(`cotal.${s}.ep.one.auth.daemon-enter.${caller(one)}.${NONCE}`)),
        ...["actor-grant", "actor-revoke", "actor-list", "describe"].flatMap((command) =>
          pub(`cotal.${s}.ep.one.auth.${command}.${caller(who)}.${NONCE}`),
        ),
        ...pub(
          `cotal.${s}.ep.one.provisioner.mint.${caller(who)}.${NONCE}`,
          `cotal.${elsewhere}.ep.one.auth.daemon-enter.${caller(who)}.${NONCE}`,
          `cotal.${s}.ep.reply.auth.${who.uid}.1.${caller(stranger)}.${NONCE}`,
        ),
        ...pub(`cotal.${s}.chat.${dot(who)}.general`, `$KV.cotal_presence_${s}.${dot(who)}`, "$JS.API.INFO"),
        ...pub("$SYS.REQ.ACCOUNT.PING.CONNZ", `$KV.cotal_auth_${s}.cred.x`),
      ],
    },
  ];
}
