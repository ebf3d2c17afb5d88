/** Answers the broker's questions, each once, and says nothing of its own (§10). */
import { type Expected, type Who, allStreams, caller, dot, pub, sub } from "./kit.ts";

export function authCallout(who: Who): Expected[] {
  const { space: s, stranger } = who;
  return [
    {
      account: "auth",
      must: [...sub(`_INBOX_${who.connId}.>`), { op: "sub", subject: "$SYS.REQ.USER.AUTH", queue: "callout" }],
      deny: [],
      mustNot: [
        // The questions come through the queue only: a second, plain subscription would hear every bearer.
        ...sub("$SYS.REQ.USER.AUTH", "$SYS.REQ.USER.>", "$SYS.REQ.>", "$SYS.>", ">", "*.>"),
        { op: "sub", subject: "$SYS.REQ.USER.AUTH", queue: "other" },
        { op: "sub", subject: "$SYS.REQ.USER.>", queue: "callout" },
        ...sub("_INBOX.>", `_INBOX_${stranger.connId}.>`, "cotal.>", `cotal.${s}.>`, "$KV.>", "$JS.>"),
        ...pub("$SYS.REQ.USER.AUTH", "$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.CONNZ", "_INBOX.x"),
        ...pub(`_INBOX_${who.connId}.x`, `_INBOX_${stranger.connId}.x`, "$JS.API.INFO", "a", "cotal.x"),
        ...pub(
          `cotal.${s}.chat.${dot(who)}.general`,
          `cotal.${s}.ep.reply.auth.${who.uid}.${who.epoch}.${caller(stranger)}.x`,
        ),
        ...allStreams(s).flatMap((stream) => pub(`$JS.API.STREAM.INFO.${stream}`)),
      ],
    },
  ];
}
