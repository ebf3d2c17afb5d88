/** Reads all chat, its history, presence and the registry; publishes nothing but its reads (§9). */
import {
  MEMBER_READS,
  type Expected,
  NONCE,
  type Who,
  callerDeny,
  callerMust,
  calls,
  callsOf,
  caller,
  dash,
  dot,
  pub,
  sub,
  untrustedMustNot,
} from "./kit.ts";

export function observer(who: Who): Expected[] {
  const { space: s } = who;
  return [
    {
      account: "front",
      must: [
        ...callerMust(who),
        ...sub(`cotal.${s}.chat.>`, `$KV.cotal_presence_${s}.>`),
        ...calls(who, "space"),
        ...callsOf("delivery", who, ...MEMBER_READS, "members"),
      ],
      deny: callerDeny(who),
      mustNot: [
        ...untrustedMustNot(who),
        ...sub(
          `cotal.${s}.inst.>`,
          `cotal.${s}.inst.${dot(who)}.>`,
          `cotal.${s}.svc.>`,
          `cotal.${s}.live.>`,
          `cotal.${s}.*.*.*.general`,
        ),
        ...publishesNothing(who),
        ...pub(`cotal.${s}.ep.one.delivery.dm-history.${caller(who)}.${NONCE}`),
        ...pub(`cotal.${s}.ep.one.provisioner.register.${caller(who)}.${NONCE}`),
      ],
    },
  ];
}

/** Of who only reads: not even a word of its own, nor a durable. */
export function publishesNothing(who: Who, { describes = false, probes = false } = {}): ReturnType<typeof pub> {
  const { space: s } = who;
  const me = dot(who);
  return [
    ...pub(
      `cotal.${s}.chat.${me}.general`,
      `cotal.${s}.inst.${dot(who.stranger)}.${me}`,
      `cotal.${s}.svc.reviewer.${me}`,
    ),
    ...pub(`$KV.cotal_presence_${s}.${me}`, `cotal.${s}.take.reviewer.${me}`),
    ...(probes ? [] : pub(`cotal.${s}.live.delivery.${me}`)),
    ...pub(`$JS.API.CONSUMER.MSG.NEXT.DM_${s}.dm_${dash(who)}`, `$JS.API.CONSUMER.MSG.NEXT.DLV_${s}.dlv_${dash(who)}`),
    ...[
      "mint",
      "deprovision",
      "deprovision-complete",
      "channel-set",
      "limits-set",
      "limits-preview",
      "groups-set",
      "limits-show",
      "check",
      ...(describes ? [] : ["describe"]),
    ].flatMap((command) => pub(`cotal.${s}.ep.one.auth.${command}.${caller(who)}.${NONCE}`)),
  ];
}
