/** Brings the ledger's store of an earlier version up to date: one stream, looked at and updated (supplement H). */
import { type Expected, type Who, allStreams, pub, sub } from "./kit.ts";

export function storeUpgrader(who: Who): Expected[] {
  const { space: s, elsewhere } = who;
  const ledger = `KV_cotal_auth_${s}`;
  const others = allStreams(s).filter((stream) => stream !== ledger);
  return [
    {
      account: "store",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...pub(`$JS.API.STREAM.INFO.${ledger}`, `$JS.API.STREAM.UPDATE.${ledger}`),
      ],
      deny: [],
      mustNot: [
        ...sub(">", `cotal.${s}.>`, "$KV.>", "$JS.>", "$SYS.>", "_INBOX.>"),
        ...pub(
          ...["CREATE", "DELETE", "PURGE", "MSG.GET", "MSG.DELETE"].map((verb) => `$JS.API.STREAM.${verb}.${ledger}`),
          `$JS.API.DIRECT.GET.${ledger}`,
          `$JS.API.CONSUMER.CREATE.${ledger}.x`,
          `$KV.cotal_auth_${s}.plane`,
          `$KV.cotal_auth_${s}.gate.x`,
        ),
        ...pub(...others.map((stream) => `$JS.API.STREAM.UPDATE.${stream}`)),
        ...pub(`$JS.API.STREAM.UPDATE.KV_cotal_auth_${elsewhere}`, "$JS.API.STREAM.UPDATE.*"),
      ],
    },
  ];
}
