/**
 * Daemons before they have a row (decision H14). The registrar asks the auth service to write the ledger for
 * it; an entrant asks whoever writes it for a row of its own. Neither does anything else.
 */
import {
  type Expected,
  type Line,
  NONCE,
  type Who,
  caller,
  callerDeny,
  callerMust,
  callsOf,
  dot,
  pub,
  sub,
} from "./kit.ts";

export function registrar(who: Who): Expected[] {
  return [
    {
      account: "front",
      must: [...callerMust(who), ...callsOf("auth", who, "daemon-enter", "serving")],
      deny: callerDeny(who),
      mustNot: beyondEntering(who),
    },
  ];
}

export function daemonEntrant(who: Who): Expected[] {
  const { space: s } = who;
  return [
    {
      account: "front",
      must: [...callerMust(who), ...["auth", "provisioner"].flatMap((at) => callsOf(at, who, "daemon-enter"))],
      deny: callerDeny(who),
      mustNot: [
        ...beyondEntering(who),
        ...pub(
          ...["auth.serving", "provisioner.register", "provisioner.space", "delivery.daemon-enter"].map(
            (at) => `cotal.${s}.ep.one.${at}.${caller(who)}.${NONCE}`,
          ),
        ),
      ],
    },
  ];
}

function beyondEntering(who: Who): Line[] {
  const { space: s, elsewhere, stranger, sibling } = who;
  return [
    ...sub(">", "cotal.>", `cotal.${s}.>`, `cotal.${s}.chat.>`, `cotal.${s}.ep.>`, "$SYS.>", "_INBOX.>"),
    ...sub(`_INBOX_${stranger.connId}.>`, `cotal.${s}.ep.one.auth.daemon-enter.>`, `$KV.cotal_presence_${s}.>`),
    ...[stranger, sibling].flatMap((one) => pub(`cotal.${s}.ep.one.auth.daemon-enter.${caller(one)}.${NONCE}`)),
    ...["actor-grant", "actor-revoke", "actor-list", "retire-lifecycle", "takeover-lifecycle", "describe"].flatMap(
      (command) => pub(`cotal.${s}.ep.one.auth.${command}.${caller(who)}.${NONCE}`),
    ),
    ...pub(
      `cotal.${s}.ep.one.provisioner.mint.${caller(who)}.${NONCE}`,
      `cotal.${elsewhere}.ep.one.auth.daemon-enter.${caller(who)}.${NONCE}`,
      `cotal.${s}.ep.reply.auth.${who.uid}.1.${caller(stranger)}.${NONCE}`,
    ),
    ...pub(`cotal.${s}.chat.${dot(who)}.general`, `$KV.cotal_presence_${s}.${dot(who)}`, "$JS.API.INFO"),
    ...pub("$SYS.REQ.ACCOUNT.PING.CONNZ", `$KV.cotal_auth_${s}.cred.x`),
  ];
}
