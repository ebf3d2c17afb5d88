/** Removes what one ended lifecycle left, by exact names: it can't touch a successor (§13.1). */
import { type Expected, type Person, type Who, allStreams, dash, dot, pub, sub } from "./kit.ts";

export function deprovisioner(who: Who, target: Person): Expected[] {
  const { space: s, elsewhere, sibling, stranger } = who;
  const successor = { ...target, uid: stranger.uid };
  return [
    {
      account: "store",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...pub(
          `$JS.API.CONSUMER.DELETE.DM_${s}.dm_${dash(target)}`,
          `$JS.API.CONSUMER.DELETE.DLV_${s}.dlv_${dash(target)}`,
        ),
        ...pub(`$KV.cotal_acl_${s}.${dot(target)}.${target.uid}`),
      ],
      deny: [],
      mustNot: [
        ...sub(">", `cotal.${s}.>`, "$KV.>", "$JS.>", "$SYS.>", "_INBOX.>"),
        ...[successor, sibling, stranger].flatMap((one) =>
          pub(
            `$JS.API.CONSUMER.DELETE.DM_${s}.dm_${dash(one)}`,
            `$JS.API.CONSUMER.DELETE.DLV_${s}.dlv_${dash(one)}`,
            `$KV.cotal_acl_${s}.${dot(one)}.${one.uid}`,
          ),
        ),
        ...pub(
          `$JS.API.CONSUMER.DELETE.DM_${s}.*`,
          `$JS.API.CONSUMER.DELETE.TASK_${s}.svc_reviewer`,
          `$JS.API.CONSUMER.INFO.DM_${s}.dm_${dash(target)}`,
        ),
        ...pub(
          `$KV.cotal_acl_${s}.>`,
          `$KV.cotal_acl_${s}.${dot(target)}`,
          `$KV.cotal_acl_${s}.${dot(target)}.*`,
          `$KV.cotal_acl_${elsewhere}.${dot(target)}.${target.uid}`,
        ),
        ...pub(`$KV.cotal_auth_${s}.gate.${target.uid}`, `$KV.cotal_records_${s}.lifecycle.${dot(target)}`),
        ...allStreams(s).flatMap((stream) =>
          pub(
            `$JS.API.STREAM.INFO.${stream}`,
            `$JS.API.STREAM.MSG.GET.${stream}`,
            `$JS.API.STREAM.DELETE.${stream}`,
            `$JS.API.STREAM.PURGE.${stream}`,
            `$JS.API.STREAM.MSG.DELETE.${stream}`,
            `$JS.API.DIRECT.GET.${stream}`,
            `$JS.API.CONSUMER.CREATE.${stream}.x`,
          ),
        ),
      ],
    },
  ];
}
