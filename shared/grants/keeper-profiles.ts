/**
 * Rows of who takes a backup and of who restores one: one function each, for one run, in the store alone.
 *
 * Invariant: the reader writes nothing. The restorer holds a space that nobody serves yet; it is revoked before
 * anybody does (`services/trust`).
 */
import { inboxGrant, jsApi, kvKey, sys } from "../protocol/base/broker-subjects.ts";
import { type BucketKey, bucketStream, spaceNames } from "../protocol/base/names.ts";
import { spaceSubjects } from "../protocol/base/subjects.ts";
import type { HolderScope } from "./client-profiles.ts";
import { Account, type Row, pub, sub } from "./row.ts";

const { Store: store } = Account;

/** What a backup is made of: messages, and the rows that say who there was and what he had. */
const READ_BUCKETS: readonly BucketKey[] = ["channels", "members", "acl", "auth", "records"];

/** Buckets that a restore fills. */
const WRITTEN_BUCKETS: readonly BucketKey[] = ["channels", "members", "acl"];
const LEDGER_FAMILIES = ["gate", "stage", "actor"] as const;
const RECORD_FAMILIES = ["uid", "lifecycle", "frontier"] as const;

const inbox = (scope: HolderScope): Row => sub(store, inboxGrant(scope.holder.uid, scope.inboxNonce), "§9 item 1");

export function backupReaderRows(scope: HolderScope): Row[] {
  const { chat, dm, task, dlv, bucket } = spaceNames(scope.space);
  const content = [chat, dm, task, dlv];
  return [
    inbox(scope),
    ...[...content, ...READ_BUCKETS.map((key) => bucketStream(bucket[key]))].flatMap((stream) => [
      pub(store, jsApi.streamInfo(stream), "H35, where a stream stands"),
      pub(store, jsApi.messageGet(stream), "H35, leader reads of all that it holds"),
    ]),
    ...content.map((stream) => pub(store, jsApi.consumerList(stream), "H47, how far each durable has come")),
  ];
}

export function spaceRestorerRows(scope: HolderScope): Row[] {
  const subjects = spaceSubjects(scope.space);
  const { bucket, ...streams } = spaceNames(scope.space);
  const { chat, dm, task, dlv } = streams;
  const content = [chat, dm, task, dlv];
  const all = [...Object.values(streams), ...Object.values(bucket).map(bucketStream)];
  const read = [...content, ...READ_BUCKETS.map((key) => bucketStream(bucket[key]))];
  return [
    inbox(scope),
    pub(store, sys.ownConnections, "§8.1 nobody else may be connected"),
    ...all.flatMap((stream) => [
      pub(store, jsApi.streamDelete(stream), "H35, streams are made anew"),
      pub(store, jsApi.streamCreate(stream), "H35, streams are made anew"),
      pub(store, jsApi.streamInfo(stream), "supplement H, shape proof"),
    ]),
    ...content.map((stream) => pub(store, jsApi.streamPurge(stream), "H35, holes of the old streams")),
    ...[chat, dm, dlv].map((stream) => pub(store, jsApi.streamUpdate(stream), "§8 history limits")),
    ...read.map((stream) => pub(store, jsApi.messageGet(stream), "H35, all that was written is read again")),
    ...[subjects.chatAll, subjects.instAll, subjects.svcAll, subjects.dlvAll, subjects.dlvMarkers].map((subject) =>
      pub(store, subject, "H35, messages as they were"),
    ),
    ...[dm, dlv, task].flatMap((stream) => [
      pub(store, `${jsApi.consumerCreate(stream, "*")}.>`, "H47, durables that go on"),
      pub(store, jsApi.consumerInfo(stream, "*"), "H47, durables that go on"),
      pub(store, jsApi.consumerList(stream), "H47, durables that go on"),
    ]),
    ...WRITTEN_BUCKETS.map((key) => pub(store, kvKey(bucket[key], ">"), "H35, rows as they were")),
    ...LEDGER_FAMILIES.map((family) => pub(store, kvKey(bucket.auth, `${family}.>`), "H47, ledger rows")),
    ...RECORD_FAMILIES.map((family) => pub(store, kvKey(bucket.records, `${family}.>`), "H47, ledger rows")),
  ];
}
