/**
 * The views (§9, §10): narrow profiles that the callout mints in place of an agent's. None of them brings
 * anything of the agent's own, and none but `admin` (which has a file of its own) hears anybody's messages.
 */
import {
  MEMBER_READS,
  type Expected,
  type Line,
  NONCE,
  type Who,
  caller,
  callerDeny,
  callerMust,
  calls,
  callsOf,
  dash,
  dot,
  pub,
  sub,
  untrustedMustNot,
} from "./kit.ts";
import { publishesNothing } from "./observer.ts";

const READS = [...MEMBER_READS, "dm-history"];
const COMMANDS = [
  "space",
  "mint",
  "deprovision",
  "channel-set",
  "channel-purge",
  "history-purge",
  "limits-show",
  "limits-set",
  "limits-preview",
  "groups-set",
  "check",
];

/** Refused to every view: it is no peer, and it hears none. */
function noPeer(who: Who): Line[] {
  const { space: s } = who;
  return [
    ...untrustedMustNot(who),
    ...publishesNothing(who),
    ...sub(`cotal.${s}.chat.>`, `cotal.${s}.chat.*.*.general`, `cotal.${s}.inst.>`, `cotal.${s}.svc.>`),
    ...sub(`$KV.cotal_presence_${s}.>`, `cotal.${s}.eps.>`, `cotal.${s}.ep.inst.>`),
    ...pub(`cotal.${s}.ep.one.anything.describe.${caller(who)}.${NONCE}`),
    ...pub(`$JS.API.CONSUMER.MSG.NEXT.DLV_${s}.dlv_${dash(who)}`, `$JS.ACK.DLV_${s}.dlv_${dash(who)}.1.1.1.0.0`),
  ];
}

const uncalled = (who: Who, called: readonly string[]): Line[] =>
  [...COMMANDS.map((command) => `provisioner.${command}`), ...READS.map((command) => `delivery.${command}`)]
    .filter((command) => !called.includes(command))
    .flatMap((command) => pub(`cotal.${who.space}.ep.one.${command}.${caller(who)}.${NONCE}`));

/** Its inbox, its reply rail, these commands of the provisioner, and these reads. */
const callerOf = (who: Who, commands: readonly string[], reads: readonly string[] = ["channels"]): Expected[] => [
  {
    account: "front",
    must: [...callerMust(who), ...calls(who, ...commands), ...callsOf("delivery", who, ...reads)],
    deny: callerDeny(who),
    mustNot: [
      ...noPeer(who),
      ...uncalled(who, [
        ...commands.map((command) => `provisioner.${command}`),
        ...reads.map((command) => `delivery.${command}`),
      ]),
    ],
  },
];

export const channelPurger = (who: Who): Expected[] => callerOf(who, ["channel-purge"]);
export const purger = (who: Who): Expected[] => callerOf(who, ["channel-purge", "history-purge"]);
export const deployer = (who: Who): Expected[] =>
  callerOf(who, ["space", "channel-set", "check"], ["channels", "roster", "members"]);

export type Named = { readonly manager: string; readonly other: string };

export function managerCaller(who: Who, { manager, other }: Named, spawns: boolean): Expected[] {
  const { space: s } = who;
  const called = ["describe", ...(spawns ? ["spawn", "status", "models", "resolve-cwd", "ps"] : [])];
  const asked = (instance: string, command: string, nonce: string): string =>
    `cotal.${s}.ep.inst.manager.${instance}.${command}.${caller(who)}.${nonce}`;
  const never = ["slots", "stop", "cancel", ...(spawns ? [] : ["spawn", "status", "models", "resolve-cwd", "ps"])];
  return [
    {
      account: "front",
      must: [...callerMust(who), ...pub(...called.map((command) => asked(manager, command, "*")))],
      deny: callerDeny(who),
      mustNot: [
        ...noPeer(who),
        ...uncalled(who, []),
        ...pub(...never.map((command) => asked(manager, command, NONCE))),
        ...pub(...called.flatMap((command) => [asked(other, command, NONCE), asked("*", command, NONCE)])),
        // Neither the class nor the whole of it (§9).
        ...pub(
          ...["one", "all"].map((rail) => `cotal.${s}.ep.${rail}.manager.describe.${caller(who)}.${NONCE}`),
          `cotal.${s}.ep.inst.provisioner.${manager}.describe.${caller(who)}.${NONCE}`,
        ),
      ],
    },
  ];
}

export function sessionCaller(who: Who, session: { readonly id: string; readonly epoch: number }): Expected[] {
  const { space: s } = who;
  const rail = (id: string, epoch: number, side: string): string => `cotal.${s}.eps.manager.${id}.${epoch}.${side}`;
  const { id, epoch } = session;
  return [
    {
      account: "front",
      must: [...sub(`_INBOX_${who.connId}.>`, rail(id, epoch, "out")), ...pub(rail(id, epoch, "in"))],
      deny: [],
      mustNot: [
        ...noPeer(who),
        ...uncalled(who, []),
        ...pub(
          rail(id, epoch, "out"),
          rail(id, epoch - 1, "in"),
          rail(id, epoch + 1, "in"),
          rail("another", epoch, "in"),
        ),
        ...sub(
          rail(id, epoch, "in"),
          rail(id, epoch - 1, "out"),
          rail("another", epoch, "out"),
          rail("*", epoch, "out"),
        ),
        ...sub(`cotal.${s}.ep.reply.*.*.*.${caller(who)}.*`),
      ],
    },
  ];
}

export function transferWriter(who: Who, upload: Named & { readonly hex: string; readonly name: string }): Expected[] {
  const { space: s, elsewhere } = who;
  const { manager, other, hex, name } = upload;
  const at = (space: string, instance: string): string => `$O.cotal_xfer_${space}_${instance}`;
  const stream = `OBJ_cotal_xfer_${s}_${manager}`;
  return [
    {
      account: "front",
      must: [...sub(`_INBOX_${who.connId}.>`), ...pub(`${at(s, manager)}.C.${hex}`, `${at(s, manager)}.M.${name}`)],
      deny: [],
      mustNot: [
        ...noPeer(who),
        ...uncalled(who, []),
        ...pub(`${at(s, manager)}.C.${"cd".repeat(32)}`, `${at(s, manager)}.C.*`, `${at(s, manager)}.C.${hex}.x`),
        ...pub(`${at(s, manager)}.M.x`, `${at(s, other)}.C.${hex}`, `${at(s, other)}.M.${name}`),
        ...pub(`${at(elsewhere, manager)}.C.${hex}`, `${at(elsewhere, manager)}.M.${name}`),
        ...sub(`${at(s, manager)}.C.${hex}`, `${at(s, manager)}.M.${name}`, `${at(s, manager)}.>`, "$O.>"),
        ...pub(
          ...["STREAM.INFO", "STREAM.MSG.GET", "STREAM.PURGE", "STREAM.DELETE", "DIRECT.GET", "CONSUMER.CREATE"].map(
            (verb) => `$JS.API.${verb}.${stream}`,
          ),
          `$JS.API.DIRECT.GET.${stream}.${at(s, manager)}.C.${hex}`,
        ),
        ...sub(`cotal.${s}.ep.reply.*.*.*.${caller(who)}.*`),
      ],
    },
  ];
}

export function dmReader(who: Who): Expected[] {
  const { space: s, sibling } = who;
  const durable = `dm_${dash(who)}`;
  return [
    {
      account: "front",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...pub(`$JS.API.CONSUMER.MSG.NEXT.DM_${s}.${durable}`, `$JS.ACK.DM_${s}.${durable}.>`),
      ],
      deny: [],
      mustNot: [
        ...noPeer(who).filter(({ subject }) => subject !== `$JS.API.CONSUMER.MSG.NEXT.DM_${s}.${durable}`),
        ...uncalled(who, []),
        ...pub(
          ...["INFO", "DELETE", "CREATE", "DURABLE.CREATE", "PAUSE", "UNPIN"].map(
            (verb) => `$JS.API.CONSUMER.${verb}.DM_${s}.${durable}`,
          ),
        ),
        ...pub(`$JS.API.CONSUMER.MSG.NEXT.DM_${s}.dm_${dash({ ...who, uid: sibling.uid })}`),
        ...pub(`$JS.API.CONSUMER.MSG.NEXT.DM_${s}.*`, `$JS.ACK.DM_${s}.*.1.1.1.0.0`),
        ...pub(`$JS.API.CONSUMER.MSG.NEXT.TASK_${s}.svc_reviewer`, `cotal.${s}.inst.${dot(sibling)}.${dot(who)}`),
        ...sub(`cotal.${s}.inst.${dot(who)}.>`, `cotal.${s}.ep.reply.*.*.*.${caller(who)}.*`),
      ],
    },
  ];
}

/** The provisioner's hand for one command of a purger: it removes chat and touches nothing else. */
export function historyPurger(who: Who): Expected[] {
  const { space: s, elsewhere } = who;
  const kept = ["DM", "TASK", "DLV", "EPJ", "EPF", "EPC", "WFJ", "KV_cotal_auth", "KV_cotal_acl", "KV_cotal_channels"];
  return [
    {
      account: "store",
      must: [...sub(`_INBOX_${who.connId}.>`), ...pub(`$JS.API.STREAM.PURGE.CHAT_${s}`)],
      deny: [],
      mustNot: [
        ...sub(">", `cotal.${s}.>`, "$KV.>", "$JS.>", "$SYS.>", "_INBOX.>"),
        ...pub(...kept.map((stream) => `$JS.API.STREAM.PURGE.${stream}_${s}`)),
        ...pub(`$JS.API.STREAM.PURGE.CHAT_${elsewhere}`, "$JS.API.STREAM.PURGE.*"),
        ...pub(
          ...["INFO", "DELETE", "UPDATE", "MSG.GET", "MSG.DELETE"].map((verb) => `$JS.API.STREAM.${verb}.CHAT_${s}`),
          `$JS.API.DIRECT.GET.CHAT_${s}`,
          `$JS.API.CONSUMER.CREATE.CHAT_${s}.x`,
          `cotal.${s}.chat.${dot(who)}.general`,
        ),
      ],
    },
  ];
}
