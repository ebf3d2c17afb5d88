/**
 * Commands of the endpoints of this project, and who may call them.
 *
 * A grant names a command, so the broker enforces it (§13.9); the handler only narrows.
 */

import { Scope } from "../protocol/endpoint/views.ts";

/** Served by the provisioner. */
export const ProvisionerCommand = {
  Space: "space",
  Mint: "mint",
  Deprovision: "deprovision",
  DeprovisionComplete: "deprovision-complete",
  ChannelSet: "channel-set",
  LimitsShow: "limits-show",
  LimitsSet: "limits-set",
  LimitsPreview: "limits-preview",
  GroupsSet: "groups-set",
  Check: "check",
  ChannelPurge: "channel-purge",
  HistoryPurge: "history-purge",
  Register: "register",
  EndpointAssign: "endpoint-assign",
  CallerView: "caller-view",
  DaemonEnter: "daemon-enter",
} as const;
export type ProvisionerCommand = (typeof ProvisionerCommand)[keyof typeof ProvisionerCommand];

/** Served by the auth service: the actor ledger (§10), and rows that another daemon needs (decision H14). */
export const AuthCommand = {
  ActorGrant: "actor-grant",
  ActorNarrow: "actor-narrow",
  ActorRevoke: "actor-revoke",
  ActorList: "actor-list",
  RetireLifecycle: "retire-lifecycle",
  TakeoverLifecycle: "takeover-lifecycle",
  OperationList: "operation-list",
  DaemonEnter: "daemon-enter",
  Serving: "serving",
  Enrol: "enrol",
  ChatOpen: "chat-open",
} as const;
export type AuthCommand = (typeof AuthCommand)[keyof typeof AuthCommand];

/**
 * Served by the delivery service: durable membership (§7), what became of an ask (§8.1), proof of delivery, who of a
 * principal is connected, and ending that (§13.1), and whether a narrowed read list has been swept for (§8).
 */
export const DeliveryCommand = {
  EvictPrincipals: "evict-principals",
  PrincipalLiveness: "principal-liveness",
  DurableJoin: "durable-join",
  DurableLeave: "durable-leave",
  DurableList: "durable-list",
  AnycastStatus: "anycast-status",
  AnycastCancel: "anycast-cancel",
  AnycastTakes: "anycast-takes",
  AclSwept: "acl-swept",
  Pending: "pending",
  GroupsShow: "groups-show",
  Proof: "proof",
  Members: "members",
  ReloadCreds: "reload-creds",
} as const;
export type DeliveryCommand = (typeof DeliveryCommand)[keyof typeof DeliveryCommand];

/** Mediated reads, served by the delivery service beside its other commands (decision H1). */
export const ReadCommand = {
  Channels: "channels",
  Roster: "roster",
  Frontier: "frontier",
  History: "history",
  DmHistory: "dm-history",
  Artifacts: "artifacts",
  Endpoints: "endpoints",
  Records: "records",
} as const;
export type ReadCommand = (typeof ReadCommand)[keyof typeof ReadCommand];

/** What of it the two daemons may ask for that end somebody's credentials (PF.04). */
export const BARRIER_COMMANDS: readonly DeliveryCommand[] = [
  DeliveryCommand.EvictPrincipals,
  DeliveryCommand.PrincipalLiveness,
];

/** What of it the auth service may ask for beside: to take up credentials that were renewed (supplement F). */
export const RELOAD_COMMANDS: readonly DeliveryCommand[] = [DeliveryCommand.ReloadCreds];

/** What of it those may ask for who only look: who hears a channel, as the membership feed has it (§8). */
export const FEED_COMMANDS: readonly DeliveryCommand[] = [DeliveryCommand.Members];

/** What of it every agent may ask for: its own requests to a role, and whether they are handed out (§8.1). */
export const ANYCAST_COMMANDS: readonly DeliveryCommand[] = [
  DeliveryCommand.AnycastStatus,
  DeliveryCommand.AnycastCancel,
  DeliveryCommand.AnycastTakes,
];

/** What of it every agent may ask for, of itself (§7). */
export const MEMBER_COMMANDS: readonly DeliveryCommand[] = [
  DeliveryCommand.DurableJoin,
  DeliveryCommand.DurableLeave,
  DeliveryCommand.DurableList,
];

/**
 * What of it every agent may ask for: what waits for itself, and where a message of its own is. One command for
 * both, because each is a grant in a credential that has only so much room (16 KiB, supplement E).
 */
export const PROOF_COMMANDS: readonly DeliveryCommand[] = [DeliveryCommand.Proof];

/** What of it the operator may ask for: what waits for anybody, and how many member groups there are. */
export const OPERATOR_DELIVERY_COMMANDS: readonly DeliveryCommand[] = [
  DeliveryCommand.Pending,
  DeliveryCommand.GroupsShow,
];

/** What of it the auth service's own edges ask for: an instance that does not hold the plane (decision H45). */
export const EDGE_COMMANDS: readonly AuthCommand[] = [AuthCommand.Enrol, AuthCommand.ChatOpen];

/** What of the actor ledger the operator may ask for. */
export const OPERATOR_AUTH_COMMANDS: readonly AuthCommand[] = [
  AuthCommand.ActorGrant,
  AuthCommand.ActorNarrow,
  AuthCommand.ActorRevoke,
  AuthCommand.ActorList,
  AuthCommand.RetireLifecycle,
  AuthCommand.TakeoverLifecycle,
  AuthCommand.OperationList,
];

/** Mediated reads that every member of a space may ask for: all but direct messages of others. */
export const MEMBER_READS: readonly ReadCommand[] = [
  ReadCommand.Channels,
  ReadCommand.Roster,
  ReadCommand.Frontier,
  ReadCommand.History,
  ReadCommand.Artifacts,
  ReadCommand.Endpoints,
  ReadCommand.Records,
];

/** The operator reads no channel. */
export const OPERATOR_READS: readonly ReadCommand[] = [
  ReadCommand.Channels,
  ReadCommand.Roster,
  ReadCommand.Artifacts,
  ReadCommand.Endpoints,
];

/** What a manifest is compared with (supplement F). */
export const DEPLOYER_READS: readonly ReadCommand[] = [ReadCommand.Channels, ReadCommand.Roster];

/** What the operator's own credential may ask for. */
export const OPERATOR_COMMANDS: readonly ProvisionerCommand[] = [
  ProvisionerCommand.Space,
  ProvisionerCommand.Mint,
  ProvisionerCommand.Deprovision,
  ProvisionerCommand.DeprovisionComplete,
  ProvisionerCommand.ChannelSet,
  ProvisionerCommand.LimitsShow,
  ProvisionerCommand.LimitsSet,
  ProvisionerCommand.LimitsPreview,
  ProvisionerCommand.GroupsSet,
  ProvisionerCommand.Check,
  ProvisionerCommand.ChannelPurge,
  ProvisionerCommand.HistoryPurge,
  ProvisionerCommand.EndpointAssign,
];

/**
 * What the capability `serve` opens: to register and renew an instance (there is no command `service-register`
 * or `service-renew`: `register` takes both), and to ask what a caller of one's own endpoint may see.
 */
export const SERVE_COMMANDS: readonly ProvisionerCommand[] = [
  ProvisionerCommand.Register,
  ProvisionerCommand.CallerView,
];

/**
 * What the provisioner serves over a connection of its own: what only an operator or a view of one asks. One
 * credential does not carry the rails of all its commands (16 KiB, supplement E).
 */
export const DESK_COMMANDS: readonly ProvisionerCommand[] = [
  ProvisionerCommand.Mint,
  ProvisionerCommand.Deprovision,
  ProvisionerCommand.DeprovisionComplete,
  ProvisionerCommand.ChannelSet,
  ProvisionerCommand.LimitsShow,
  ProvisionerCommand.LimitsSet,
  ProvisionerCommand.LimitsPreview,
  ProvisionerCommand.GroupsSet,
  ProvisionerCommand.Check,
  ProvisionerCommand.ChannelPurge,
  ProvisionerCommand.HistoryPurge,
  ProvisionerCommand.EndpointAssign,
];

/** What a `deployer` may ask for: to compare a manifest with the space, and to apply it (supplement F). */
export const DEPLOYER_COMMANDS: readonly ProvisionerCommand[] = [
  ProvisionerCommand.Space,
  ProvisionerCommand.ChannelSet,
  ProvisionerCommand.Check,
];

/**
 * Commands of a manager by the scope that opens them (§9): a launch, and the reads that one needs.
 * `slots` is nobody's by `spawn`. The manager's other commands come with the manager.
 */
export const MANAGER_COMMANDS: ReadonlyMap<string, readonly string[]> = new Map([
  [Scope.Spawn, ["spawn", "status", "models", "resolve-cwd", "ps"]],
]);
