/** The trust program's user of the system account: account claims, and the servers' facts. */
import { type Expected, type Who, pub, sub } from "./kit.ts";

export function systemAdministrator(who: Who): Expected[] {
  return [
    {
      account: "system",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...pub(
          "$SYS.REQ.CLAIMS.UPDATE",
          "$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP",
          "$SYS.REQ.SERVER.PING.VARZ",
          "$SYS.REQ.SERVER.PING.CONNZ",
          "$SYS.REQ.SERVER.PING.STATSZ",
        ),
      ],
      deny: [],
      mustNot: [
        ...sub(
          ">",
          "$SYS.>",
          "$SYS.REQ.>",
          "$SYS.REQ.USER.AUTH",
          "$SYS.ACCOUNT.>",
          "$SYS.SERVER.>",
          "_INBOX.>",
          "cotal.>",
        ),
        ...pub(
          "$SYS.REQ.CLAIMS.DELETE",
          "$SYS.REQ.CLAIMS.LIST",
          "$SYS.REQ.CLAIMS.PACK",
          "$SYS.REQ.SERVER.PING",
          "$SYS.REQ.SERVER.PING.JSZ",
        ),
        ...pub(
          "$SYS.REQ.SERVER.X.RELOAD",
          "$SYS.REQ.SERVER.X.KICK",
          "$SYS.REQ.SERVER.X.LDM",
          "$SYS.REQ.ACCOUNT.X.CONNZ",
        ),
        ...pub("$SYS.REQ.SERVER.PING.CONFIG", "cotal.main.chat.a.b.c", "$JS.API.INFO", "$JS.API.STREAM.NAMES"),
      ],
    },
  ];
}
