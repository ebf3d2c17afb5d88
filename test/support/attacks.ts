/**
 * What an attacker inside a space has to aim with, and what there is to aim at: tables that the safety
 * tests multiply. Subjects are spelled out; nothing here knows the matrix.
 */
import { BUCKETS, type Person, allStreams, caller, dash, dot } from "../broker/expected/kit.ts";

/** Requests that would hurt if the broker took its own reply for one, with the bytes to carry. */
const API_VERBS = [
  "STREAM.CREATE",
  "STREAM.UPDATE",
  "STREAM.DELETE",
  "STREAM.PURGE",
  "STREAM.MSG.DELETE",
  "STREAM.MSG.GET",
  "STREAM.INFO",
  "STREAM.SNAPSHOT",
  "STREAM.RESTORE",
  "STREAM.LEADER.STEPDOWN",
  "STREAM.PEER.REMOVE",
  "DIRECT.GET",
  "CONSUMER.CREATE",
  "CONSUMER.LIST",
];

/** Every API request, bucket row, message subject, import and system request worth aiming a reply at. */
export function targets(space: string, victim: Person): string[] {
  const streams = allStreams(space);
  const v = dot(victim);
  const verbs = streams.flatMap((stream) => API_VERBS.map((verb) => `$JS.API.${verb}.${stream}`));
  const consumers = streams.flatMap((stream) => [
    `$JS.API.CONSUMER.CREATE.${stream}.planted`,
    `$JS.API.CONSUMER.DURABLE.CREATE.${stream}.planted`,
    `$JS.API.CONSUMER.DELETE.${stream}.dm_${dash(victim)}`,
    `$JS.API.CONSUMER.MSG.NEXT.${stream}.dm_${dash(victim)}`,
  ]);
  return [
    ...verbs,
    ...consumers,
    "$JS.API.STREAM.CREATE.PLANTED",
    "$JS.API.INFO",
    `$JS.API.ACCOUNT.PURGE.${space}`,
    `$JS.API.META.LEADER.STEPDOWN`,
    `$JS.API.CONSUMER.DELETE.DM_${space}.dm_${dash(victim)}`,
    `$JS.API.CONSUMER.DELETE.DLV_${space}.dlv_${dash(victim)}`,
    `$JS.API.CONSUMER.DELETE.TASK_${space}.svc_reviewer`,
    `$JS.API.CONSUMER.MSG.NEXT.DM_${space}.dm_${dash(victim)}`,
    `$JS.API.CONSUMER.MSG.NEXT.DLV_${space}.dlv_${dash(victim)}`,
    ...BUCKETS.flatMap((bucket) => [`$KV.cotal_${bucket}_${space}.planted`, `$KV.cotal_${bucket}_${space}.${v}`]),
    `$KV.cotal_acl_${space}.${v}.${victim.uid}`,
    `$KV.cotal_channels_${space}.=space`,
    `$KV.cotal_channels_${space}.=defaults`,
    `$KV.cotal_auth_${space}.gate.${victim.uid}`,
    `$KV.cotal_records_${space}.lifecycle.${v}`,
    `cotal.${space}.chat.${v}.general`,
    `cotal.${space}.inst.${v}.${v}`,
    `cotal.${space}.svc.reviewer.${v}`,
    `cotal.${space}.take.reviewer.${v}`,
    `cotal.${space}.dlv.${v}.${victim.uid}`,
    `cotal.${space}.dlvpos.0`,
    `cotal.${space}.live.delivery.${v}`,
    `cotal.${space}.epj.x.y.${caller(victim)}.id`,
    `cotal.${space}.epf.x.dec.y`,
    `cotal.${space}.epe.x.y.1.z`,
    `cotal.${space}.epr.x.y.1.z`,
    `cotal.${space}.ept.x.y.1.t.schedule`,
    `cotal.${space}.ept.x.y.1.t.armed`,
    `cotal.${space}.ept.x.y.1.t.fire`,
    `cotal.${space}.epw.x.y.z`,
    `cotal.${space}.epc.planted`,
    `cotal.${space}.wfj.planted`,
    `cotal.${space}.ep.one.provisioner.mint.${caller(victim)}.${"n".repeat(26)}`,
    `_INBOX_${victim.connId}.pub.x`,
    `$SYS.REQ.CLAIMS.UPDATE`,
    `$SYS.REQ.SERVER.PING`,
    `$SYS.REQ.ACCOUNT.PING.CONNZ`,
  ];
}

/** Replies that would reach many at once, if the broker took them for patterns. */
export const patternTargets = (space: string): string[] => [
  ">",
  "*.>",
  "*.*.*",
  "$JS.API.>",
  "$JS.API.STREAM.PURGE.*",
  `$KV.cotal_presence_${space}.>`,
  `cotal.${space}.chat.*.*.general`,
  `cotal.${space}.chat.>`,
  "_INBOX_*.>",
];

/** Bodies that are lawful requests of one API verb or another. */
export function baits(space: string): string[] {
  return [
    "",
    JSON.stringify({ seq: 1 }),
    JSON.stringify({ name: "PLANTED", subjects: ["planted.>"], storage: "file" }),
    JSON.stringify({
      stream_name: `CHAT_${space}`,
      config: { durable_name: "planted", name: "planted", ack_policy: "none", deliver_subject: "planted.out" },
    }),
    JSON.stringify({ next_by_subj: ">", seq: 1 }),
  ];
}

/** Headers by which a publisher reaches over its own message. */
export const HEADER_TRICKS: readonly Readonly<Record<string, string>>[] = [
  { "Nats-Rollup": "all" },
  { "Nats-Rollup": "sub" },
  { "Nats-TTL": "1s" },
  { "Nats-TTL": "never" },
  { "Nats-Incr": "+1" },
  { "Nats-Batch-Id": "b1", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1" },
  { "Nats-Fast-Batch-Id": "b2", "Nats-Batch-Sequence": "1" },
  { "Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": "cotal.main.chat.x.y.general" },
  { "Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "cotal.main.chat.x.y.general", "Nats-Schedule-TTL": "5m" },
  { "Nats-Scheduler": "cotal.main.chat.x.y.general", "Nats-Schedule-Next": "purge" },
  { "Nats-Marker-Reason": "Purge" },
  { "KV-Operation": "PURGE", "Nats-Rollup": "sub" },
  { "Nats-Expected-Stream": "OTHER" },
  { "Nats-Expected-Last-Sequence": "999999" },
  { "Nats-Expected-Last-Msg-Id": "none" },
  { "Nats-Expected-Last-Subject-Sequence": "999999" },
];
