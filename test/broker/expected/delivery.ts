/**
 * The delivery service in front, and what it holds in the system account: it serves who of a principal is
 * connected, and ends that (§13.1, supplement F).
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
  dot,
  pub,
  sub,
} from "./kit.ts";

const COMMANDS = ["evict-principals", "principal-liveness", "describe"];

export function delivery(who: Who): Expected[] {
  const { space: s, stranger } = who;
  const served = (endpoint: string, command: string): Line[] => [
    { op: "sub", subject: `cotal.${s}.ep.one.${endpoint}.${command}.>`, queue: endpoint },
    { op: "sub", subject: `cotal.${s}.ep.v1.one.${endpoint}.${command}.>`, queue: endpoint },
    ...sub(`cotal.${s}.ep.all.${endpoint}.${command}.>`, `cotal.${s}.ep.v1.all.${endpoint}.${command}.>`),
    ...sub(
      `cotal.${s}.ep.inst.${endpoint}.${who.uid}.${command}.>`,
      `cotal.${s}.ep.v1.inst.${endpoint}.${who.uid}.${command}.>`,
    ),
  ];
  return [
    {
      account: "front",
      must: [
        ...callerMust(who),
        ...COMMANDS.flatMap((command) => served("delivery", command)),
        ...pub(`cotal.${s}.ep.reply.delivery.${who.uid}.${who.epoch}.*.*.*.*`),
        ...pub(`cotal.${s}.ep.v1.reply.delivery.${who.uid}.${who.epoch}.*.*.*.*.*`),
        ...calls(who, "register"),
      ],
      deny: callerDeny(who),
      mustNot: [
        ...sub(">", "cotal.>", `cotal.${s}.>`, `cotal.${s}.chat.>`, `cotal.${s}.ep.>`, "$SYS.>", "_INBOX.>"),
        ...sub(`_INBOX_${stranger.connId}.>`, `cotal.${s}.ep.one.delivery.evict-principals.>`),
        ...sub(`cotal.${s}.ep.one.delivery.>`, `cotal.${s}.ep.all.delivery.>`, `cotal.${s}.ep.v1.>`),
        { op: "sub", subject: `cotal.${s}.ep.one.delivery.evict-principals.>`, queue: "other" },
        ...served("delivery", "take"),
        ...served("auth", "evict-principals"),
        ...served("provisioner", "mint"),
        ...sub(`cotal.${s}.ep.inst.delivery.${stranger.uid}.evict-principals.>`),
        ...sub(`cotal.${s}.take.*.*.*`, `cotal.${s}.live.delivery.*.*`, `cotal.${s}.inst.>`, `cotal.${s}.svc.>`),
        ...pub(
          `cotal.${s}.ep.reply.auth.${who.uid}.${who.epoch}.${caller(stranger)}.${NONCE}`,
          `cotal.${s}.ep.reply.delivery.${stranger.uid}.${who.epoch}.${caller(stranger)}.${NONCE}`,
          `cotal.${s}.ep.reply.delivery.${who.uid}.${who.epoch + 1}.${caller(stranger)}.${NONCE}`,
          `cotal.${s}.ep.one.delivery.evict-principals.${caller(who)}.${NONCE}`,
          `cotal.${s}.ep.one.provisioner.mint.${caller(who)}.${NONCE}`,
          `cotal.${s}.ep.one.provisioner.register.${caller(stranger)}.${NONCE}`,
        ),
        ...pub(`cotal.${s}.chat.${dot(who)}.general`, `cotal.${s}.dlv.x`, "$JS.API.INFO", "$SYS.REQ.USER.INFO"),
        ...pub("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ", `_INBOX_${stranger.connId}.x`),
      ],
    },
  ];
}

/** Sees the connections of these accounts and of no other, and closes one: which one, its request says. */
export function connectionEvictor(who: Who, accounts: readonly string[]): Expected[] {
  const foreign = `A${"X".repeat(55)}`;
  return [
    {
      account: "system",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...pub("$SYS.REQ.SERVER.PING.STATSZ", "$SYS.REQ.SERVER.*.KICK"),
        ...pub(...accounts.map((account) => `$SYS.REQ.ACCOUNT.${account}.CONNZ`)),
      ],
      deny: [],
      mustNot: [
        ...sub(">", "$SYS.>", "$SYS.REQ.>", "$SYS.REQ.USER.AUTH", "$SYS.ACCOUNT.>", "$SYS.SERVER.>", "_INBOX.>"),
        ...pub(
          `$SYS.REQ.ACCOUNT.${foreign}.CONNZ`,
          "$SYS.REQ.ACCOUNT.*.CONNZ",
          "$SYS.REQ.ACCOUNT.PING.CONNZ",
          "$SYS.REQ.SERVER.PING.CONNZ",
          "$SYS.REQ.SERVER.PING.VARZ",
          "$SYS.REQ.SERVER.PING",
        ),
        ...pub(
          ...accounts.flatMap((one) =>
            ["SUBSZ", "JSZ", "INFO", "CLAIMS.LOOKUP"].map((what) => `$SYS.REQ.ACCOUNT.${one}.${what}`),
          ),
        ),
        ...pub(...["RELOAD", "LDM", "CONNZ", "VARZ", "JSZ"].map((what) => `$SYS.REQ.SERVER.X.${what}`)),
        ...pub("$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.DELETE", "$SYS.REQ.CLAIMS.LIST", "$SYS.REQ.CLAIMS.PACK"),
        ...pub("cotal.main.chat.a.b.c", "$JS.API.INFO", "$JS.API.STREAM.NAMES"),
      ],
    },
  ];
}
