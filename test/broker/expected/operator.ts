/** Runs the space: mint, deprovision, limits, channels, removed history, check. Reads no message (supplement F). */
import {
  type Expected,
  NONCE,
  type Who,
  callerDeny,
  callerMust,
  calls,
  callsOf,
  caller,
  dot,
  pub,
  sub,
  untrustedMustNot,
} from "./kit.ts";
import { publishesNothing } from "./observer.ts";

export function operator(who: Who): Expected[] {
  const { space: s } = who;
  return [
    {
      account: "front",
      must: [
        ...callerMust(who),
        ...calls(who, "space", "mint", "deprovision", "deprovision-complete"),
        ...calls(
          who,
          "channel-set",
          "limits-show",
          "limits-set",
          "limits-preview",
          "groups-set",
          "check",
          "channel-purge",
          "history-purge",
        ),
        ...calls(who, "endpoint-assign"),
        ...callsOf("delivery", who, "channels", "roster", "artifacts", "endpoints"),
        ...pub(`cotal.${s}.ep.one.*.describe.${caller(who)}.*`),
        ...callsOf("auth", who, "actor-grant", "actor-narrow", "actor-revoke", "actor-list"),
        ...callsOf("auth", who, "retire-lifecycle", "takeover-lifecycle", "operation-list"),
        ...callsOf("delivery", who, "pending", "groups-show"),
        ...sub(`cotal.${s}.live.manager.${dot(who)}.>`, `cotal.${s}.live.delivery.${dot(who)}.>`),
        ...pub(`cotal.${s}.live.manager.${dot(who)}`, `cotal.${s}.live.delivery.${dot(who)}`),
      ],
      deny: callerDeny(who),
      mustNot: [
        ...untrustedMustNot(who),
        ...publishesNothing(who, { describes: true, probes: true }),
        ...pub(`cotal.${s}.ep.all.provisioner.describe.${caller(who)}.${NONCE}`),
        ...pub(
          ...["auth.serving", "auth.daemon-enter", "delivery.evict-principals", "delivery.principal-liveness"].map(
            (at) => `cotal.${s}.ep.one.${at}.${caller(who)}.${NONCE}`,
          ),
        ),
        ...sub(`cotal.${s}.live.delivery.*.*`, `cotal.${s}.live.manager.*.*`),
        ...pub(`cotal.${s}.live.delivery.${dot(who)}.reply.${NONCE}`),
        ...pub(
          `cotal.${s}.ep.one.delivery.anycast-cancel.${caller(who)}.${NONCE}`,
          `cotal.${s}.ep.one.delivery.proof.${caller(who)}.${NONCE}`,
        ),
        ...sub(`cotal.${s}.chat.>`, `cotal.${s}.inst.>`, `cotal.${s}.svc.>`, `$KV.cotal_presence_${s}.>`),
        ...["register", "caller-view", "daemon-enter", "channels"].flatMap((command) =>
          pub(`cotal.${s}.ep.one.provisioner.${command}.${caller(who)}.${NONCE}`),
        ),
        ...["history", "dm-history", "frontier", "records"].flatMap((command) =>
          pub(`cotal.${s}.ep.one.delivery.${command}.${caller(who)}.${NONCE}`),
        ),
      ],
    },
  ];
}
