/** A sealed scanner (supplement E): one consumer of one stream of the ledger, made, pulled and deleted by its one name. */
import { type Expected, type Who, allStreams, pub, sub } from "./kit.ts";

export function ledgerScanner(who: Who, scans: "ledger" | "records"): Expected[] {
  const { space: s, elsewhere, stranger } = who;
  const stream = scans === "ledger" ? `KV_cotal_auth_${s}` : `KV_cotal_records_${s}`;
  const name = `scan_${s}-${scans}`;
  return [
    {
      account: "store",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...["CREATE", "MSG.NEXT", "DELETE"].flatMap((verb) => pub(`$JS.API.CONSUMER.${verb}.${stream}.${name}`)),
      ],
      deny: [],
      mustNot: [
        ...sub(">", `cotal.${s}.>`, "$KV.>", "$JS.>", "$SYS.>", "_INBOX.>", `_INBOX_${stranger.connId}.>`),
        ...allStreams(s).flatMap((one) =>
          pub(
            `$JS.API.STREAM.INFO.${one}`,
            `$JS.API.STREAM.MSG.GET.${one}`,
            `$JS.API.STREAM.MSG.DELETE.${one}`,
            `$JS.API.STREAM.PURGE.${one}`,
            `$JS.API.DIRECT.GET.${one}`,
            `$JS.API.CONSUMER.CREATE.${one}`,
            `$JS.API.CONSUMER.CREATE.${one}.other`,
            `$JS.API.CONSUMER.CREATE.${one}.${name}.x`,
            `$JS.API.CONSUMER.MSG.NEXT.${one}.other`,
            `$JS.API.CONSUMER.DELETE.${one}.other`,
          ),
        ),
        ...allStreams(s)
          .filter((one) => one !== stream)
          .flatMap((one) => pub(`$JS.API.CONSUMER.CREATE.${one}.${name}`, `$JS.API.CONSUMER.MSG.NEXT.${one}.${name}`)),
        ...pub(`$KV.cotal_auth_${s}.gate.x`, `$KV.cotal_auth_${s}.plane`, `$KV.cotal_records_${s}.uid.x`),
        ...pub(`$JS.API.CONSUMER.CREATE.KV_cotal_auth_${elsewhere}.scan_${elsewhere}-ledger`, "$JS.API.INFO"),
      ],
    },
  ];
}
