/** One instance of `com.example.echo` that has registered `say` and `stop` (supplement E). */
import { type Expected, type Line, NONCE, STREAMS, type Who, allStreams, caller, dot, pub, sub } from "./kit.ts";

const E = "com_example_echo";

export const SERVED = { endpoint: "com.example.echo", commands: ["say", "stop"] };

export function service(who: Who): Expected[] {
  const { space: s, elsewhere, sibling, stranger, epoch } = who;
  const iid = who.uid;
  const rails = ["ep", "ep.v1"];
  const other = "o".repeat(26);
  const served = ["say", "stop", "describe"].flatMap((command) =>
    rails.flatMap((rail): Line[] => [
      { op: "sub", subject: `cotal.${s}.${rail}.one.${E}.${command}.>`, queue: E },
      ...sub(`cotal.${s}.${rail}.all.${E}.${command}.>`, `cotal.${s}.${rail}.inst.${E}.${iid}.${command}.>`),
    ]),
  );
  const servedBy = (endpoint: string, command: string, instance: string): Line[] =>
    rails.flatMap((rail): Line[] => [
      { op: "sub", subject: `cotal.${s}.${rail}.one.${endpoint}.${command}.>`, queue: endpoint },
      ...sub(
        `cotal.${s}.${rail}.all.${endpoint}.${command}.>`,
        `cotal.${s}.${rail}.inst.${endpoint}.${instance}.${command}.>`,
      ),
    ]);
  const planes = (endpoint: string, instance: string, at: number): string[] => [
    `cotal.${s}.ep.reply.${endpoint}.${instance}.${at}.${caller(stranger)}.${NONCE}`,
    `cotal.${s}.epe.${endpoint}.${instance}.${at}.x`,
    `cotal.${s}.epr.${endpoint}.${instance}.${at}.svc.status`,
    `cotal.${s}.ept.${endpoint}.${instance}.${at}.t.schedule`,
  ];
  return [
    {
      account: "front",
      must: [
        ...sub(`_INBOX_${who.connId}.>`),
        ...served,
        ...pub(
          `cotal.${s}.ep.reply.${E}.${iid}.${epoch}.*.*.*.*`,
          `cotal.${s}.ep.v1.reply.${E}.${iid}.${epoch}.*.*.*.*.*`,
          `cotal.${s}.epe.${E}.${iid}.${epoch}.>`,
          `cotal.${s}.ept.${E}.${iid}.${epoch}.*.schedule`,
          `cotal.${s}.epr.${E}.${iid}.${epoch}.>`,
        ),
      ],
      deny: [],
      mustNot: [
        // The class rail without its queue, or with another; other commands, endpoints and instances.
        ...["say", "describe"].flatMap((command): Line[] => [
          ...sub(`cotal.${s}.ep.one.${E}.${command}.>`, `cotal.${s}.ep.v1.one.${E}.${command}.>`),
          { op: "sub", subject: `cotal.${s}.ep.one.${E}.${command}.>`, queue: "other" },
          { op: "sub", subject: `cotal.${s}.ep.one.${E}.${command}.>`, queue: `${E}.x` },
        ]),
        ...servedBy(E, "log", iid),
        ...servedBy(E, "*", iid),
        ...servedBy("com_example_job", "say", iid),
        ...["provisioner", "auth"].flatMap((own) => servedBy(own, "describe", iid)),
        ...sub(
          `cotal.${s}.ep.inst.${E}.${other}.say.>`,
          `cotal.${s}.ep.inst.${E}.*.say.>`,
          `cotal.${s}.ep.all.*.say.>`,
          `cotal.${s}.ep.all.${E}.>`,
          `cotal.${s}.ep.>`,
          `cotal.${s}.ep.reply.>`,
          `cotal.${s}.ep.reply.*.*.*.${caller(who)}.*`,
          `cotal.${s}.ep.reply.*.*.*.${caller(stranger)}.*`,
        ),
        // Another incarnation, another instance, another endpoint: on no rail and no plane.
        ...pub(
          ...planes(E, iid, epoch - 1),
          ...planes(E, iid, epoch + 1),
          ...planes(E, other, epoch),
          ...planes("com_example_job", iid, epoch),
          ...planes("provisioner", iid, epoch),
          ...planes("*", iid, epoch),
        ),
        ...pub(
          `cotal.${s}.ept.${E}.${iid}.${epoch}.t.armed`,
          `cotal.${s}.ept.${E}.${iid}.${epoch}.t.fire`,
          `cotal.${s}.ept.${E}.${iid}.${epoch}.t.x.schedule`,
          `cotal.${s}.eps.${E}.x.${epoch}.out`,
          ...["epf", "epj", "epw", "epc", "wfj", "dlv", "ctl", "trace"].map((plane) => `cotal.${s}.${plane}.${E}.x`),
        ),
        // It asks nobody anything, and is no member of the space.
        ...["provisioner.space", "provisioner.register", "auth.actor-list", `${E}.say`, `*.describe`].flatMap((at) =>
          pub(`cotal.${s}.ep.one.${at}.${caller(who)}.${NONCE}`),
        ),
        ...sub(`cotal.${s}.chat.>`, `cotal.${s}.inst.${dot(who)}.>`, `$KV.cotal_presence_${s}.>`, ">", "*", "cotal.>"),
        ...pub(
          `cotal.${s}.chat.${dot(who)}.general`,
          `cotal.${s}.inst.${dot(stranger)}.${dot(who)}`,
          `cotal.${s}.svc.reviewer.${dot(who)}`,
          `cotal.${s}.live.delivery.${dot(who)}`,
          `$KV.cotal_presence_${s}.${dot(who)}`,
        ),
        ...[sibling, stranger].flatMap((one) => [
          ...sub(`_INBOX_${one.connId}.>`),
          ...pub(`_INBOX_${one.connId}.x`, `cotal.${s}.chat.${dot(one)}.general`),
        ]),
        ...sub("_INBOX.>", `_INBOX_${who.uid}.>`, "$SYS.>", "$JS.>", "$KV.>"),
        ...pub("$JS.API.INFO", "$SYS.REQ.ACCOUNT.PING.CONNZ", `$JS.API.STREAM.INFO.${STREAMS[0]}_${s}`),
        ...allStreams(s).flatMap((stream) =>
          pub(
            `$JS.API.STREAM.MSG.GET.${stream}`,
            `$JS.API.DIRECT.GET.${stream}`,
            `$JS.API.CONSUMER.CREATE.${stream}.x`,
            `$JS.API.CONSUMER.MSG.NEXT.${stream}.x`,
            `$JS.ACK.${stream}.x.1.1.1.0.0`,
          ),
        ),
        // Its own endpoint in another space.
        ...sub(`cotal.${elsewhere}.ep.all.${E}.say.>`, `cotal.*.ep.all.${E}.say.>`),
        ...pub(`cotal.${elsewhere}.epe.${E}.${iid}.${epoch}.x`),
      ],
    },
  ];
}
