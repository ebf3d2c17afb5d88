/**
 * The auth service in the store: the ledger by leader reads, read lists, and the durables of a new
 * lifecycle (§8, §10, §13.1, supplement I). It reads nobody's messages.
 */
import { type Expected, ISSUED_FAMILIES, type Who, allStreams, dot, pub, sub } from "./kit.ts";

const LEDGER = ["gate", "cred", "stage", "actor", "natkey", "chatholder", "chatowner", "chatsession"];
/** Whose name an endpoint is, and the gate and credentials of its instances. */
const SERVING = ["servicename", "epgate", "epcred"];
/** Gates of handles, and what was redeemed under each. */
const SOURCES = ["srcgate", "bysrc"];
const FAMILIES = [...LEDGER, ...SERVING, ...SOURCES];

export function authLedger(who: Who): Expected[] {
  const { space: s, elsewhere, stranger } = who;
  const own = ["auth", "records", "acl", "sessions", "issued", "accepted"].map((name) => `KV_cotal_${name}_${s}`);
  const durables = [`DM_${s}`, `DLV_${s}`, `TASK_${s}`];
  const looked = [...own, `CHAT_${s}`, ...durables];
  // The space's settings are a row of the channel registry (H54).
  const read = [...own, `KV_cotal_channels_${s}`];
  return [
    {
      account: "store",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...looked.flatMap((stream) => pub(`$JS.API.STREAM.INFO.${stream}`)),
        ...read.flatMap((stream) => pub(`$JS.API.STREAM.MSG.GET.${stream}`)),
        ...FAMILIES.flatMap((family) => pub(`$KV.cotal_auth_${s}.${family}.>`)),
        ...pub(`$KV.cotal_auth_${s}.plane`),
        ...["uid", "lifecycle", "frontier"].flatMap((family) => pub(`$KV.cotal_records_${s}.${family}.>`)),
        ...pub(`$KV.cotal_acl_${s}.>`, `$KV.cotal_accepted_${s}.accepted.v1.*`),
        ...ISSUED_FAMILIES.flatMap((family) => pub(`$KV.cotal_issued_${s}.${family}.>`)),
        ...durables.flatMap((stream) =>
          pub(`$JS.API.CONSUMER.CREATE.${stream}.*.>`, `$JS.API.CONSUMER.INFO.${stream}.*`),
        ),
        // Of the account's own connections: is the holder of the claim still there? And are these all the servers?
        ...pub("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.STATSZ"),
      ],
      deny: [],
      mustNot: [
        ...sub(">", `cotal.${s}.>`, "$KV.>", `$KV.cotal_auth_${s}.>`, "$JS.>", "$SYS.>", "_INBOX.>"),
        ...sub(`_INBOX_${stranger.connId}.>`, "$SYS.REQ.USER.AUTH"),
        ...allStreams(s).flatMap((stream) =>
          pub(
            `$JS.API.STREAM.CREATE.${stream}`,
            `$JS.API.STREAM.UPDATE.${stream}`,
            `$JS.API.STREAM.DELETE.${stream}`,
            `$JS.API.STREAM.PURGE.${stream}`,
            `$JS.API.STREAM.MSG.DELETE.${stream}`,
            `$JS.API.DIRECT.GET.${stream}`,
            `$JS.API.CONSUMER.DELETE.${stream}.x`,
            `$JS.API.CONSUMER.MSG.NEXT.${stream}.x`,
            `$JS.API.CONSUMER.CREATE.${stream}`,
          ),
        ),
        ...allStreams(s)
          .filter((stream) => !looked.includes(stream))
          .flatMap((stream) => pub(`$JS.API.STREAM.INFO.${stream}`)),
        ...allStreams(s)
          .filter((stream) => !read.includes(stream))
          .flatMap((stream) => pub(`$JS.API.STREAM.MSG.GET.${stream}`)),
        ...allStreams(s)
          .filter((stream) => !durables.includes(stream))
          .flatMap((stream) => pub(`$JS.API.CONSUMER.CREATE.${stream}.x.y`)),
        ...pub(...["svcop", "uid", "session"].map((family) => `$KV.cotal_auth_${s}.${family}.x`)),
        ...pub(
          ...["goal", "oblig", "policy", "svc", "govern", "lease", "gate", "cred"].map(
            (family) => `$KV.cotal_records_${s}.${family}.x`,
          ),
        ),
        ...pub(`$KV.cotal_issued_${s}.>`, `$KV.cotal_issued_${s}.v2.x`, `$KV.cotal_accepted_${s}.accepted.v1.x.y`),
        // Sessions are read and never written (§10).
        ...pub(`$KV.cotal_sessions_${s}.session.x`, `$KV.cotal_sessions_${s}.>`),
        ...pub(`$KV.cotal_auth_${s}.plane.x`, `$KV.cotal_channels_${s}.x`, `$KV.cotal_presence_${s}.${dot(who)}`),
        ...pub(
          `cotal.${s}.chat.${dot(who)}.general`,
          `cotal.${s}.dlv.${dot(who)}.${who.uid}`,
          `$KV.cotal_auth_${elsewhere}.gate.x`,
          "$JS.API.INFO",
          "$JS.API.STREAM.NAMES",
          "$SYS.REQ.SERVER.PING.CONNZ",
          "$SYS.REQ.SERVER.PING.VARZ",
          "$SYS.REQ.ACCOUNT.X.CONNZ",
          "$SYS.REQ.USER.INFO",
        ),
      ],
    },
  ];
}
