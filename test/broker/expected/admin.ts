/** An observer that also sees direct messages and anycast, live and past; publishes nothing (§9). */
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
  pub,
  sub,
  untrustedMustNot,
} from "./kit.ts";
import { publishesNothing } from "./observer.ts";

export function admin(who: Who): Expected[] {
  const { space: s } = who;
  return [
    {
      account: "front",
      must: [
        ...callerMust(who),
        ...sub(`cotal.${s}.chat.>`, `cotal.${s}.inst.>`, `cotal.${s}.svc.>`, `$KV.cotal_presence_${s}.>`),
        ...calls(who, "space"),
        ...callsOf("delivery", who, ...MEMBER_READS, "dm-history"),
      ],
      deny: callerDeny(who),
      mustNot: [
        ...untrustedMustNot(who),
        ...publishesNothing(who),
        // Nonces of calls stay secret (decision H23), and so do its own powers end at reading.
        ...sub(`cotal.${s}.ep.one.provisioner.>`, `cotal.${s}.epe.>`, `cotal.${s}.live.>`, `cotal.${s}.take.>`),
        ...["mint", "deprovision", "channel-set", "limits-set", "check"].flatMap((command) =>
          pub(`cotal.${s}.ep.one.provisioner.${command}.${caller(who)}.${NONCE}`),
        ),
      ],
    },
  ];
}
