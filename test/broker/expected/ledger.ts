/** Writes the identity ledger: its own families, by leader reads (§13.1, decision H14). */
import { type Expected, ISSUED_FAMILIES, type Who, allStreams, dot, pub, sub } from "./kit.ts";

export function ledger(who: Who): Expected[] {
  const { space: s, elsewhere } = who;
  const own = ["auth", "records", "acl", "issued", "accepted"].map((name) => `KV_cotal_${name}_${s}`);
  return [
    {
      account: "store",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...own.flatMap((stream) => pub(`$JS.API.STREAM.INFO.${stream}`, `$JS.API.STREAM.MSG.GET.${stream}`)),
        ...pub(`$KV.cotal_auth_${s}.gate.>`, `$KV.cotal_auth_${s}.cred.>`, `$KV.cotal_auth_${s}.stage.>`),
        // Gates of handles and what was redeemed under them; whose name an endpoint is, and the gate and credentials of
        // its instances.
        ...["srcgate", "bysrc", "servicename", "epgate", "epcred"].flatMap((family) =>
          pub(`$KV.cotal_auth_${s}.${family}.>`),
        ),
        ...ISSUED_FAMILIES.flatMap((family) => pub(`$KV.cotal_issued_${s}.${family}.>`)),
        ...pub(`$KV.cotal_accepted_${s}.accepted.v1.*`),
        ...pub(
          `$KV.cotal_records_${s}.uid.>`,
          `$KV.cotal_records_${s}.lifecycle.>`,
          `$KV.cotal_records_${s}.frontier.>`,
          `$KV.cotal_acl_${s}.>`,
        ),
      ],
      deny: [],
      mustNot: [
        ...sub(
          ">",
          `cotal.${s}.>`,
          "$KV.>",
          `$KV.cotal_auth_${s}.>`,
          "$JS.>",
          "$SYS.>",
          "_INBOX.>",
          `_INBOX_${who.stranger.connId}.>`,
        ),
        ...allStreams(s).flatMap((stream) =>
          pub(
            `$JS.API.STREAM.CREATE.${stream}`,
            `$JS.API.STREAM.UPDATE.${stream}`,
            `$JS.API.STREAM.DELETE.${stream}`,
            `$JS.API.STREAM.PURGE.${stream}`,
            `$JS.API.STREAM.MSG.DELETE.${stream}`,
            `$JS.API.DIRECT.GET.${stream}`,
            `$JS.API.CONSUMER.CREATE.${stream}.x`,
            `$JS.API.CONSUMER.CREATE.${stream}.x.y`,
          ),
        ),
        ...allStreams(s)
          .filter((stream) => !own.includes(stream))
          .flatMap((stream) => pub(`$JS.API.STREAM.INFO.${stream}`, `$JS.API.STREAM.MSG.GET.${stream}`)),
        ...pub(...["svcop", "plane", "actor", "natkey", "uid"].map((family) => `$KV.cotal_auth_${s}.${family}.x`)),
        ...pub(
          ...["goal", "oblig", "policy", "svc", "govern", "lease", "gate", "cred"].map(
            (family) => `$KV.cotal_records_${s}.${family}.x`,
          ),
        ),
        ...pub(`$KV.cotal_issued_${s}.>`, `$KV.cotal_issued_${s}.v2.x`, `$KV.cotal_accepted_${s}.accepted.v1.x.y`),
        ...pub(`$KV.cotal_auth_${s}.gate`, `$KV.cotal_channels_${s}.x`, `$KV.cotal_presence_${s}.${dot(who)}`),
        ...pub(
          `cotal.${s}.chat.${dot(who)}.general`,
          `$KV.cotal_auth_${elsewhere}.gate.x`,
          "$JS.API.INFO",
          "$JS.API.STREAM.NAMES",
        ),
      ],
    },
  ];
}
