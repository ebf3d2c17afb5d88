/** Edits channel settings and nothing else (supplement F). */
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

export function channelWriter(who: Who): Expected[] {
  const { space: s } = who;
  return [
    {
      account: "front",
      must: [...callerMust(who), ...calls(who, "channel-set"), ...callsOf("delivery", who, "channels")],
      deny: callerDeny(who),
      mustNot: [
        ...untrustedMustNot(who),
        ...publishesNothing(who),
        ...sub(`cotal.${s}.chat.>`, `cotal.${s}.chat.*.*.general`, `$KV.cotal_presence_${s}.>`),
        ...["space", "mint", "deprovision", "limits-set", "check"].flatMap((command) =>
          pub(`cotal.${s}.ep.one.provisioner.${command}.${caller(who)}.${NONCE}`),
        ),
        ...["roster", "history", "frontier", "records"].flatMap((command) =>
          pub(`cotal.${s}.ep.one.delivery.${command}.${caller(who)}.${NONCE}`),
        ),
      ],
    },
  ];
}
