/**
 * How an expectation of a profile is written: by hand, from §9, supplement E and F and the decisions,
 * with subjects spelled out. Nothing here or beside it imports the matrix, so the two can disagree.
 */

export type Line =
  | { readonly op: "pub"; readonly subject: string }
  | { readonly op: "sub"; readonly subject: string; readonly queue?: string };

/** What a profile holds in one account: nothing but `must`. `mustNot` names what matters most of the rest. */
export type Expected = {
  readonly account: "front" | "store" | "auth" | "system";
  readonly must: readonly Line[];
  /** The denies beside subscribe entries that end in `*`. */
  readonly deny: readonly string[];
  readonly mustNot: readonly Line[];
};

export type Person = {
  readonly owner: string;
  readonly actor: string;
  readonly uid: string;
  /** The whole connection id, `<uid>_<nonce>`. */
  readonly connId: string;
};

/** Who holds the credential, and whom it must not reach. */
export type Who = Person & {
  readonly space: string;
  /** Another space on the same broker. */
  readonly elsewhere: string;
  /** Another actor of the same owner. */
  readonly sibling: Person;
  /** Somebody of another owner. */
  readonly stranger: Person;
  /** Of a serving daemon. */
  readonly epoch: number;
};

export const pub = (...subjects: readonly string[]): Line[] => subjects.map((subject) => ({ op: "pub", subject }));
export const sub = (...subjects: readonly string[]): Line[] => subjects.map((subject) => ({ op: "sub", subject }));

export const dot = ({ owner, actor }: Person): string => `${owner}.${actor}`;
export const dash = ({ owner, actor, uid }: Person): string => `${owner}-${actor}-${uid}`;
export const caller = ({ owner, actor, uid }: Person): string => `${owner}.${actor}.${uid}`;

/** A concrete nonce where a grant leaves it free. */
export const NONCE = "nnnnnnnnnnnnnnnnnnnnnnnnnn";

/** Streams of a space and the streams behind its buckets (§8, supplement H). */
export const STREAMS = ["CHAT", "DM", "TASK", "DLV", "EPJ", "EPF", "EPE", "EPR", "EPT_REQ", "EPT", "EPW", "EPC", "WFJ"];
export const BUCKETS = [
  "presence",
  "channels",
  "membership",
  "anycast",
  "records",
  "auth",
  "sessions",
  "issued",
  "accepted",
  "admission",
  "acl",
  "members",
  "leases",
];
export const allStreams = (space: string): string[] => [
  ...STREAMS.map((name) => `${name}_${space}`),
  ...BUCKETS.map((name) => `KV_cotal_${name}_${space}`),
];

/** What every client lives on: its inbox and its reply rail. */
export const callerMust = (who: Who): Line[] =>
  sub(`_INBOX_${who.connId}.>`, `cotal.${who.space}.ep.reply.*.*.*.${caller(who)}.*`);
export const callerDeny = (who: Who): string[] => [`cotal.${who.space}.ep.reply.*.*.*.${caller(who)}.*.>`];

export const calls = (who: Who, ...commands: readonly string[]): Line[] => callsOf("provisioner", who, ...commands);
export const callsOf = (endpoint: string, who: Who, ...commands: readonly string[]): Line[] =>
  pub(...commands.map((command) => `cotal.${who.space}.ep.one.${endpoint}.${command}.${caller(who)}.*`));

/** Of the bucket of issued authority (§13.15). */
export const ISSUED_FAMILIES = ["v1", "attempt.v1", "bysource.v1"];

/** Mediated reads that belong to every member of a space (decision H1). */
export const MEMBER_READS = ["channels", "roster", "frontier", "history", "artifacts", "endpoints", "records"];

/** Refused to everything that connects to front and is no daemon (§9, decisions H50 and H60). */
export function untrustedMustNot(who: Who): Line[] {
  const { space: s, elsewhere, sibling, stranger } = who;
  const others = [sibling, stranger];
  return [
    ...sub(
      ">",
      "*",
      "*.>",
      "*.*",
      "cotal.>",
      "cotal.*.>",
      `cotal.${s}.>`,
      `cotal.${s}.*.>`,
      `cotal.${s}.ep.>`,
      `cotal.${s}.epj.>`,
    ),
    ...sub(
      `cotal.${s}.ep.one.>`,
      `cotal.${s}.ep.one.provisioner.mint.>`,
      `cotal.${s}.ep.one.delivery.history.>`,
      `cotal.${s}.ep.reply.>`,
      `cotal.${s}.dlv.>`,
      `cotal.${s}.take.>`,
    ),
    ...sub(
      "_INBOX.>",
      "_INBOX_*.>",
      "_INBOX_*",
      "*.x.>",
      `_INBOX_${who.uid}.>`,
      `_INBOX_${who.uid}_*.>`,
      `_INBOX_${who.connId}`,
    ),
    ...others.flatMap((one) =>
      sub(`_INBOX_${one.connId}.>`, `_INBOX_${one.connId}.*`, `cotal.${s}.ep.reply.*.*.*.${caller(one)}.*`),
    ),
    ...others.flatMap((one) =>
      pub(`_INBOX_${one.connId}.x`, `cotal.${s}.ep.reply.provisioner.${one.uid}.1.${caller(one)}.${NONCE}`),
    ),
    ...sub(
      "$SYS.>",
      "$SYS.REQ.>",
      "$JS.>",
      "$JS.API.>",
      "$JS.EVENT.>",
      "$JS.ACK.>",
      "$KV.>",
      "$O.>",
      "$NRG.>",
      "$SRV.>",
      "_R_.>",
      "_GR_.>",
      "$G.>",
    ),
    ...pub(
      "$SYS.REQ.ACCOUNT.PING.CONNZ",
      "$SYS.REQ.SERVER.PING",
      "$SYS.REQ.USER.INFO",
      "$SRV.PING",
      "_R_.x",
      "_GR_.x",
      "$NRG.x",
    ),
    ...pub("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.ACCOUNT.PURGE.x", "$JS.FC.x"),
    ...allStreams(s).flatMap((stream) =>
      pub(
        `$JS.API.STREAM.INFO.${stream}`,
        `$JS.API.STREAM.CREATE.${stream}`,
        `$JS.API.STREAM.UPDATE.${stream}`,
        `$JS.API.STREAM.DELETE.${stream}`,
        `$JS.API.STREAM.PURGE.${stream}`,
        `$JS.API.STREAM.SNAPSHOT.${stream}`,
        `$JS.API.STREAM.MSG.GET.${stream}`,
        `$JS.API.STREAM.MSG.DELETE.${stream}`,
        `$JS.API.DIRECT.GET.${stream}`,
        `$JS.API.DIRECT.GET.${stream}.x`,
        `$JS.API.CONSUMER.CREATE.${stream}`,
        `$JS.API.CONSUMER.CREATE.${stream}.x`,
        `$JS.API.CONSUMER.CREATE.${stream}.x.cotal.${s}.chat.*.*.general`,
        `$JS.API.CONSUMER.DURABLE.CREATE.${stream}.x`,
        `$JS.API.CONSUMER.LIST.${stream}`,
        `$JS.API.CONSUMER.NAMES.${stream}`,
        `$JS.API.CONSUMER.INFO.${stream}.x`,
        `$JS.API.CONSUMER.DELETE.${stream}.x`,
        `$JS.API.CONSUMER.PAUSE.${stream}.x`,
        `$JS.API.CONSUMER.UNPIN.${stream}.x`,
        `$JS.API.CONSUMER.RESET.${stream}.x`,
        `$JS.API.CONSUMER.MSG.NEXT.${stream}.x`,
        `$JS.ACK.${stream}.x.1.1.1.0.0`,
      ),
    ),
    ...BUCKETS.flatMap((bucket) => pub(`$KV.cotal_${bucket}_${s}.x`, `$KV.cotal_${bucket}_${s}.${dot(stranger)}`)),
    ...sub(...BUCKETS.filter((bucket) => bucket !== "presence").map((bucket) => `$KV.cotal_${bucket}_${s}.>`)),
    ...others.flatMap((one) =>
      pub(
        `cotal.${s}.chat.${dot(one)}.general`,
        `cotal.${s}.inst.${dot(who)}.${dot(one)}`,
        `cotal.${s}.svc.reviewer.${dot(one)}`,
        `cotal.${s}.take.reviewer.${dot(one)}`,
        `cotal.${s}.live.delivery.${dot(one)}`,
        `cotal.${s}.ep.one.provisioner.space.${caller(one)}.${NONCE}`,
        `cotal.${s}.ep.one.delivery.history.${caller(one)}.${NONCE}`,
        `$JS.API.CONSUMER.MSG.NEXT.DM_${s}.dm_${dash(one)}`,
        `$JS.API.CONSUMER.MSG.NEXT.DLV_${s}.dlv_${dash(one)}`,
        `$JS.ACK.DM_${s}.dm_${dash(one)}.1.1.1.0.0`,
      ),
    ),
    // Every rail of the journal, fact, timer and work planes.
    ...pub(
      ...["epj", "epf", "epe", "epr", "epw", "epc", "wfj", "dlv", "dlvpos", "ctl", "trace"].map(
        (rail) => `cotal.${s}.${rail}.x`,
      ),
    ),
    ...pub(`cotal.${s}.ept.a.b.1.t.schedule`, `cotal.${s}.ept.a.b.1.t.armed`, `cotal.${s}.ept.a.b.1.t.fire`),
    // Another space, also where the holder is the same.
    ...pub(`cotal.${elsewhere}.chat.${dot(who)}.general`, `cotal.${elsewhere}.inst.${dot(stranger)}.${dot(who)}`),
    ...pub(
      `cotal.${elsewhere}.ep.one.provisioner.space.${caller(who)}.${NONCE}`,
      `$KV.cotal_presence_${elsewhere}.${dot(who)}`,
    ),
    ...sub(
      `cotal.${elsewhere}.>`,
      `cotal.${elsewhere}.chat.*.*.general`,
      `$KV.cotal_presence_${elsewhere}.>`,
      `cotal.*.chat.>`,
    ),
  ];
}
