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
        ...calls(who, "space", "channels", "roster", "mint", "deprovision", "deprovision-complete"),
        ...calls(who, "channel-set", "limits-show", "limits-set", "check", "channel-purge", "history-purge"),
        ...calls(who, "artifacts", "endpoints"),
        ...pub(`cotal.${s}.ep.one.*.describe.${caller(who)}.*`),
        ...callsOf("auth", who, "actor-grant", "actor-narrow", "actor-revoke", "actor-list"),
      ],
      deny: callerDeny(who),
      mustNot: [
        ...untrustedMustNot(who),
        ...publishesNothing(who, { describes: true }),
        ...pub(`cotal.${s}.ep.all.provisioner.describe.${caller(who)}.${NONCE}`),
        ...sub(`cotal.${s}.chat.>`, `cotal.${s}.inst.>`, `cotal.${s}.svc.>`, `$KV.cotal_presence_${s}.>`),
        ...["history", "dm-history", "frontier", "register"].flatMap((command) =>
          pub(`cotal.${s}.ep.one.provisioner.${command}.${caller(who)}.${NONCE}`),
        ),
      ],
    },
  ];
}
