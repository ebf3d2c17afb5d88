/**
/**
 * The delivery service. In front it serves durable membership (§7), takes of requests to a role (§8.1), whether
 * the plane is there (§6.1), and who of a principal is connected and the end of that (§13.1); in the store it
 * writes copies, keeps the records of requests and the leases of its groups. What it holds in the system account
 * stands below.
 */
import {
  BUCKETS,
  type Expected,
  type Line,
  MEMBER_READS,
  NONCE,
  type Who,
  allStreams,
  caller,
  callerDeny,
  callerMust,
  calls,
  dot,
  pub,
  sub,
} from "./kit.ts";

const COMMANDS = [
  "evict-principals",
  "principal-liveness",
  "durable-join",
  "durable-leave",
  "durable-list",
  "anycast-status",
  "anycast-cancel",
  "anycast-takes",
  "acl-swept",
  "pending",
  "groups-show",
  "proof",
  "members",
  "reload-creds",
  "describe",
];

/** What it reads of the store by key and page. */
const READS = ["acl", "members", "channels", "presence", "leases", "membership"];

const servedBy = ({ space: s, uid }: Who, endpoint: string, command: string): Line[] => [
  { op: "sub", subject: `cotal.${s}.ep.one.${endpoint}.${command}.>`, queue: endpoint },
  { op: "sub", subject: `cotal.${s}.ep.v1.one.${endpoint}.${command}.>`, queue: endpoint },
  ...sub(`cotal.${s}.ep.all.${endpoint}.${command}.>`, `cotal.${s}.ep.v1.all.${endpoint}.${command}.>`),
  ...sub(`cotal.${s}.ep.inst.${endpoint}.${uid}.${command}.>`, `cotal.${s}.ep.v1.inst.${endpoint}.${uid}.${command}.>`),
];

/** What hears the mediated reads, and makes them: it writes nothing anywhere. */
export function deliveryReader(who: Who): Expected[] {
  const { space: s, stranger } = who;
  return [
    {
      account: "front",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...[...MEMBER_READS, "dm-history"].flatMap((command) => servedBy(who, "delivery", command)),
        ...pub(`cotal.${s}.ep.reply.delivery.${who.uid}.${who.epoch}.*.*.*.*`),
        ...pub(`cotal.${s}.ep.v1.reply.delivery.${who.uid}.${who.epoch}.*.*.*.*.*`),
      ],
      deny: [],
      mustNot: [
        ...sub(">", "cotal.>", `cotal.${s}.>`, `cotal.${s}.chat.>`, `cotal.${s}.ep.>`, "$SYS.>", "_INBOX.>"),
        ...sub(`cotal.${s}.ep.one.delivery.history.>`, `cotal.${s}.ep.reply.>`),
        ...COMMANDS.flatMap((command) => servedBy(who, "delivery", command)),
        ...servedBy(who, "provisioner", "space"),
        ...pub(
          `cotal.${s}.ep.reply.delivery.${stranger.uid}.${who.epoch}.${caller(stranger)}.${NONCE}`,
          `cotal.${s}.ep.reply.delivery.${who.uid}.${who.epoch + 1}.${caller(stranger)}.${NONCE}`,
          `cotal.${s}.ep.one.provisioner.register.${caller(who)}.${NONCE}`,
          `cotal.${s}.chat.${dot(who)}.general`,
          "$JS.API.INFO",
        ),
      ],
    },
    {
      account: "store",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...pub(`$JS.API.STREAM.INFO.CHAT_${s}`, `$JS.API.DIRECT.GET.CHAT_${s}`),
        ...pub(`$JS.API.STREAM.MSG.GET.DM_${s}`, `$JS.API.STREAM.MSG.GET.EPC_${s}`),
        ...["acl", "channels", "records"].flatMap((bucket) => pub(`$JS.API.STREAM.MSG.GET.KV_cotal_${bucket}_${s}`)),
        ...["presence", "channels", "records"].flatMap((bucket) => pub(`$JS.API.DIRECT.GET.KV_cotal_${bucket}_${s}`)),
      ],
      deny: [],
      mustNot: [
        ...sub(">", "cotal.>", `cotal.${s}.>`, `cotal.${s}.chat.>`, "$JS.>", "$KV.>", "$SYS.>", "_INBOX.>"),
        ...BUCKETS.flatMap((bucket) => pub(`$KV.cotal_${bucket}_${s}.x`)),
        ...allStreams(s).flatMap((stream) =>
          pub(
            `$JS.API.STREAM.MSG.DELETE.${stream}`,
            `$JS.API.STREAM.PURGE.${stream}`,
            `$JS.API.STREAM.UPDATE.${stream}`,
            `$JS.API.CONSUMER.CREATE.${stream}.x`,
            `$JS.API.CONSUMER.MSG.NEXT.${stream}.x`,
          ),
        ),
        ...["auth", "sessions", "members"].flatMap((bucket) => pub(`$JS.API.STREAM.MSG.GET.KV_cotal_${bucket}_${s}`)),
        ...["DLV", "TASK"].flatMap((stream) => pub(`$JS.API.STREAM.MSG.GET.${stream}_${s}`)),
        ...pub(
          `cotal.${s}.chat.${dot(who)}.general`,
          `cotal.${s}.dlv.x`,
          `cotal.${s}.inst.${dot(stranger)}.${dot(who)}`,
        ),
      ],
    },
  ];
}

export function delivery(who: Who): Expected[] {
  const { space: s, stranger } = who;
  const served = (endpoint: string, command: string): Line[] => servedBy(who, endpoint, command);
  return [
    {
      account: "front",
      must: [
        ...callerMust(who),
        ...COMMANDS.flatMap((command) => served("delivery", command)),
        ...pub(`cotal.${s}.ep.reply.delivery.${who.uid}.${who.epoch}.*.*.*.*`),
        ...pub(`cotal.${s}.ep.v1.reply.delivery.${who.uid}.${who.epoch}.*.*.*.*.*`),
        ...calls(who, "register"),
        { op: "sub", subject: `cotal.${s}.take.*.*.*`, queue: "take" },
        { op: "sub", subject: `cotal.${s}.live.delivery.*.*`, queue: "live.delivery" },
        ...pub(`cotal.${s}.take.*.*.*.reply.*`, `cotal.${s}.live.delivery.*.*.reply.>`),
      ],
      deny: [...callerDeny(who), `cotal.${s}.take.*.*.*.>`, `cotal.${s}.live.delivery.*.*.>`],
      mustNot: [
        ...sub(">", "cotal.>", `cotal.${s}.>`, `cotal.${s}.chat.>`, `cotal.${s}.ep.>`, "$SYS.>", "_INBOX.>"),
        ...sub(`_INBOX_${stranger.connId}.>`, `cotal.${s}.ep.one.delivery.evict-principals.>`),
        ...sub(`cotal.${s}.ep.one.delivery.>`, `cotal.${s}.ep.all.delivery.>`, `cotal.${s}.ep.v1.>`),
        { op: "sub", subject: `cotal.${s}.ep.one.delivery.evict-principals.>`, queue: "other" },
        ...served("delivery", "take"),
        ...MEMBER_READS.flatMap((command) => served("delivery", command)),
        ...served("auth", "evict-principals"),
        ...served("provisioner", "mint"),
        ...sub(`cotal.${s}.ep.inst.delivery.${stranger.uid}.evict-principals.>`),
        // Only through their queues, only this plane, and never as the one who asks.
        ...sub(`cotal.${s}.take.*.*.*`, `cotal.${s}.live.delivery.*.*`, `cotal.${s}.inst.>`, `cotal.${s}.svc.>`),
        ...sub(`cotal.${s}.take.>`, `cotal.${s}.live.>`, `cotal.${s}.live.delivery.*.*.reply.>`),
        { op: "sub", subject: `cotal.${s}.live.manager.*.*`, queue: "live.manager" },
        ...pub(
          `cotal.${s}.take.reviewer.${dot(stranger)}`,
          `cotal.${s}.live.delivery.${dot(stranger)}`,
          `cotal.${s}.live.delivery.${dot(who)}`,
          `cotal.${s}.live.manager.${dot(stranger)}.reply.${NONCE}`,
          `cotal.${s}.inst.${dot(stranger)}.${dot(who)}`,
        ),
        ...pub(
          `cotal.${s}.ep.reply.auth.${who.uid}.${who.epoch}.${caller(stranger)}.${NONCE}`,
          `cotal.${s}.ep.reply.delivery.${stranger.uid}.${who.epoch}.${caller(stranger)}.${NONCE}`,
          `cotal.${s}.ep.reply.delivery.${who.uid}.${who.epoch + 1}.${caller(stranger)}.${NONCE}`,
          `cotal.${s}.ep.one.delivery.evict-principals.${caller(who)}.${NONCE}`,
          `cotal.${s}.ep.one.provisioner.mint.${caller(who)}.${NONCE}`,
          `cotal.${s}.ep.one.provisioner.register.${caller(stranger)}.${NONCE}`,
        ),
        ...pub(`cotal.${s}.chat.${dot(who)}.general`, `cotal.${s}.dlv.x`, "$JS.API.INFO", "$SYS.REQ.USER.INFO"),
        ...pub("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ", `_INBOX_${stranger.connId}.x`),
      ],
    },
    {
      account: "store",
      must: [
        ...sub(`_INBOX_${who.connId}.>`, `cotal.${s}.chat.>`, `$KV.cotal_acl_${s}.>`),
        ...pub(`cotal.${s}.dlv.>`, `cotal.${s}.dlvpos.*`, `$JS.API.STREAM.MSG.DELETE.DLV_${s}`),
        ...pub(`$JS.API.DIRECT.GET.CHAT_${s}`),
        ...["CHAT", "DLV"].flatMap((stream) =>
          pub(`$JS.API.STREAM.MSG.GET.${stream}_${s}`, `$JS.API.STREAM.INFO.${stream}_${s}`),
        ),
        ...READS.flatMap((bucket) =>
          pub(`$JS.API.STREAM.MSG.GET.KV_cotal_${bucket}_${s}`, `$JS.API.DIRECT.GET.KV_cotal_${bucket}_${s}`),
        ),
        ...pub(`$KV.cotal_members_${s}.>`, `$KV.cotal_leases_${s}.lease.delivery.>`),
        ...pub(`$JS.API.STREAM.INFO.KV_cotal_leases_${s}`, `$JS.API.STREAM.INFO.KV_cotal_membership_${s}`),
        ...pub(
          `$JS.API.STREAM.INFO.TASK_${s}`,
          `$JS.API.STREAM.MSG.GET.TASK_${s}`,
          `$JS.API.STREAM.MSG.DELETE.TASK_${s}`,
          `$JS.API.CONSUMER.LIST.TASK_${s}`,
          `$JS.API.STREAM.MSG.GET.KV_cotal_anycast_${s}`,
          `$JS.API.STREAM.MSG.DELETE.KV_cotal_anycast_${s}`,
          `$JS.API.DIRECT.GET.KV_cotal_anycast_${s}`,
          `$KV.cotal_anycast_${s}.r.>`,
        ),
        ...pub(`cotal.${s}.inst.*.*.${dot(who)}`, `$JS.API.STREAM.MSG.GET.DM_${s}`, `$JS.API.STREAM.INFO.DM_${s}`),
        ...pub(...["DM", "DLV", "TASK"].map((stream) => `$JS.API.CONSUMER.INFO.${stream}_${s}.*`)),
      ],
      deny: [],
      mustNot: [
        ...sub(">", "cotal.>", `cotal.${s}.>`, `cotal.${s}.inst.>`, `cotal.${s}.dlv.>`, "$JS.>", "$KV.>", "$SYS.>"),
        ...sub("_INBOX.>", `_INBOX_${stranger.connId}.>`),
        ...pub(
          `cotal.${s}.inst.${dot(who)}.${dot(stranger)}`,
          `cotal.${s}.svc.reviewer.${dot(who)}`,
          `cotal.${s}.chat.${dot(who)}.general`,
          `$KV.cotal_leases_${s}.lease.auth.plane`,
          `$KV.cotal_leases_${s}.lease.provisioner.x`,
          `$KV.cotal_acl_${s}.${dot(who)}.${who.uid}`,
          `$KV.cotal_auth_${s}.gate.${who.uid}`,
          `$KV.cotal_records_${s}.uid.x`,
          `$KV.cotal_channels_${s}.general`,
          // It only shows the membership feed: who writes it may do nothing else.
          `$KV.cotal_membership_${s}.${dot(who)}`,
          `$JS.API.STREAM.MSG.DELETE.KV_cotal_membership_${s}`,
        ),
        ...["DM", "CHAT", "KV_cotal_leases", "KV_cotal_acl"].flatMap((stream) =>
          pub(`$JS.API.STREAM.MSG.DELETE.${stream}_${s}`, `$JS.API.STREAM.PURGE.${stream}_${s}`),
        ),
        ...["CREATE", "UPDATE", "DELETE", "PURGE"].flatMap((what) =>
          ["DLV", "CHAT", "TASK", "KV_cotal_anycast"].flatMap((stream) => pub(`$JS.API.STREAM.${what}.${stream}_${s}`)),
        ),
        ...pub(`$JS.API.DIRECT.GET.DM_${s}`, `$JS.API.DIRECT.GET.TASK_${s}`, `$JS.API.CONSUMER.CREATE.CHAT_${s}.x`),
        ...pub(`$JS.API.CONSUMER.MSG.NEXT.TASK_${s}.svc_reviewer`, `$JS.ACK.TASK_${s}.svc_reviewer.1.1.1.0.0`),
        ...pub("$JS.API.INFO", `$JS.API.STREAM.MSG.GET.KV_cotal_auth_${s}`, `$JS.API.CONSUMER.INFO.CHAT_${s}.x`),
      ],
    },
  ];
}

/** Sees the connections of these accounts and of no other, and closes one: which one, its request says. */
export function connectionEvictor(who: Who, accounts: readonly string[]): Expected[] {
  const foreign = `A${"X".repeat(55)}`;
  return [
    {
      account: "system",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...pub("$SYS.REQ.SERVER.PING.STATSZ", "$SYS.REQ.SERVER.*.KICK"),
        ...pub(...accounts.map((account) => `$SYS.REQ.ACCOUNT.${account}.CONNZ`)),
      ],
      deny: [],
      mustNot: [
        ...sub(">", "$SYS.>", "$SYS.REQ.>", "$SYS.REQ.USER.AUTH", "$SYS.ACCOUNT.>", "$SYS.SERVER.>", "_INBOX.>"),
        ...pub(
          `$SYS.REQ.ACCOUNT.${foreign}.CONNZ`,
          "$SYS.REQ.ACCOUNT.*.CONNZ",
          "$SYS.REQ.ACCOUNT.PING.CONNZ",
          "$SYS.REQ.SERVER.PING.CONNZ",
          "$SYS.REQ.SERVER.PING.VARZ",
          "$SYS.REQ.SERVER.PING",
        ),
        ...pub(
          ...accounts.flatMap((one) =>
            ["SUBSZ", "JSZ", "INFO", "CLAIMS.LOOKUP"].map((what) => `$SYS.REQ.ACCOUNT.${one}.${what}`),
          ),
        ),
        ...pub(...["RELOAD", "LDM", "CONNZ", "VARZ", "JSZ"].map((what) => `$SYS.REQ.SERVER.X.${what}`)),
        ...pub("$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.DELETE", "$SYS.REQ.CLAIMS.LIST", "$SYS.REQ.CLAIMS.PACK"),
        ...pub("cotal.main.chat.a.b.c", "$JS.API.INFO", "$JS.API.STREAM.NAMES"),
      ],
    },
  ];
}

/** Sees what front's connections of one space have subscribed to, and changes nothing. */
export function membershipObserver(who: Who, front: string): Expected[] {
  const foreign = `A${"X".repeat(55)}`;
  return [
    {
      account: "system",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...pub("$SYS.REQ.SERVER.PING.STATSZ", `$SYS.REQ.ACCOUNT.${front}.CONNZ`),
      ],
      deny: [],
      mustNot: [
        ...sub(">", "$SYS.>", "$SYS.REQ.>", "$SYS.ACCOUNT.>", "$SYS.SERVER.>", "_INBOX.>"),
        ...pub(`$SYS.REQ.ACCOUNT.${foreign}.CONNZ`, "$SYS.REQ.ACCOUNT.*.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ"),
        ...pub("$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.SERVER.*.KICK"),
        ...pub(...["KICK", "RELOAD", "LDM", "CONNZ", "SUBSZ"].map((what) => `$SYS.REQ.SERVER.X.${what}`)),
        ...pub(...["SUBSZ", "JSZ", "INFO", "CLAIMS.LOOKUP"].map((what) => `$SYS.REQ.ACCOUNT.${front}.${what}`)),
        ...pub("$SYS.REQ.CLAIMS.UPDATE", "cotal.main.chat.a.b.c", "$JS.API.INFO"),
      ],
    },
  ];
}

/** Writes the membership feed and the lease of who does, reads what it is made from, and nothing else. */
export function membershipRw(who: Who): Expected[] {
  const { space: s, stranger } = who;
  const feed = `KV_cotal_membership_${s}`;
  return [
    {
      account: "store",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...["acl", "members", "membership"].flatMap((bucket) =>
          pub(`$JS.API.STREAM.MSG.GET.KV_cotal_${bucket}_${s}`, `$JS.API.DIRECT.GET.KV_cotal_${bucket}_${s}`),
        ),
        ...pub(`$KV.cotal_membership_${s}.>`, `$JS.API.STREAM.INFO.${feed}`, `$JS.API.STREAM.MSG.DELETE.${feed}`),
        ...pub(`$JS.API.STREAM.INFO.KV_cotal_leases_${s}`, `$JS.API.STREAM.MSG.GET.KV_cotal_leases_${s}`),
        ...pub(`$KV.cotal_leases_${s}.lease.delivery.membership`),
      ],
      deny: [],
      mustNot: [
        ...sub(">", "cotal.>", `cotal.${s}.>`, `cotal.${s}.chat.>`, "$JS.>", "$KV.>", "$SYS.>", "_INBOX.>"),
        ...sub(`_INBOX_${stranger.connId}.>`),
        ...pub(
          `$KV.cotal_members_${s}.${dot(who)}.${who.uid}.x`,
          `$KV.cotal_acl_${s}.${dot(who)}.${who.uid}`,
          `$KV.cotal_channels_${s}.general`,
          `$KV.cotal_leases_${s}.lease.delivery.fanout.0`,
          `$KV.cotal_auth_${s}.gate.${who.uid}`,
          `cotal.${s}.dlv.${dot(who)}.${who.uid}`,
          `cotal.${s}.dlvpos.0`,
          `cotal.${s}.chat.${dot(who)}.general`,
          `cotal.${s}.inst.${dot(stranger)}.${dot(who)}`,
        ),
        ...["KV_cotal_members", "KV_cotal_acl", "KV_cotal_leases", "DLV", "CHAT"].flatMap((stream) =>
          pub(`$JS.API.STREAM.MSG.DELETE.${stream}_${s}`, `$JS.API.STREAM.PURGE.${stream}_${s}`),
        ),
        ...["CREATE", "UPDATE", "DELETE", "PURGE"].flatMap((what) => pub(`$JS.API.STREAM.${what}.${feed}`)),
        ...pub("$JS.API.INFO", `$JS.API.DIRECT.GET.CHAT_${s}`, `$JS.API.STREAM.MSG.GET.KV_cotal_auth_${s}`),
      ],
    },
  ];
}
