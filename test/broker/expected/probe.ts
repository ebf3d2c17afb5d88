/** Asks a space for its findings and nothing else (supplement F). */
import {
  type Expected,
  NONCE,
  type Who,
  callerDeny,
  callerMust,
  calls,
  caller,
  pub,
  sub,
  untrustedMustNot,
} from "./kit.ts";
import { publishesNothing } from "./observer.ts";

export function probe(who: Who): Expected[] {
  const { space: s } = who;
  return [
    {
      account: "front",
      must: [...callerMust(who), ...calls(who, "check")],
      deny: callerDeny(who),
      mustNot: [
        ...untrustedMustNot(who),
        ...publishesNothing(who),
        ...sub(`cotal.${s}.chat.>`, `$KV.cotal_presence_${s}.>`),
        ...["space", "channels", "roster", "history", "mint", "channel-set", "limits-show", "limits-set"].flatMap(
          (command) => pub(`cotal.${s}.ep.one.provisioner.${command}.${caller(who)}.${NONCE}`),
        ),
      ],
    },
  ];
}
