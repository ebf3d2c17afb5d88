/**
 * Sets a space up, mints, keeps limits and settings. It never deletes
 * or purges a stream, never writes a ledger row, and speaks to clients by derived replies only. Of other
 * endpoints it asks for the end of connections (§13.1). What an operator asks of it comes over a connection of
 * its own, which holds those commands alone: the desk.
 */
import {
  type Expected,
  type Line,
  NONCE,
  type Who,
  allStreams,
  caller,
  callerDeny,
  callerMust,
  callsOf,
  dash,
  dot,
  pub,
  sub,
} from "./kit.ts";

const COMMANDS = ["space", "register", "caller-view", "daemon-enter", "describe"];
const DESK = [
  "mint",
  "deprovision",
  "deprovision-complete",
  "channel-set",
  "channel-purge",
  "history-purge",
  "limits-show",
  "limits-set",
  "limits-preview",
  "groups-set",
  "check",
  "endpoint-assign",
];

export function provisioner(who: Who): Expected[] {
  return [inFront(who), inStore(who)];
}

export function provisionerDesk(who: Who): Expected[] {
  const { space: s } = who;
  return [
    {
      account: "front",
      must: [...sub(`_INBOX_${who.connId}.>`), ...DESK.flatMap((command) => served(who, command)), ...replies(who)],
      deny: [],
      mustNot: [
        ...beyondServing(who, "mint"),
        ...COMMANDS.flatMap((command) => served(who, command)),
        ...sub(`cotal.${s}.ep.reply.*.*.*.${caller(who)}.*`),
        ...pub("$SYS.REQ.ACCOUNT.PING.CONNZ", `cotal.${s}.ep.one.delivery.evict-principals.${caller(who)}.${NONCE}`),
      ],
    },
  ];
}

function served({ space: s, uid }: Who, command: string): Line[] {
  return [
    { op: "sub", subject: `cotal.${s}.ep.one.provisioner.${command}.>`, queue: "provisioner" },
    { op: "sub", subject: `cotal.${s}.ep.v1.one.provisioner.${command}.>`, queue: "provisioner" },
    ...sub(`cotal.${s}.ep.all.provisioner.${command}.>`, `cotal.${s}.ep.v1.all.provisioner.${command}.>`),
    ...sub(
      `cotal.${s}.ep.inst.provisioner.${uid}.${command}.>`,
      `cotal.${s}.ep.v1.inst.provisioner.${uid}.${command}.>`,
    ),
  ];
}

const replies = ({ space: s, uid, epoch }: Who): Line[] =>
  pub(
    `cotal.${s}.ep.reply.provisioner.${uid}.${epoch}.*.*.*.*`,
    `cotal.${s}.ep.v1.reply.provisioner.${uid}.${epoch}.*.*.*.*.*`,
  );

function inFront(who: Who): Expected {
  const { space: s, stranger } = who;
  return {
    account: "front",
    must: [
      ...callerMust(who),
      ...COMMANDS.flatMap((command) => served(who, command)),
      ...replies(who),
      ...callsOf("delivery", who, "evict-principals", "principal-liveness"),
      // Of the account's own connections: is a predecessor of an instance still there?
      ...pub("$SYS.REQ.ACCOUNT.PING.CONNZ"),
    ],
    deny: callerDeny(who),
    mustNot: [
      ...beyondServing(who, "register"),
      ...DESK.flatMap((command) => served(who, command)),
      ...pub(
        `cotal.${s}.ep.one.delivery.evict-principals.${caller(stranger)}.${NONCE}`,
        `cotal.${s}.ep.one.auth.serving.${caller(who)}.${NONCE}`,
        `cotal.${s}.ep.one.*.describe.${caller(who)}.${NONCE}`,
        "$SYS.REQ.SERVER.PING.CONNZ",
        "$SYS.REQ.ACCOUNT.X.CONNZ",
      ),
    ],
  };
}

/** Of who serves `command`, among others. */
function beyondServing(who: Who, command: string): Line[] {
  const { space: s, stranger } = who;
  return [
    ...sub(
      ">",
      "cotal.>",
      `cotal.${s}.>`,
      `cotal.${s}.chat.>`,
      `cotal.${s}.inst.>`,
      `cotal.${s}.ep.>`,
      "$SYS.>",
      "_INBOX.>",
      `_INBOX_${stranger.connId}.>`,
    ),
    // The class rail is served through the queue only, and command by command.
    ...sub(
      `cotal.${s}.ep.one.provisioner.${command}.>`,
      `cotal.${s}.ep.v1.one.provisioner.${command}.>`,
      `cotal.${s}.ep.v1.>`,
      `cotal.${s}.ep.all.provisioner.>`,
      `cotal.${s}.ep.one.provisioner.>`,
      `cotal.${s}.ep.inst.provisioner.${who.uid}.>`,
    ),
    { op: "sub", subject: `cotal.${s}.ep.one.provisioner.${command}.>`, queue: "other" },
    { op: "sub", subject: `cotal.${s}.ep.v1.one.provisioner.${command}.>`, queue: "other" },
    { op: "sub", subject: `cotal.${s}.ep.one.provisioner.>`, queue: "provisioner" },
    { op: "sub", subject: `cotal.${s}.ep.one.auth.${command}.>`, queue: "provisioner" },
    ...sub(`cotal.${s}.ep.inst.provisioner.${stranger.uid}.${command}.>`),
    // Replies: own endpoint, own instance, own epoch.
    ...pub(
      `cotal.${s}.ep.reply.auth.${who.uid}.${who.epoch}.${caller(stranger)}.${NONCE}`,
      `cotal.${s}.ep.reply.provisioner.${stranger.uid}.${who.epoch}.${caller(stranger)}.${NONCE}`,
      `cotal.${s}.ep.reply.provisioner.${who.uid}.${who.epoch + 1}.${caller(stranger)}.${NONCE}`,
      `cotal.${s}.ep.reply.provisioner.${who.uid}.${who.epoch}.${caller(stranger)}.${NONCE}.x`,
      `cotal.${s}.ep.v1.reply.provisioner.${who.uid}.${who.epoch + 1}.${caller(stranger)}.1.${NONCE}`,
      `cotal.${s}.ep.v1.reply.provisioner.${stranger.uid}.${who.epoch}.${caller(stranger)}.1.${NONCE}`,
      `cotal.${s}.ep.one.provisioner.${command}.${caller(who)}.${NONCE}`,
    ),
    // It says nothing in anybody's name, not even its own.
    ...pub(
      `cotal.${s}.chat.${dot(who)}.general`,
      `cotal.${s}.inst.${dot(stranger)}.${dot(who)}`,
      `_INBOX_${stranger.connId}.x`,
    ),
    ...pub(
      `$JS.API.CONSUMER.MSG.NEXT.DM_${s}.dm_${dash(stranger)}`,
      `$KV.cotal_presence_${s}.${dot(who)}`,
      `$KV.cotal_acl_${s}.x`,
    ),
  ];
}

function inStore(who: Who): Expected {
  const { space: s, elsewhere } = who;
  const streams = allStreams(s);
  const bucket = (name: string): string => `KV_cotal_${name}_${s}`;
  const read = ["channels", "acl", "leases", "records"].map(bucket);
  return {
    account: "store",
    must: [
      ...sub(`_INBOX_${who.connId}.>`),
      ...pub("$JS.API.INFO"),
      ...pub(...streams.flatMap((stream) => [`$JS.API.STREAM.CREATE.${stream}`, `$JS.API.STREAM.INFO.${stream}`])),
      ...pub(...["CHAT", "DM", "DLV"].map((name) => `$JS.API.STREAM.UPDATE.${name}_${s}`)),
      ...["DM", "DLV", "TASK"].flatMap((name) =>
        pub(
          `$JS.API.CONSUMER.CREATE.${name}_${s}.*.>`,
          `$JS.API.CONSUMER.INFO.${name}_${s}.*`,
          `$JS.API.CONSUMER.LIST.${name}_${s}`,
        ),
      ),
      ...read.flatMap((stream) => pub(`$JS.API.STREAM.MSG.GET.${stream}`, `$JS.API.DIRECT.GET.${stream}`)),
      ...pub(`$KV.cotal_channels_${s}.>`, `$KV.cotal_leases_${s}.>`),
      // The contract publisher, service records and governance heads: of all records these alone.
      ...pub(`cotal.${s}.epc.*`, `$JS.API.STREAM.MSG.GET.EPC_${s}`),
      ...pub(`$KV.cotal_records_${s}.svc.*.*.spec`, `$KV.cotal_records_${s}.svc.*.*.status`),
      ...pub(`$KV.cotal_records_${s}.govern.*`),
      // The record writer: one durable, one filter.
      ...pub(
        `$JS.API.CONSUMER.CREATE.EPR_${s}.recw_${s}-svc.cotal.${s}.epr.*.*.*.svc.status`,
        `$JS.API.CONSUMER.INFO.EPR_${s}.recw_${s}-svc`,
        `$JS.API.CONSUMER.MSG.NEXT.EPR_${s}.recw_${s}-svc`,
        `$JS.ACK.EPR_${s}.recw_${s}-svc.>`,
      ),
    ],
    deny: [],
    mustNot: [
      ...pub(
        `$JS.API.CONSUMER.CREATE.EPR_${s}.recw_${s}-svc`,
        `$JS.API.CONSUMER.CREATE.EPR_${s}.recw_${s}-svc.cotal.${s}.epr.>`,
        `$JS.API.CONSUMER.CREATE.EPR_${s}.other.cotal.${s}.epr.*.*.*.svc.status`,
        `$JS.API.CONSUMER.DELETE.EPR_${s}.recw_${s}-svc`,
        `$JS.API.CONSUMER.MSG.NEXT.EPR_${s}.other`,
        `$JS.API.STREAM.MSG.GET.EPR_${s}`,
        `cotal.${s}.epr.com_example_echo.${who.uid}.${who.epoch}.svc.status`,
      ),
      ...sub(">", "cotal.>", `cotal.${s}.>`, `cotal.${s}.chat.>`, "$JS.>", "$KV.>", "$SYS.>", "_INBOX.>"),
      // It reads no message of anybody's.
      ...["CHAT", "DM", "TASK", "DLV", "KV_cotal_presence"].flatMap((stream) =>
        pub(`$JS.API.STREAM.MSG.GET.${stream}_${s}`, `$JS.API.DIRECT.GET.${stream}_${s}`),
      ),
      ...streams.flatMap((stream) =>
        pub(`$JS.API.STREAM.DELETE.${stream}`, `$JS.API.STREAM.PURGE.${stream}`, `$JS.API.STREAM.MSG.DELETE.${stream}`),
      ),
      ...streams
        .filter((stream) => !["CHAT", "DM", "DLV"].includes(stream.slice(0, -s.length - 1)))
        .flatMap((stream) => pub(`$JS.API.STREAM.UPDATE.${stream}`)),
      ...pub(
        `$JS.API.CONSUMER.DELETE.DM_${s}.x`,
        `$JS.API.CONSUMER.MSG.NEXT.DM_${s}.x`,
        `$JS.API.CONSUMER.CREATE.DM_${s}`,
      ),
      ...pub(`$JS.API.CONSUMER.CREATE.CHAT_${s}.x.cotal.${s}.chat.>`, `$JS.API.CONSUMER.DURABLE.CREATE.DM_${s}.x`),
      // The ledger and everybody's messages are read or written by others; of the records it reads all.
      ...[
        "uid.x",
        "lifecycle.a.b",
        "frontier.x",
        "govern.x.y",
        "govern",
        "contracts.x.spec",
        "svc.x.y",
        "svc.x.spec",
      ].flatMap((key) => pub(`$KV.cotal_records_${s}.${key}`)),
      ...["auth", "sessions", "issued", "admission", "accepted"].flatMap((name) =>
        pub(`$JS.API.STREAM.MSG.GET.${bucket(name)}`, `$JS.API.DIRECT.GET.${bucket(name)}`, `$KV.cotal_${name}_${s}.x`),
      ),
      ...pub(`$JS.API.DIRECT.GET.DM_${s}`, `$JS.API.STREAM.MSG.GET.TASK_${s}`, `$JS.API.STREAM.MSG.GET.DLV_${s}`),
      ...pub(
        `cotal.${s}.chat.${dot(who)}.general`,
        `cotal.${s}.dlv.${dot(who)}.${who.uid}`,
        `$KV.cotal_presence_${s}.${dot(who)}`,
      ),
      ...pub(
        `$JS.API.STREAM.CREATE.OTHER`,
        `$JS.API.STREAM.INFO.CHAT_${elsewhere}`,
        `$JS.API.STREAM.NAMES`,
        `$KV.cotal_acl_${elsewhere}.x`,
      ),
    ],
  };
}
