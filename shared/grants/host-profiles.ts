/**
 * Rows of the daemons' own profiles (supplement F): one function each, exact subjects, no bare `>`.
 *
 * A daemon holds a front connection for the rails it serves and a store connection for what it
 * owns; a row says in which account it holds.
 */
import { DESCRIBE, EndpointName, Route, endpointSubjects } from "../protocol/endpoint/grammar.ts";
import { isCoreEndpoint, isOwnCommand } from "../protocol/endpoint/names.ts";
import { planeGrants } from "../protocol/endpoint/planes.ts";
import { badRequest } from "../protocol/base/errors.ts";
import { inboxGrant, jsAck, jsApi, kvAll, kvKey, sys } from "../protocol/base/broker-subjects.ts";
import {
  type BucketKey,
  bucketStream,
  dlvDurable,
  dmDurable,
  leaseGrant,
  recordWriterDurable,
  type ScannedStore,
  scannedStream,
  scannerConsumer,
  spaceNames,
} from "../protocol/base/names.ts";
import type { Principal } from "../protocol/base/principals.ts";
import { ledgerKey } from "../protocol/ledger/rows.ts";
import { actorKey } from "../protocol/ledger/actor-rows.ts";
import { CHAT_FAMILIES } from "../protocol/ledger/chat-rows.ts";
import { recordFilter } from "../protocol/ledger/record-kinds.ts";
import { statusReports } from "../protocol/endpoint/status-rail.ts";
import { LIVE_QUEUE, Plane, TAKE_QUEUE, spaceSubjects } from "../protocol/base/subjects.ts";
import {
  DESK_COMMANDS,
  AuthCommand,
  BARRIER_COMMANDS,
  DeliveryCommand,
  EDGE_COMMANDS,
  ProvisionerCommand,
  ReadCommand,
  RELOAD_COMMANDS,
} from "./commands.ts";
import type { HolderScope } from "./client-profiles.ts";
import { Account, type Row, pub, queueSub, sub } from "./row.ts";

/** A serving daemon: its instance and the epoch of this process (§13.1). */
export type ServeScope = HolderScope & { readonly instanceId: string; readonly epoch: number };

/** One instance of somebody's endpoint: the name that its owner was assigned, and what was registered under it. */
export type ServiceScope = ServeScope & { readonly endpoint: string; readonly commands: readonly string[] };

/** Whose connections may be looked at: the accounts of one space, by their public keys. */
export type EvictorScope = HolderScope & { readonly spaceAccounts: readonly string[] };

/** The one lifecycle a deprovisioner may clean up (§13.1 teardown credentials). */
export type TargetScope = HolderScope & { readonly target: { readonly principal: Principal; readonly uid: string } };

const { Front: front, Store: store, Auth: auth } = Account;

/** Queue group of the responders of one auth account: they share the requests (§10). */
export const CALLOUT_QUEUE = "callout";

function inbox(account: Account, scope: HolderScope): Row {
  return sub(account, inboxGrant(scope.holder.uid, scope.inboxNonce), "§9 item 1");
}

const SERVE_WHY: Readonly<Record<Route, string>> = {
  [Route.One]: "§13.9 serve, class rail",
  [Route.All]: "§13.9 serve, scatter",
  [Route.Inst]: "§13.9 serve, own instance",
};

/** An endpoint's own rails: each command on three routes of both rails, and derived replies. */
function serveRows(scope: ServeScope, own: string, commands: readonly string[]): Row[] {
  const ep = endpointSubjects(scope.space);
  return [
    ...commands
      .flatMap((command) => ep.serve(own, scope.instanceId, command))
      .map(({ route, subject, queue }) =>
        queue === undefined ? sub(front, subject, SERVE_WHY[route]) : queueSub(front, subject, queue, SERVE_WHY[route]),
      ),
    ...ep
      .serveReplies(own, scope.instanceId, scope.epoch)
      .map((subject) => pub(front, subject, "§13.9 serve, derived replies")),
  ];
}

/**
 * An instance of somebody's endpoint (supplement E). It asks nobody anything and reads nothing but what it is
 * asked; what its process wants as an actor, it does over that actor's own connection.
 */
export function serviceRows(scope: ServiceScope): Row[] {
  const { space, endpoint, instanceId, epoch, commands } = scope;
  if (isCoreEndpoint(endpoint) || !commands.every(isOwnCommand)) {
    throw badRequest("a service serves an endpoint of its owner's, and no command that is reserved");
  }
  const { event, timer, record } = planeGrants(space, { endpoint, instanceId, epoch });
  return [
    inbox(front, scope),
    ...serveRows(scope, endpoint, [...new Set([...commands, DESCRIBE])]),
    pub(front, event, "supplement E, own events"),
    pub(front, timer, "supplement E, own timers"),
    pub(front, record, "supplement E, own records"),
  ];
}

/** Buckets the provisioner reads by key or page. */
const READ_BUCKETS: readonly BucketKey[] = ["channels", "acl", "leases", "records"];

/** Buckets whose rows the provisioner writes. */
const WRITE_BUCKETS: readonly BucketKey[] = ["channels", "leases"];

const ROOM_COMMANDS = Object.values(ProvisionerCommand).filter((command) => !DESK_COMMANDS.includes(command));

/** The provisioner's second connection in front: what an operator asks of it. */
export function provisionerDeskRows(scope: ServeScope): Row[] {
  return [inbox(front, scope), ...serveRows(scope, EndpointName.Provisioner, DESK_COMMANDS)];
}

export function provisionerRows(scope: ServeScope): Row[] {
  const names = spaceNames(scope.space);
  const streams = [...Object.values(names).filter((name) => typeof name === "string"), ...allBuckets(scope.space)];
  return [
    inbox(front, scope),
    ...serveRows(scope, EndpointName.Provisioner, [...ROOM_COMMANDS, DESCRIBE]),
    pub(front, sys.ownConnections, "§13.1 is a predecessor of a serving instance still connected"),
    sub(front, endpointSubjects(scope.space).replyGrant(scope.holder), "§13.2 reply rail"),
    ...barrierRows(scope),
    inbox(store, scope),
    pub(store, jsApi.info, "account limits, for the check of a space"),
    ...streams.flatMap((stream) => [
      pub(store, jsApi.streamCreate(stream), "§8 space setup"),
      pub(store, jsApi.streamInfo(stream), "supplement H, shape proof"),
    ]),
    ...[names.chat, names.dm, names.dlv].map((stream) => pub(store, jsApi.streamUpdate(stream), "§8 history limits")),
    ...[names.dm, names.dlv, names.task].flatMap((stream) => [
      pub(store, `${jsApi.consumerCreate(stream, "*")}.>`, "§8 durables per lifecycle and role"),
      pub(store, jsApi.consumerInfo(stream, "*"), "§8 durables, shape proof"),
      pub(store, jsApi.consumerList(stream), "what every durable has out, for the check of a space"),
    ]),
    ...READ_BUCKETS.flatMap((key) => {
      const stream = bucketStream(names.bucket[key]);
      return [
        pub(store, jsApi.messageGet(stream), "leader read of a row"),
        pub(store, jsApi.directGet(stream), "paged read of rows"),
      ];
    }),
    ...WRITE_BUCKETS.map((key) => pub(store, kvKey(names.bucket[key], ">"), "rows this daemon owns")),
    ...[recordFilter("svc", "spec"), recordFilter("svc", "status"), recordFilter("govern")].map((filter) =>
      pub(store, kvKey(names.bucket.records, filter), "supplement B, service records, governance heads"),
    ),
    pub(store, spaceSubjects(scope.space).epcAll, "supplement E, contract publisher"),
    pub(store, jsApi.messageGet(names.epc), "supplement A, what is published already"),
    ...recordWriterRows(scope.space),
  ];
}

/** One durable with its one filter: what instances report, and nothing else of that stream. */
function recordWriterRows(space: string): Row[] {
  const { epr } = spaceNames(space);
  const durable = recordWriterDurable(space, "svc");
  const why = "supplement E, record writer of svc";
  return [
    pub(store, jsApi.consumerCreateFiltered(epr, durable, statusReports(space)), why),
    pub(store, jsApi.consumerInfo(epr, durable), why),
    pub(store, jsApi.next(epr, durable), why),
    pub(store, jsAck.of(epr, durable), why),
  ];
}

/** Whoever ends a credential ends its connections too, and proves it (§13.1). */
function barrierRows({ space, holder }: HolderScope): Row[] {
  const ep = endpointSubjects(space);
  return BARRIER_COMMANDS.map((command) =>
    pub(front, ep.oneGrant(EndpointName.Delivery, command, holder), "§13.1 takeover barrier, eviction"),
  );
}

function allBuckets(space: string): string[] {
  return Object.values(spaceNames(space).bucket).map(bucketStream);
}

/** Whose name an endpoint's is, an instance's gate, its credentials (§13.1). */
const SERVING_FAMILIES = ["servicename", "epgate", "epcred"] as const;

/** Gates of handles, and what was redeemed under each (§13.1). */
const SOURCE_FAMILIES = ["srcgate", "bysrc"] as const;

/** Issued authority (§13.15): evidence, attempts, the index from their sources; and what was accepted. */
function issuedRows(space: string): Row[] {
  const { issued, accepted } = spaceNames(space).bucket;
  const why = "§13.15 issued authority";
  return [
    ...["v1", "attempt.v1", "bysource.v1"].map((family) => pub(store, kvKey(issued, `${family}.>`), why)),
    pub(store, kvKey(accepted, "accepted.v1.*"), why),
  ];
}

/** The ledger's own credential (decision H14): the auth service takes it over. */
export function ledgerRows(scope: HolderScope): Row[] {
  const { bucket } = spaceNames(scope.space);
  const stores = [bucket.auth, bucket.records, bucket.acl, bucket.issued, bucket.accepted].map(bucketStream);
  return [
    inbox(store, scope),
    ...stores.flatMap((stream) => [
      pub(store, jsApi.streamInfo(stream), "supplement H, shape proof"),
      pub(store, jsApi.messageGet(stream), "§13.9 leader reads"),
    ]),
    ...issuedRows(scope.space),
    ...["gate", "cred", "stage", ...SOURCE_FAMILIES, ...SERVING_FAMILIES].map((family) =>
      pub(store, kvKey(bucket.auth, `${family}.>`), "§13.1 ledger rows"),
    ),
    ...["uid", "lifecycle", "frontier"].map((family) =>
      pub(store, kvKey(bucket.records, `${family}.>`), "§13.1 reservation, head, frontier"),
    ),
    pub(store, kvKey(bucket.acl, ">"), "read ACL of each lifecycle (H34)"),
  ];
}

/** Answers the broker's questions about who may come in (§10). It answers each once and says nothing else. */
export function authCalloutRows(scope: HolderScope): Row[] {
  return [inbox(auth, scope), queueSub(auth, sys.userAuth, CALLOUT_QUEUE, "§10 callout, shared by its responders")];
}

/** Families of the auth and records buckets that the auth service writes (§10, §13.1, decision H45). */
const AUTH_FAMILIES = [
  "gate",
  "cred",
  "stage",
  "actor",
  "natkey",
  ...SOURCE_FAMILIES,
  ...SERVING_FAMILIES,
  ...CHAT_FAMILIES,
] as const;
const RECORD_FAMILIES = ["uid", "lifecycle", "frontier"] as const;

/** The auth service in the store: its ledger, and what a new lifecycle needs before anybody may use it. */
export function authLedgerRows(scope: HolderScope): Row[] {
  const names = spaceNames(scope.space);
  const { bucket } = names;
  // Sessions are read and never written: they belong to who serves them (§10).
  const { auth, records, acl, sessions, issued, accepted } = bucket;
  const stores = [auth, records, acl, sessions, issued, accepted].map(bucketStream);
  const durables = [names.dm, names.dlv, names.task];
  return [
    inbox(store, scope),
    ...stores.flatMap((stream) => [
      pub(store, jsApi.streamInfo(stream), "supplement H, shape proof"),
      pub(store, jsApi.messageGet(stream), "§13.9 leader reads"),
    ]),
    pub(store, jsApi.messageGet(bucketStream(bucket.channels)), "H54, the space's settings"),
    pub(store, kvKey(bucket.auth, actorKey.plane), "supplement I, the plane's claim"),
    pub(store, sys.ownConnections, "supplement I, is the holder of the claim connected"),
    pub(store, sys.ping("STATSZ"), "supplement I, are these all the servers it could be connected to"),
    ...AUTH_FAMILIES.map((family) => pub(store, kvKey(bucket.auth, `${family}.>`), "§10 and §13.1 ledger rows")),
    ...RECORD_FAMILIES.map((family) =>
      pub(store, kvKey(bucket.records, `${family}.>`), "§13.1 reservation, head, frontier"),
    ),
    pub(store, kvKey(bucket.acl, ">"), "read ACL of each lifecycle (H34)"),
    ...issuedRows(scope.space),
    ...[names.chat, ...durables].map((stream) =>
      pub(store, jsApi.streamInfo(stream), "§8 where an inbox begins, §13.1 where a lifecycle ended"),
    ),
    ...durables.flatMap((stream) => [
      pub(store, `${jsApi.consumerCreate(stream, "*")}.>`, "§8 durables per lifecycle and role"),
      pub(store, jsApi.consumerInfo(stream, "*"), "§8 durables, shape proof"),
    ]),
  ];
}

/** One of the plane's two scanners: which store it enumerates. */
export type ScannerScope = HolderScope & { readonly scans: ScannedStore };

/** A scanner makes, pulls and deletes one consumer of one stream, by its literal name, and does nothing else (supplement E). */
export function ledgerScannerRows(scope: ScannerScope): Row[] {
  const { space, scans } = scope;
  const [stream, consumer] = [scannedStream(space, scans), scannerConsumer(space, scans)];
  const why = "supplement E, sealed scanner";
  return [
    inbox(store, scope),
    pub(store, jsApi.consumerCreate(stream, consumer), why),
    pub(store, jsApi.next(stream, consumer), why),
    pub(store, jsApi.consumerDelete(stream, consumer), why),
  ];
}

/** The auth service in front: it serves the commands of the actor ledger. */
export function authServerRows(scope: ServeScope): Row[] {
  const ep = endpointSubjects(scope.space);
  return [
    inbox(front, scope),
    ...serveRows(scope, EndpointName.Auth, [...Object.values(AuthCommand), DESCRIBE]),
    pub(front, sys.ownConnections, "§13.1 is anybody of an ended lifecycle still connected"),
    sub(front, ep.replyGrant(scope.holder), "§13.2 reply rail"),
    pub(front, ep.oneGrant(EndpointName.Provisioner, ProvisionerCommand.Register, scope.holder), "service record"),
    ...barrierRows(scope),
    pub(
      front,
      ep.oneGrant(EndpointName.Delivery, DeliveryCommand.AclSwept, scope.holder),
      "§8 a narrowing is swept for",
    ),
    ...RELOAD_COMMANDS.map((command) =>
      pub(front, ep.oneGrant(EndpointName.Delivery, command, scope.holder), "supplement F, credentials are renewed"),
    ),
    ...edgeCallRows(scope),
  ];
}

/** An edge of the auth service: it asks whoever holds the plane for what only that one writes (decision 31). */
export function authEdgeRows(scope: HolderScope): Row[] {
  return [
    inbox(front, scope),
    sub(front, endpointSubjects(scope.space).replyGrant(scope.holder), "§13.2 reply rail"),
    ...edgeCallRows(scope),
  ];
}

function edgeCallRows({ space, holder }: HolderScope): Row[] {
  const ep = endpointSubjects(space);
  return EDGE_COMMANDS.map((command) =>
    pub(front, ep.oneGrant(EndpointName.Auth, command, holder), "H45, new activations are the plane's"),
  );
}

/** Buckets that the delivery service reads by key and page, and never decides from anything else. */
const DELIVERY_READS: readonly BucketKey[] = ["acl", "members", "channels", "presence", "leases"];

/** What it only shows, and decides nothing from (§8). */
const DELIVERY_SHOWS: readonly BucketKey[] = ["membership"];

/** The delivery service: in front it serves and registers, in the store it keeps what it answers from. */
export function deliveryRows(scope: ServeScope): Row[] {
  const ep = endpointSubjects(scope.space);
  return [
    inbox(front, scope),
    ...serveRows(scope, EndpointName.Delivery, [...Object.values(DeliveryCommand), DESCRIBE]),
    sub(front, ep.replyGrant(scope.holder), "§13.2 reply rail"),
    pub(front, ep.oneGrant(EndpointName.Provisioner, ProvisionerCommand.Register, scope.holder), "service record"),
    inbox(store, scope),
    ...livenessRows(scope),
    ...anycastRows(scope),
    ...fanoutRows(scope),
    ...proofRows(scope),
  ];
}

/** Buckets that a mediated read pages through. */
const MEDIATED_PAGES: readonly BucketKey[] = ["channels", "presence", "records"];
/** Buckets of which a mediated read needs one row as it is at the leader. */
const MEDIATED_ROWS: readonly BucketKey[] = ["acl", "channels", "records"];

/**
 * The delivery service's second pair of connections: mediated reads (decision H1). It writes nothing: in front it
 * hears the reads, and what answers them goes out where the other answers do.
 */
export function deliveryReaderRows(scope: ServeScope): Row[] {
  const names = spaceNames(scope.space);
  const streamOf = (key: BucketKey): string => bucketStream(names.bucket[key]);
  return [
    inbox(front, scope),
    ...serveRows(scope, EndpointName.Delivery, Object.values(ReadCommand)),
    inbox(store, scope),
    pub(store, jsApi.streamInfo(names.chat), "§7 the frontier, and where history begins and ends"),
    pub(store, jsApi.directGet(names.chat), "§9 mediated history, paged"),
    pub(store, jsApi.messageGet(names.dm), "§9 mediated history of direct messages"),
    pub(store, jsApi.messageGet(names.epc), "supplement A, artifacts as they are published"),
    ...MEDIATED_ROWS.map((key) => pub(store, jsApi.messageGet(streamOf(key)), "leader read of a row")),
    ...MEDIATED_PAGES.map((key) => pub(store, jsApi.directGet(streamOf(key)), "paged read of rows")),
  ];
}

/** The delivery plane's liveness (§6.1): its filter and the leaf of its answers. */
function livenessRows({ space }: ServeScope): Row[] {
  const subjects = spaceSubjects(space);
  return [
    queueSub(front, subjects.liveServe(Plane.Delivery), LIVE_QUEUE(Plane.Delivery), "§6.1 liveness, serve filter"),
    pub(front, subjects.liveServeReply(Plane.Delivery), "§6.1 liveness, answers"),
  ];
}

/**
 * Posts and the rows that say who gets them are read; copies, markers, memberships and the leases of the groups
 * are written (`delivery.md`).
 */
function fanoutRows({ space }: ServeScope): Row[] {
  const subjects = spaceSubjects(space);
  const names = spaceNames(space);
  return [
    ...[subjects.chatAll, kvAll(names.bucket.acl)].map((subject) =>
      sub(store, subject, "§4 fan-out, told that there is something to read"),
    ),
    pub(store, jsApi.directGet(names.chat), "§4 fan-out, posts in order"),
    ...[names.chat, names.dlv].flatMap((stream) => [
      pub(store, jsApi.messageGet(stream), "§4 fan-out, leader reads of posts, markers and copies"),
      pub(store, jsApi.streamInfo(stream), "§7 the frontier, §8 the limit that a copy is stamped with"),
    ]),
    pub(store, jsApi.messageDelete(names.dlv), "§8 copies that a narrowed read list no longer covers"),
    pub(store, subjects.dlvAll, "§8 backstop, copies"),
    pub(store, subjects.dlvMarkers, "§8 backstop, the group's marker"),
    ...[...DELIVERY_READS, ...DELIVERY_SHOWS]
      .map((key) => bucketStream(names.bucket[key]))
      .flatMap((stream) => [
        pub(store, jsApi.messageGet(stream), "leader read of a row"),
        pub(store, jsApi.directGet(stream), "paged read of rows"),
      ]),
    pub(store, kvKey(names.bucket.members, ">"), "§7 durable membership"),
    pub(store, jsApi.streamInfo(bucketStream(names.bucket.membership)), "§8 feed, how old it is"),
    pub(store, jsApi.streamInfo(bucketStream(names.bucket.leases)), "H53, the broker's clock"),
    pub(store, kvKey(names.bucket.leases, leaseGrant("delivery")), "H53, leases of its groups"),
  ];
}

/** How far each durable has come, and the clock by which an answer is told. */
function proofRows({ space }: ServeScope): Row[] {
  const { dm, dlv, task } = spaceNames(space);
  return [
    ...[dm, dlv, task].map((stream) => pub(store, jsApi.consumerInfo(stream, "*"), "§8 proof of delivery, counts")),
    pub(store, jsApi.streamInfo(dm), "§8 proof of delivery, what is stored"),
  ];
}

/** Takes of requests to a role, their records, and the notices that they owe (§8.1). */
function anycastRows({ space, holder }: ServeScope): Row[] {
  const subjects = spaceSubjects(space);
  const names = spaceNames(space);
  const stream = bucketStream(names.bucket.anycast);
  return [
    queueSub(front, subjects.takeServe, TAKE_QUEUE, "§8.1 takes (H55)"),
    pub(front, subjects.takeServeReply, "§8.1 answers to takes (H7)"),
    pub(store, jsApi.streamInfo(names.task), "§8.1 creation time, before and after a read"),
    pub(store, jsApi.messageGet(names.task), "§8.1 the stored request, leader read"),
    pub(store, jsApi.consumerList(names.task), "§8.1 what each role has out, for an alert"),
    pub(store, jsApi.messageDelete(names.task), "§8.1 a cancelled request leaves by its sequence"),
    pub(store, jsApi.messageGet(stream), "§8.1 records, leader read"),
    pub(store, jsApi.directGet(stream), "§8.1 records, paged, for the sweep"),
    pub(store, jsApi.messageDelete(stream), "§8.1 a record leaves by its revision"),
    pub(store, kvKey(names.bucket.anycast, "r.>"), "§8.1 records"),
    pub(store, subjects.instGrant(holder.principal), "§8.1 notices, from the own principal"),
    pub(store, jsApi.messageGet(names.dm), "§8.1 what a duplicate notice stands for"),
  ];
}

/** A daemon that writes no ledger, before it has a row: it asks whoever writes it, and may do nothing else. */
export function entrantRows(scope: HolderScope): Row[] {
  const ep = endpointSubjects(scope.space);
  return [
    inbox(front, scope),
    sub(front, ep.replyGrant(scope.holder), "§13.2 reply rail"),
    pub(front, ep.oneGrant(EndpointName.Auth, AuthCommand.DaemonEnter, scope.holder), "H14, where people sign in"),
    pub(front, ep.oneGrant(EndpointName.Provisioner, ProvisionerCommand.DaemonEnter, scope.holder), "H14, elsewhere"),
  ];
}

/** A daemon that asks the auth service to write the ledger for it, and may do nothing else. */
export function registrarRows(scope: HolderScope): Row[] {
  const ep = endpointSubjects(scope.space);
  return [
    inbox(front, scope),
    sub(front, ep.replyGrant(scope.holder), "§13.2 reply rail"),
    ...[AuthCommand.DaemonEnter, AuthCommand.Serving].map((command) =>
      pub(front, ep.oneGrant(EndpointName.Auth, command, scope.holder), "H14, rows on request"),
    ),
  ];
}

/** Removes what one ended lifecycle left, by exact names: it can't touch a successor. */
export function deprovisionerRows(scope: TargetScope): Row[] {
  const names = spaceNames(scope.space);
  const { principal, uid } = scope.target;
  return [
    inbox(store, scope),
    pub(store, jsApi.consumerDelete(names.dm, dmDurable(principal, uid)), "§13.1 exact teardown"),
    pub(store, jsApi.consumerDelete(names.dlv, dlvDurable(principal, uid)), "§13.1 exact teardown"),
    pub(store, kvKey(names.bucket.acl, ledgerKey.acl(principal, uid)), "§13.1 exact teardown"),
  ];
}

/** Removes chat history on somebody's word, once. */
export function historyPurgerRows(scope: HolderScope): Row[] {
  const { chat } = spaceNames(scope.space);
  return [inbox(store, scope), pub(store, jsApi.streamPurge(chat), "supplement F, purger: one removal of history")];
}

/** Turns on in the ledger's store what an earlier version left off, once. */
export function storeUpgraderRows(scope: HolderScope): Row[] {
  const stream = bucketStream(spaceNames(scope.space).bucket.auth);
  return [
    inbox(store, scope),
    pub(store, jsApi.streamInfo(stream), "supplement H, shape proof"),
    pub(store, jsApi.streamUpdate(stream), "supplement H, what an earlier version left off"),
  ];
}

/** The trust program's own system-account user: account claims and the servers' settings. */
export function systemAdministratorRows(scope: HolderScope): Row[] {
  const { System: system } = Account;
  return [
    inbox(system, scope),
    pub(system, sys.claimsUpdate, "resolver: add or change an account"),
    pub(system, sys.claimsLookup("*"), "resolver: verify what the server holds"),
    pub(system, sys.ping("VARZ"), "supplement H: line and payload limits of every server"),
    pub(system, sys.ping("STATSZ"), "supplement H: whether these are all the servers there are"),
    pub(system, sys.ping("CONNZ"), "who is still connected after a revocation"),
  ];
}

/**
 * Closes connections of a revoked principal, and proves it (§13.1). It lists those of one space's accounts;
 * which connection a KICK is about stands in its body, so that one the broker can't narrow.
 */
export function connectionEvictorRows(scope: EvictorScope): Row[] {
  const { System: system } = Account;
  return [
    inbox(system, scope),
    pub(system, sys.ping("STATSZ"), "§13.1 which servers there are"),
    ...scope.spaceAccounts.map((account) =>
      pub(system, sys.accountConnections(account), "§13.1 who is connected, in an account of this space"),
    ),
    pub(system, sys.server("*", "KICK"), "§13.1 ends one connection"),
  ];
}
