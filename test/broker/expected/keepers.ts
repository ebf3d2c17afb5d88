/** Who takes a backup reads and writes nothing; who restores one fills a space that nobody serves yet (H35, H47). */
import { type Expected, type Who, allStreams, pub, sub } from "./kit.ts";

const CONTENT = ["CHAT", "DM", "TASK", "DLV"];
const ROWS = ["channels", "members", "acl", "auth", "records"];

const readOf = (s: string): string[] => [
  ...CONTENT.map((name) => `${name}_${s}`),
  ...ROWS.map((name) => `KV_cotal_${name}_${s}`),
];

export function backupReader(who: Who): Expected[] {
  const { space: s, elsewhere } = who;
  const read = readOf(s);
  const others = allStreams(s).filter((stream) => !read.includes(stream));
  return [
    {
      account: "store",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...pub(...read.flatMap((stream) => [`$JS.API.STREAM.INFO.${stream}`, `$JS.API.STREAM.MSG.GET.${stream}`])),
        ...pub(...CONTENT.map((name) => `$JS.API.CONSUMER.LIST.${name}_${s}`)),
      ],
      deny: [],
      mustNot: [
        ...sub(">", `cotal.${s}.>`, "$KV.>", "$JS.>", "$SYS.>", "_INBOX.>"),
        ...pub(
          ...read.flatMap((stream) =>
            ["CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE"].map((verb) => `$JS.API.STREAM.${verb}.${stream}`),
          ),
          ...others.map((stream) => `$JS.API.STREAM.MSG.GET.${stream}`),
          `$JS.API.CONSUMER.CREATE.DM_${s}.x`,
          `$JS.API.CONSUMER.MSG.NEXT.DM_${s}.x`,
          `$JS.API.STREAM.MSG.GET.DM_${elsewhere}`,
          `$KV.cotal_auth_${s}.gate.x`,
          `cotal.${s}.chat.${who.owner}.${who.actor}.general`,
        ),
      ],
    },
  ];
}

export function spaceRestorer(who: Who): Expected[] {
  const { space: s, elsewhere } = who;
  const kv = (bucket: string, key: string): string => `$KV.cotal_${bucket}_${s}.${key}`;
  return [
    {
      account: "store",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...pub("$SYS.REQ.ACCOUNT.PING.CONNZ"),
        ...pub(
          ...allStreams(s).flatMap((stream) =>
            ["DELETE", "CREATE", "INFO"].map((verb) => `$JS.API.STREAM.${verb}.${stream}`),
          ),
          ...CONTENT.map((name) => `$JS.API.STREAM.PURGE.${name}_${s}`),
          ...["CHAT", "DM", "DLV"].map((name) => `$JS.API.STREAM.UPDATE.${name}_${s}`),
          ...readOf(s).map((stream) => `$JS.API.STREAM.MSG.GET.${stream}`),
        ),
        ...pub(...["chat.>", "inst.>", "svc.>", "dlv.>", "dlvpos.*"].map((tail) => `cotal.${s}.${tail}`)),
        ...["DM", "DLV", "TASK"].flatMap((name) =>
          pub(
            `$JS.API.CONSUMER.CREATE.${name}_${s}.*.>`,
            `$JS.API.CONSUMER.INFO.${name}_${s}.*`,
            `$JS.API.CONSUMER.LIST.${name}_${s}`,
          ),
        ),
        ...pub(...["channels", "members", "acl"].map((bucket) => kv(bucket, ">"))),
        ...pub(...["gate", "stage", "actor"].map((family) => kv("auth", `${family}.>`))),
        ...pub(...["uid", "lifecycle", "frontier"].map((family) => kv("records", `${family}.>`))),
      ],
      deny: [],
      mustNot: [
        ...sub(">", `cotal.${s}.>`, "$KV.>", "$JS.>", "$SYS.>", "_INBOX.>"),
        ...pub(
          kv("auth", "cred.x"),
          kv("auth", "plane"),
          kv("auth", "natkey.x"),
          kv("records", "svc.x.y.spec"),
          kv("sessions", "session.x"),
          `$JS.API.STREAM.DELETE.CHAT_${elsewhere}`,
          `$JS.API.STREAM.MSG.DELETE.TASK_${s}`,
          `$JS.API.CONSUMER.MSG.NEXT.DM_${s}.x`,
          "$JS.API.STREAM.DELETE.*",
        ),
      ],
    },
  ];
}
