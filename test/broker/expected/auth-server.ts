/**
 * The auth service in front: it serves the commands of the actor ledger, speaks by derived replies only, and
 * asks the broker who is connected. Of other endpoints it calls four commands: it registers its instance, has the
 * connections of who may not be there any more ended (§13.1), and asks whether their copies were taken back (§8).
 * An edge asks the plane for what only that one begins (H45), and does nothing else.
 */
import {
  type Expected,
  type Line,
  NONCE,
  type Who,
  caller,
  callerDeny,
  callerMust,
  calls,
  callsOf,
  dot,
  pub,
  sub,
} from "./kit.ts";

const COMMANDS = [
  "actor-grant",
  "actor-narrow",
  "actor-revoke",
  "actor-list",
  "retire-lifecycle",
  "takeover-lifecycle",
  "operation-list",
  "daemon-enter",
  "serving",
  "enrol",
  "chat-open",
  "describe",
];
/** What an instance asks of the one that keeps the plane. */
const ASKED = ["enrol", "chat-open"];

export function authServer(who: Who): Expected[] {
  const { space: s, stranger } = who;
  const served = COMMANDS.flatMap((command): Line[] => [
    { op: "sub", subject: `cotal.${s}.ep.one.auth.${command}.>`, queue: "auth" },
    { op: "sub", subject: `cotal.${s}.ep.v1.one.auth.${command}.>`, queue: "auth" },
    ...sub(`cotal.${s}.ep.all.auth.${command}.>`, `cotal.${s}.ep.v1.all.auth.${command}.>`),
    ...sub(`cotal.${s}.ep.inst.auth.${who.uid}.${command}.>`, `cotal.${s}.ep.v1.inst.auth.${who.uid}.${command}.>`),
  ]);
  return [
    {
      account: "front",
      must: [
        ...callerMust(who),
        ...served,
        ...pub(`cotal.${s}.ep.reply.auth.${who.uid}.${who.epoch}.*.*.*.*`),
        ...pub(`cotal.${s}.ep.v1.reply.auth.${who.uid}.${who.epoch}.*.*.*.*.*`),
        ...calls(who, "register"),
        ...callsOf("delivery", who, "evict-principals", "principal-liveness", "acl-swept", "reload-creds"),
        ...callsOf("auth", who, ...ASKED),
        // Of the account's own connections: is anybody of an ended lifecycle still there?
        ...pub("$SYS.REQ.ACCOUNT.PING.CONNZ"),
      ],
      deny: callerDeny(who),
      mustNot: [
        ...sub(">", "cotal.>", `cotal.${s}.>`, `cotal.${s}.chat.>`, `cotal.${s}.ep.>`, "$SYS.>", "_INBOX.>"),
        ...sub(`_INBOX_${stranger.connId}.>`, `cotal.${s}.ep.one.auth.actor-grant.>`, `cotal.${s}.ep.one.auth.>`),
        ...sub(`cotal.${s}.ep.v1.one.auth.actor-grant.>`, `cotal.${s}.ep.v1.>`, `cotal.${s}.ep.all.auth.>`),
        { op: "sub", subject: `cotal.${s}.ep.one.auth.actor-grant.>`, queue: "other" },
        { op: "sub", subject: `cotal.${s}.ep.one.provisioner.mint.>`, queue: "auth" },
        ...sub(`cotal.${s}.ep.inst.auth.${stranger.uid}.actor-grant.>`),
        ...pub(
          `cotal.${s}.ep.reply.provisioner.${who.uid}.${who.epoch}.${caller(stranger)}.${NONCE}`,
          `cotal.${s}.ep.reply.auth.${stranger.uid}.${who.epoch}.${caller(stranger)}.${NONCE}`,
          `cotal.${s}.ep.reply.auth.${who.uid}.${who.epoch + 1}.${caller(stranger)}.${NONCE}`,
          `cotal.${s}.ep.one.auth.actor-grant.${caller(who)}.${NONCE}`,
          `cotal.${s}.ep.one.provisioner.register.${caller(stranger)}.${NONCE}`,
          `cotal.${s}.ep.one.provisioner.mint.${caller(who)}.${NONCE}`,
          `cotal.${s}.ep.inst.provisioner.${stranger.uid}.register.${caller(who)}.${NONCE}`,
          `cotal.${s}.ep.one.delivery.evict-principals.${caller(stranger)}.${NONCE}`,
          `cotal.${s}.ep.one.delivery.describe.${caller(who)}.${NONCE}`,
          `cotal.${s}.ep.one.*.evict-principals.${caller(who)}.${NONCE}`,
        ),
        ...pub(`cotal.${s}.chat.${dot(who)}.general`, `$KV.cotal_presence_${s}.${dot(who)}`, "$JS.API.INFO"),
        ...pub(`$KV.cotal_auth_${s}.actor.x`, `$KV.cotal_acl_${s}.x`, `_INBOX_${stranger.connId}.x`),
        ...pub("$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.X.CONNZ", "$SYS.REQ.ACCOUNT.PING.SUBSZ"),
      ],
    },
  ];
}

export function authEdge(who: Who): Expected[] {
  const { space: s, elsewhere, stranger } = who;
  return [
    {
      account: "front",
      must: [...callerMust(who), ...callsOf("auth", who, ...ASKED)],
      deny: callerDeny(who),
      mustNot: [
        ...sub(">", "cotal.>", `cotal.${s}.>`, `cotal.${s}.chat.>`, `cotal.${s}.ep.>`, "$SYS.>", "_INBOX.>"),
        ...sub(`_INBOX_${stranger.connId}.>`, `cotal.${s}.ep.one.auth.enrol.>`, `cotal.${s}.ep.v1.one.auth.enrol.>`),
        { op: "sub", subject: `cotal.${s}.ep.one.auth.enrol.>`, queue: "auth" },
        ...ASKED.flatMap((command) => [
          ...pub(`cotal.${s}.ep.one.auth.${command}.${caller(stranger)}.${NONCE}`),
          ...pub(`cotal.${elsewhere}.ep.one.auth.${command}.${caller(who)}.${NONCE}`),
        ]),
        ...COMMANDS.filter((command) => !ASKED.includes(command)).flatMap((command) =>
          pub(`cotal.${s}.ep.one.auth.${command}.${caller(who)}.${NONCE}`),
        ),
        ...pub(
          `cotal.${s}.ep.one.provisioner.register.${caller(who)}.${NONCE}`,
          `cotal.${s}.ep.one.provisioner.enrol.${caller(who)}.${NONCE}`,
          `cotal.${s}.ep.one.delivery.evict-principals.${caller(who)}.${NONCE}`,
          `cotal.${s}.ep.reply.auth.${who.uid}.${who.epoch}.${caller(stranger)}.${NONCE}`,
        ),
        ...pub(`cotal.${s}.chat.${dot(who)}.general`, `$KV.cotal_presence_${s}.${dot(who)}`, "$JS.API.INFO"),
        ...pub("$SYS.REQ.ACCOUNT.PING.CONNZ", `$KV.cotal_auth_${s}.actor.x`),
      ],
    },
  ];
}
