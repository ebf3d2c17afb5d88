/**
 * A peer that reads `general`, `team.>` and `ops.*`, posts to `general` and `ops.*`, holds `reviewer`, may
 * serve, and may ask `com.example.echo`, all instances of it at once too. That endpoint has registered `say`
 * (no target), `stop` (a target, in every mode) and `log` (for who holds `audit`).
 */
import {
  MEMBER_READS,
  type Expected,
  type Line,
  NONCE,
  type Who,
  callerDeny,
  callerMust,
  calls,
  callsOf,
  caller,
  dash,
  dot,
  pub,
  sub,
  untrustedMustNot,
} from "./kit.ts";

export const SCOPE = { subscribe: ["general", "team.>", "ops.*"], publish: ["general", "ops.*"], role: "reviewer" };
export const CAPABILITIES = ["com.example.echo@all", "serve"];

export function agent(who: Who): Expected[] {
  const { space: s, stranger, sibling } = who;
  const me = dot(who);
  return [
    {
      account: "front",
      must: [
        ...callerMust(who),
        ...sub(`cotal.${s}.chat.*.*.general`, `cotal.${s}.chat.*.*.team.>`, `cotal.${s}.chat.*.*.ops.*`),
        ...sub(
          `cotal.${s}.live.manager.${me}.>`,
          `cotal.${s}.live.delivery.${me}.>`,
          `cotal.${s}.take.reviewer.${me}.reply.*`,
        ),
        ...sub(`$KV.cotal_presence_${s}.>`),
        ...pub(`cotal.${s}.chat.${me}.general`, `cotal.${s}.chat.${me}.ops.*`),
        ...pub(`cotal.${s}.inst.*.*.${me}`, `cotal.${s}.svc.*.${me}`, `cotal.${s}.take.reviewer.${me}`),
        ...pub(`cotal.${s}.live.manager.${me}`, `cotal.${s}.live.delivery.${me}`, `$KV.cotal_presence_${s}.${me}`),
        ...pub(`cotal.${s}.ep.one.*.describe.${caller(who)}.*`),
        ...calls(who, "space"),
        ...callsOf("delivery", who, ...MEMBER_READS),
        ...calls(who, "register", "caller-view"),
        ...callsOf("delivery", who, "anycast-status", "anycast-cancel", "anycast-takes"),
        ...callsOf("delivery", who, "durable-join", "durable-leave", "durable-list", "proof"),
        ...callsOf("com_example_echo", who, "say"),
        ...pub(
          `cotal.${s}.ep.all.com_example_echo.say.${caller(who)}.*`,
          `cotal.${s}.ep.one.com_example_echo.stop.self.${caller(who)}.*`,
          `cotal.${s}.ep.one.com_example_echo.stop.owner.${who.owner}.${caller(who)}.*`,
        ),
        ...pub(`$JS.API.CONSUMER.MSG.NEXT.DM_${s}.dm_${dash(who)}`, `$JS.ACK.DM_${s}.dm_${dash(who)}.>`),
        ...pub(`$JS.API.CONSUMER.MSG.NEXT.DLV_${s}.dlv_${dash(who)}`, `$JS.ACK.DLV_${s}.dlv_${dash(who)}.>`),
        ...pub(`$JS.API.CONSUMER.MSG.NEXT.TASK_${s}.svc_reviewer`, `$JS.ACK.TASK_${s}.svc_reviewer.>`),
      ],
      deny: [...callerDeny(who), `cotal.${s}.chat.*.*.ops.*.>`, `cotal.${s}.take.reviewer.${me}.reply.*.>`],
      mustNot: [
        ...untrustedMustNot(who),
        // The read list.
        ...sub(
          `cotal.${s}.chat.>`,
          `cotal.${s}.chat.*.*.>`,
          `cotal.${s}.chat.*.*.*`,
          `cotal.${s}.chat.*.*.secret`,
          `cotal.${s}.chat.*.*.team`,
        ),
        ...sub(
          `cotal.${s}.chat.*.*.teamx`,
          `cotal.${s}.chat.*.*.general.deep`,
          `cotal.${s}.chat.${dot(stranger)}.secret`,
          `cotal.${s}.chat.${dot(stranger)}.>`,
        ),
        ...sub(
          `cotal.${s}.inst.>`,
          `cotal.${s}.inst.${me}.>`,
          `cotal.${s}.inst.${dot(stranger)}.>`,
          `cotal.${s}.svc.>`,
          `cotal.${s}.svc.reviewer.>`,
        ),
        // The post list, and the shapes of its wildcard.
        ...pub(
          `cotal.${s}.chat.${me}.team.a`,
          `cotal.${s}.chat.${me}.secret`,
          `cotal.${s}.chat.${me}.ops`,
          `cotal.${s}.chat.${me}.ops.a.b`,
        ),
        ...pub(
          `cotal.${s}.chat.${me}`,
          `cotal.${s}.chat.${me}.>`,
          `cotal.${s}.chat.*.*.general`,
          `cotal.${s}.chat.${who.owner}.*.general`,
        ),
        // Forged senders and recipients.
        ...pub(
          `cotal.${s}.inst.${me}.${who.owner}.*`,
          `cotal.${s}.inst.${dot(stranger)}.${me}.x`,
          `cotal.${s}.inst.x.${me}`,
        ),
        ...pub(`cotal.${s}.svc.reviewer.x.${me}`, `cotal.${s}.svc.${me}`, `cotal.${s}.svc.reviewer.${me}.x`),
        // Other roles, other people's replies, and serving anything.
        ...pub(
          `cotal.${s}.take.other.${me}`,
          `cotal.${s}.take.*.${me}`,
          `cotal.${s}.take.reviewer.${me}.reply.${NONCE}`,
        ),
        ...pub(
          `cotal.${s}.live.delivery.${me}.reply.${NONCE}`,
          `cotal.${s}.live.other.${me}`,
          `cotal.${s}.live.*.${me}`,
        ),
        ...sub(
          `cotal.${s}.take.other.${me}.reply.*`,
          `cotal.${s}.take.reviewer.${dot(sibling)}.reply.*`,
          `cotal.${s}.take.*.*.*`,
        ),
        ...sub(
          `cotal.${s}.live.delivery.*.*`,
          `cotal.${s}.live.delivery.${dot(sibling)}.>`,
          `cotal.${s}.live.delivery.${me}`,
        ),
        ...pub(
          `$JS.API.CONSUMER.MSG.NEXT.TASK_${s}.svc_other`,
          `$JS.API.CONSUMER.MSG.NEXT.TASK_${s}.*`,
          `$JS.API.CONSUMER.MSG.NEXT.DM_${s}.*`,
        ),
        ...pub(`$JS.API.CONSUMER.INFO.DM_${s}.dm_${dash(who)}`, `$JS.API.CONSUMER.DELETE.DM_${s}.dm_${dash(who)}`),
        ...pub(
          `$JS.API.CONSUMER.CREATE.DM_${s}.dm_${dash(who)}`,
          `$JS.API.CONSUMER.CREATE.DM_${s}.dm_${dash(who)}.cotal.${s}.inst.${me}.>`,
        ),
        ...pub(`$JS.API.CONSUMER.CREATE.CHAT_${s}.chathist_${dash(who)}.cotal.${s}.chat.*.*.general`),
        ...pub(`$JS.API.DIRECT.GET.KV_cotal_presence_${s}.$KV.cotal_presence_${s}.${me}`),
        ...pub(
          `$KV.cotal_presence_${s}.${who.owner}.*`,
          `$KV.cotal_presence_${s}.${me}.x`,
          `$KV.cotal_presence_${s}.${dot(sibling)}`,
        ),
        // Commands that are not an agent's, on any rail.
        ...[
          "mint",
          "deprovision",
          "channel-set",
          "limits-set",
          "limits-preview",
          "groups-set",
          "limits-show",
          "check",
          "history",
          "cancel",
          "endpoint-assign",
        ].flatMap((command) => pub(`cotal.${s}.ep.one.provisioner.${command}.${caller(who)}.${NONCE}`)),
        ...pub(
          `cotal.${s}.ep.all.provisioner.space.${caller(who)}.${NONCE}`,
          `cotal.${s}.ep.inst.provisioner.${who.uid}.space.${caller(who)}.${NONCE}`,
        ),
        ...["evict-principals", "principal-liveness", "dm-history"].flatMap((command) =>
          pub(`cotal.${s}.ep.one.delivery.${command}.${caller(who)}.${NONCE}`),
        ),
        ...pub(
          `cotal.${s}.ep.one.auth.space.${caller(who)}.${NONCE}`,
          `cotal.${s}.ep.one.*.space.${caller(who)}.${NONCE}`,
        ),
        ...pub(
          `cotal.${s}.ep.one.provisioner.space.${dot(who)}.${stranger.uid}.${NONCE}`,
          `cotal.${s}.ep.one.provisioner.space.${caller(who)}.${NONCE}.x`,
        ),
        ...pub(`cotal.${s}.ep.v1.one.provisioner.space.${caller(who)}.${NONCE}`),
        ...beyondItsCapability(who),
      ],
    },
  ];
}

/** What `com.example.echo@all` does not open, beside what it does. */
function beyondItsCapability(who: Who): Line[] {
  const { space: s, sibling, stranger } = who;
  const me = caller(who);
  const target = caller(stranger);
  const ask = (route: string, endpoint: string, tail: string): string =>
    `cotal.${s}.ep.${route}.${endpoint}.${tail}.${NONCE}`;
  const echo = (tail: string): string => ask("one", "com_example_echo", tail);
  return pub(
    // Another command, the same one of another endpoint, a wildcard for either.
    echo(`log.${me}`),
    echo(`shout.${me}`),
    echo(`*.${me}`),
    ...["com_example_job", "com_example", "com_example_echo_x", "echo", "provisioner", "*"].map((endpoint) =>
      ask("one", endpoint, `say.${me}`),
    ),
    // The other routes, and the other rail.
    ask(`inst.com_example_echo`, who.uid, `say.${me}`),
    ask("v1.one", "com_example_echo", `say.${me}`),
    ask("all", "com_example_echo", `log.${me}`),
    ask("all", "com_example_echo", `stop.self.${me}`),
    ask("all", "com_example_echo", `stop.owner.${who.owner}.${me}`),
    ask("all", "com_example_echo", `describe.${me}`),
    ask("all", "*", `say.${me}`),
    // Other modes, and nobody's target but one's own and one's owner's.
    echo(`say.self.${me}`),
    echo(`say.owner.${who.owner}.${me}`),
    echo(`stop.${me}`),
    echo(`stop.owner.${stranger.owner}.${me}`),
    echo(`stop.owner.*.${me}`),
    ...["any", "child", "ledger"].map((mode) => echo(`stop.${mode}.${who.owner}.${me}`)),
    ...["any", "ledger"].map((mode) => echo(`stop.${mode}.*.${me}`)),
    ...["handle", "exact"].flatMap((mode) => [echo(`stop.${mode}.${target}.${me}`), echo(`stop.${mode}.${me}.${me}`)]),
    echo(`stop.*.${me}`),
    // As somebody else, and as oneself in another life.
    ...[caller(sibling), target, `${dot(who)}.${stranger.uid}`, `${dot(who)}.*`, `*.*.*`].flatMap((other) => [
      echo(`say.${other}`),
      ask("all", "com_example_echo", `say.${other}`),
      echo(`stop.self.${other}`),
      echo(`stop.owner.${who.owner}.${other}`),
    ]),
    // Longer and shorter.
    `${echo(`say.${me}`)}.x`,
    `cotal.${s}.ep.one.com_example_echo.say.${me}`,
    // What serving would need is not an agent's: that is a credential of its own.
    `cotal.${s}.ep.reply.com_example_echo.${who.uid}.1.${target}.${NONCE}`,
    `cotal.${s}.epe.com_example_echo.${who.uid}.1.x`,
    `cotal.${s}.epr.com_example_echo.${who.uid}.1.svc.status`,
  );
}
