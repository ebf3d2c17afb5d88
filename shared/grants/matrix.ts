/**
 * The profile matrix (§9, supplement E and F): every profile of a space, in one table.
 *
 * Invariants
 * 1. Default deny: what no row names, no credential may do. No profile is allow-all.
 * 2. A profile that nothing uses yet is `unbuilt`: it mints nothing until the issue that needs it
 *    writes its rows in full (decision H56).
 */
import { type ObserverScope, membershipObserverRows, membershipRwRows } from "./feed-profiles.ts";
import { Account, type Row } from "./row.ts";
import {
  type AgentScope,
  type HolderScope,
  adminRows,
  agentRows,
  observerRows,
  operatorRows,
  probeRows,
} from "./client-profiles.ts";
import {
  type ManagerCallerScope,
  type SessionCallerScope,
  type TransferWriterScope,
  channelPurgerRows,
  channelWriterRows,
  deployerRows,
  dmReaderRows,
  managerCallerRows,
  purgerRows,
  sessionCallerRows,
  transferWriterRows,
} from "./view-profiles.ts";
import {
  type EvictorScope,
  type ScannerScope,
  type ServeScope,
  type ServiceScope,
  type TargetScope,
  authCalloutRows,
  authEdgeRows,
  authLedgerRows,
  authServerRows,
  connectionEvictorRows,
  deliveryReaderRows,
  deliveryRows,
  deprovisionerRows,
  entrantRows,
  historyPurgerRows,
  ledgerRows,
  ledgerScannerRows,
  provisionerDeskRows,
  provisionerRows,
  registrarRows,
  serviceRows,
  storeUpgraderRows,
  systemAdministratorRows,
} from "./host-profiles.ts";

import { backupReaderRows, spaceRestorerRows } from "./keeper-profiles.ts";

const HOUR = 3600;
const DAY = 24 * HOUR;

/** Life of a credential in seconds, by how it is used (PF.02, decision H18). */
export const Life = { OneShot: 300, Service: 600, Errand: 6 * HOUR, Static: 30 * DAY, Host: DAY } as const;

type Built<Scope> = {
  readonly state: "built";
  readonly summary: string;
  readonly accounts: readonly Account[];
  /** Untrusted profiles are the ones that the probes attack with (decision H50). */
  readonly trusted: boolean;
  readonly lifeSeconds: number;
  /** It may answer each message that it receives once, within this time, wherever the answer goes. */
  readonly answersWithinSeconds?: number;
  readonly rows: (scope: Scope) => Row[];
};
type Unbuilt = { readonly state: "unbuilt"; readonly summary: string };

const { Front, Store, Auth, System } = Account;

const built = <Scope>(profile: Omit<Built<Scope>, "state">): Built<Scope> => ({ state: "built", ...profile });
/** A narrow profile of somebody who is not trusted (§9, §10). */
const view = <Scope>(summary: string, rows: (scope: Scope) => Row[]): Built<Scope> =>
  built({ summary, accounts: [Front], trusted: false, lifeSeconds: Life.OneShot, rows });
const unbuilt = (summary: string): Unbuilt => ({ state: "unbuilt", summary });

export const PROFILES = {
  agent: built<AgentScope>({
    summary: "a peer: posts and reads within its two lists, its own inbox, its role's queue",
    accounts: [Front],
    trusted: false,
    lifeSeconds: Life.Static,
    rows: agentRows,
  }),
  observer: built<HolderScope>({
    summary: "reads all chat, history, presence and the channel registry; publishes nothing",
    accounts: [Front],
    trusted: false,
    lifeSeconds: Life.Static,
    rows: observerRows,
  }),
  admin: built<HolderScope>({
    summary: "an observer that also sees direct messages and anycast, live and past",
    accounts: [Front],
    trusted: false,
    lifeSeconds: Life.Static,
    rows: adminRows,
  }),
  operator: built<HolderScope>({
    summary: "the person who runs the space: mint, deprovision, limits, channels, check",
    accounts: [Front],
    trusted: false,
    lifeSeconds: Life.Static,
    rows: operatorRows,
  }),
  "channel-writer": view<HolderScope>("edits channel settings and nothing else", channelWriterRows),
  "channel-purger": view<HolderScope>("removes the history of one channel", channelPurgerRows),
  purger: view<HolderScope>("removes history, of one channel or of all chat", purgerRows),
  deployer: view<HolderScope>("compares a manifest with the space, and applies it", deployerRows),
  "manager-caller": view<ManagerCallerScope>("calls one manager instance and nothing else", managerCallerRows),
  "session-caller": view<SessionCallerScope>("speaks and hears in one session", sessionCallerRows),
  "transfer-writer": view<TransferWriterScope>("uploads one carried transcript", transferWriterRows),
  "dm-reader": view<HolderScope>("reads one direct-message inbox with its own durable and nothing else", dmReaderRows),
  service: built<ServiceScope>({
    summary: "one instance of somebody's endpoint: serves its registered commands and nothing else",
    accounts: [Front],
    trusted: false,
    lifeSeconds: Life.Service,
    rows: serviceRows,
  }),
  probe: built<HolderScope>({
    summary: "asks a space for its own findings and nothing else",
    accounts: [Front],
    trusted: false,
    lifeSeconds: Life.OneShot,
    rows: probeRows,
  }),
  provisioner: built<ServeScope>({
    summary: "sets the space up, mints, keeps limits and settings",
    accounts: [Front, Store],
    trusted: true,
    lifeSeconds: Life.Host,
    rows: provisionerRows,
  }),
  "provisioner-desk": built<ServeScope>({
    summary: "the provisioner's second connection: what an operator asks of it",
    accounts: [Front],
    trusted: true,
    lifeSeconds: Life.Host,
    rows: provisionerDeskRows,
  }),
  ledger: built<HolderScope>({
    summary: "writes the identity ledger: reservations, gates, heads, credential rows",
    accounts: [Store],
    trusted: true,
    lifeSeconds: Life.Host,
    rows: ledgerRows,
  }),
  registrar: built<HolderScope>({
    summary: "a daemon that asks the auth service to enter its credentials",
    accounts: [Front],
    trusted: true,
    lifeSeconds: Life.OneShot,
    rows: registrarRows,
  }),
  "auth-callout": built<HolderScope>({
    summary: "answers the broker's questions about who may come in",
    accounts: [Auth],
    trusted: true,
    lifeSeconds: Life.Host,
    answersWithinSeconds: 10,
    rows: authCalloutRows,
  }),
  "auth-ledger": built<HolderScope>({
    summary: "the auth service's ledger: actors, lifecycles, credentials, read ACLs, durables of new lifecycles",
    accounts: [Store],
    trusted: true,
    lifeSeconds: Life.Host,
    rows: authLedgerRows,
  }),
  "ledger-scanner": built<ScannerScope>({
    summary: "enumerates one store of the ledger for the authority plane, through one consumer",
    accounts: [Store],
    trusted: true,
    lifeSeconds: Life.Host,
    rows: ledgerScannerRows,
  }),
  "auth-server": built<ServeScope>({
    summary: "serves the commands of the actor ledger",
    accounts: [Front],
    trusted: true,
    lifeSeconds: Life.Host,
    rows: authServerRows,
  }),
  "auth-edge": built<HolderScope>({
    summary: "an instance of the auth service that does not keep the plane: asks for new activations",
    accounts: [Front],
    trusted: true,
    lifeSeconds: Life.Host,
    rows: authEdgeRows,
  }),
  deprovisioner: built<TargetScope>({
    summary: "removes what one ended lifecycle left, by exact names",
    accounts: [Store],
    trusted: true,
    lifeSeconds: Life.OneShot,
    rows: deprovisionerRows,
  }),
  "history-purger": built<HolderScope>({
    summary: "removes chat history, for one command of a purger",
    accounts: [Store],
    trusted: true,
    lifeSeconds: Life.OneShot,
    rows: historyPurgerRows,
  }),
  "store-upgrader": built<HolderScope>({
    summary: "brings the ledger's store of an earlier version up to date, for one start",
    accounts: [Store],
    trusted: true,
    lifeSeconds: Life.OneShot,
    rows: storeUpgraderRows,
  }),
  "backup-reader": built<HolderScope>({
    summary: "reads all that a backup is made of, and writes nothing",
    accounts: [Store],
    trusted: true,
    lifeSeconds: Life.Errand,
    rows: backupReaderRows,
  }),
  "space-restorer": built<HolderScope>({
    summary: "fills a space that nobody serves yet from a backup",
    accounts: [Store],
    trusted: true,
    lifeSeconds: Life.Errand,
    rows: spaceRestorerRows,
  }),
  "system-administrator": built<HolderScope>({
    summary: "the trust program: adds accounts, revokes users, checks every server's limits",
    accounts: [System],
    trusted: true,
    lifeSeconds: Life.OneShot,
    rows: systemAdministratorRows,
  }),
  delivery: built<ServeScope>({
    summary: "durable membership and its copies, requests to a role; says who of a principal is connected",
    accounts: [Front, Store],
    trusted: true,
    lifeSeconds: Life.Host,
    rows: deliveryRows,
  }),
  "delivery-reader": built<ServeScope>({
    summary: "the delivery service's second pair of connections: mediated reads, and no write",
    accounts: [Front, Store],
    trusted: true,
    lifeSeconds: Life.Host,
    rows: deliveryReaderRows,
  }),
  "daemon-entrant": built<HolderScope>({
    summary: "a daemon that asks whoever writes the ledger to enter its credentials",
    accounts: [Front],
    trusted: true,
    lifeSeconds: Life.OneShot,
    rows: entrantRows,
  }),
  "connection-evictor": built<EvictorScope>({
    summary: "lists the connections of one space and closes those of a revoked principal",
    accounts: [System],
    trusted: true,
    lifeSeconds: Life.Static,
    rows: connectionEvictorRows,
  }),
  "membership-rw": built<HolderScope>({
    summary: "writes the membership feed, from the rows of durable membership and what the observer sees",
    accounts: [Store],
    trusted: true,
    lifeSeconds: Life.Host,
    rows: membershipRwRows,
  }),
  "membership-observer": built<ObserverScope>({
    summary: "lists the connections of one space's front with what they have subscribed to",
    accounts: [System],
    trusted: true,
    lifeSeconds: Life.Static,
    rows: membershipObserverRows,
  }),
  supervisor: unbuilt("the manager's own work"),
  teardown: unbuilt("removes a whole space"),
  issuer: unbuilt("reads the ledger for the exchange"),
  "run-admitter": unbuilt("admits one workflow run"),
  "retirement-requester": unbuilt("asks for the end of one lifecycle"),
  "transfer-reader": unbuilt("reads one manager instance's transfers"),
  // Of the end of one lifecycle that work pools hold work for (§13.1, §13.8): each is minted for one operation.
  "commit-applier": unbuilt("writes what a drained obligation has accepted"),
  "pool-route-reconciler": unbuilt("finishes the way of drained work into its pool"),
  "effects-canceller": unbuilt("cancels effects of drained work"),
  "pool-cleaner": unbuilt("settles the work that the ended lifecycle holds, in exactly those pools"),
  "settlement-executor": unbuilt("decides expired and orphaned work of one pool, item by item"),
} as const satisfies Record<string, Built<never> | Unbuilt>;

export type ProfileName = keyof typeof PROFILES;
export type BuiltProfile = {
  [Name in ProfileName]: (typeof PROFILES)[Name] extends Built<never> ? Name : never;
}[ProfileName];
export type ScopeOf<Name extends BuiltProfile> = Parameters<(typeof PROFILES)[Name]["rows"]>[0];

/** True for a profile that something can be minted from. */
export function isBuilt(name: string): name is BuiltProfile {
  return Object.hasOwn(PROFILES, name) && PROFILES[name as ProfileName].state === "built";
}

/** The rows of one profile for one holder. */
export function profileRows<Name extends BuiltProfile>(name: Name, scope: ScopeOf<Name>): Row[] {
  const profile = PROFILES[name] as unknown as Built<ScopeOf<Name>>;
  return profile.rows(scope);
}
