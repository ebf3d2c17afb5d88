/**
 * Rows of the profiles that connect to front and are not trusted (§9, supplement F, decision H50).
 *
 * Invariants
 * 1. No row here names a `$JS.API` subject but the holder's own single pull (decision H60).
 * 2. No row lies in the store account: no client reaches it.
 * 3. Sender tokens are the holder's own in every publish row (§3 forge-lock).
 * 4. A capability opens a command of somebody else's endpoint, to oneself or within one's own owner: no other
 *    mode comes from one (§13.2).
 */
import {
  AuthzMode,
  type Caller,
  DESCRIBE,
  EndpointName,
  Route,
  type TargetBlock,
  endpointSubjects,
} from "../protocol/endpoint/grammar.ts";
import { Plane, spaceSubjects } from "../protocol/base/subjects.ts";
import { inboxGrant, jsAck, jsApi, kvAll, kvKey } from "../protocol/base/broker-subjects.ts";
import { dlvDurable, dmDurable, roleDurable, spaceNames } from "../protocol/base/names.ts";
import { dotForm } from "../protocol/base/principals.ts";
import { Account, type Row, pub, sub } from "./row.ts";
import { isCoreEndpoint, isOwnCommand } from "../protocol/endpoint/names.ts";
import { badRequest } from "../protocol/base/errors.ts";
import {
  ANYCAST_COMMANDS,
  MEMBER_COMMANDS,
  MEMBER_READS,
  OPERATOR_AUTH_COMMANDS,
  OPERATOR_COMMANDS,
  OPERATOR_DELIVERY_COMMANDS,
  OPERATOR_READS,
  PROOF_COMMANDS,
  ProvisionerCommand,
  ReadCommand,
  SERVE_COMMANDS,
} from "./commands.ts";

/** Who holds a credential, and the inbox it was minted with. */
export type HolderScope = {
  readonly space: string;
  readonly holder: Caller;
  /** Nonce of the reply inbox `_INBOX_<uid>_<nonce>` (decision H61). */
  readonly inboxNonce: string;
};

/** A command of somebody's endpoint that a capability opens, as its governance head says now. */
export type GrantedCommand = {
  readonly endpoint: string;
  readonly command: string;
  /** Absent: it has no target. */
  readonly modes?: readonly AuthzMode[];
  /** May ask all its instances at once. */
  readonly scatter: boolean;
};

/** Of who has no capability that opens a command. */
export const NO_COMMANDS: Pick<AgentScope, "commands" | "serves"> = { commands: [], serves: false };

/** An agent's scope (§9): read ACL, post ACL, the role it holds, if any, and what its capabilities come to. */
export type AgentScope = HolderScope & {
  readonly allowSubscribe: readonly string[];
  readonly allowPublish: readonly string[];
  readonly role?: string;
  readonly commands: readonly GrantedCommand[];
  /** May register and serve what its owner has been assigned. */
  readonly serves: boolean;
};

const front = Account.Front;

/** Own inbox and own reply rail: what every caller of a command needs. */
function callerRows(scope: HolderScope): Row[] {
  return [
    sub(front, inboxGrant(scope.holder.uid, scope.inboxNonce), "§9 item 1"),
    sub(front, endpointSubjects(scope.space).replyGrant(scope.holder), "§13.2 reply rail"),
  ];
}

/** What any endpoint says of itself to this caller. */
function describeRow(scope: HolderScope): Row {
  return pub(
    front,
    endpointSubjects(scope.space).oneGrant("*", DESCRIBE, scope.holder),
    "§13.9 describe by default (H30)",
  );
}

function commandRows(
  scope: HolderScope,
  commands: readonly string[],
  why: string,
  endpoint: EndpointName = EndpointName.Provisioner,
): Row[] {
  const ep = endpointSubjects(scope.space);
  return commands.map((command) => pub(front, ep.oneGrant(endpoint, command, scope.holder), why));
}

/** The space's settings, and the mediated reads of whoever belongs to it. */
function readRows(scope: HolderScope, reads: readonly ReadCommand[]): Row[] {
  return [
    ...commandRows(scope, [ProvisionerCommand.Space], "H54, settings of the space"),
    ...commandRows(scope, reads, "§9 mediated reads (H1)", EndpointName.Delivery),
  ];
}

/** Pull and ack of one durable of the holder's own; never create, info or delete. */
function bindRows(stream: string, durable: string, why: string): Row[] {
  return [pub(front, jsApi.next(stream, durable), why), pub(front, jsAck.of(stream, durable), why)];
}

/** Asks whether a plane is served, and never answers for one (§6.1). */
function livenessRows({ space, holder: { principal: me } }: HolderScope): Row[] {
  const subjects = spaceSubjects(space);
  return [Plane.Manager, Plane.Delivery].flatMap((plane) => [
    sub(front, subjects.liveReplies(plane, me), "§6.1 liveness replies"),
    pub(front, subjects.live(plane, me), "§6.1 liveness requests"),
  ]);
}

export function agentRows(scope: AgentScope): Row[] {
  const subjects = spaceSubjects(scope.space);
  const names = spaceNames(scope.space);
  const { principal: me, uid } = scope.holder;
  return [
    ...callerRows(scope),
    ...scope.allowSubscribe.map((channel) => sub(front, subjects.chatRead(channel), "§9 item 2, read ACL")),
    sub(front, kvAll(names.bucket.presence), "§6 presence, live part of a watch (H33)"),
    ...scope.allowPublish.map((channel) => pub(front, subjects.chatGrant(me, channel), "§9 post ACL")),
    pub(front, subjects.instGrant(me), "§3 forge-lock, direct messages"),
    pub(front, subjects.svcGrant(me), "§3 forge-lock, anycast"),
    ...livenessRows(scope),
    pub(front, kvKey(names.bucket.presence, dotForm(me)), "§6 own presence key"),
    describeRow(scope),
    ...readRows(scope, MEMBER_READS),
    ...commandRows(scope, ANYCAST_COMMANDS, "§8.1 own requests to a role", EndpointName.Delivery),
    ...commandRows(scope, MEMBER_COMMANDS, "§7 own durable membership", EndpointName.Delivery),
    ...commandRows(scope, PROOF_COMMANDS, "§8 what waits for it, where its own messages are", EndpointName.Delivery),
    ...bindRows(names.dm, dmDurable(me, uid), "§8 own inbox, bind only"),
    ...bindRows(names.dlv, dlvDurable(me, uid), "§8 own backstop, bind only"),
    ...(scope.role === undefined ? [] : roleRows(scope, scope.role)),
    ...scope.commands.flatMap((granted) => capabilityRows(scope, granted)),
    ...(scope.serves ? commandRows(scope, SERVE_COMMANDS, "supplement A, registers what it serves") : []),
  ];
}

/** Invariant 4. What the head says of any other mode is no row. */
const TARGETS: Partial<Record<AuthzMode, (owner: string) => TargetBlock>> = {
  [AuthzMode.Self]: () => ({ mode: AuthzMode.Self }),
  [AuthzMode.Owner]: (owner) => ({ mode: AuthzMode.Owner, owner }),
};

function capabilityRows({ space, holder }: HolderScope, granted: GrantedCommand): Row[] {
  const { endpoint, command, modes, scatter } = granted;
  if (isCoreEndpoint(endpoint) || !isOwnCommand(command)) {
    throw badRequest("a capability opens a command of somebody else's endpoint, and none that is reserved");
  }
  const ep = endpointSubjects(space);
  if (modes === undefined) {
    const routes = [Route.One, ...(scatter ? [Route.All] : [])] as const;
    return routes.map((route) => pub(front, ep.grant({ route, endpoint, command }, holder), WHY[route]));
  }
  return Object.values(AuthzMode).flatMap((mode) => {
    const target = modes.includes(mode) ? TARGETS[mode]?.(holder.principal.owner) : undefined;
    if (target === undefined) return [];
    return [pub(front, ep.grant({ route: Route.One, endpoint, command, target }, holder), "§13.9 by capability")];
  });
}

const WHY = {
  [Route.One]: "§13.9 by capability",
  [Route.All]: "§13.9 by capability with @all, scatter",
} as const;

function roleRows(scope: AgentScope, role: string): Row[] {
  const subjects = spaceSubjects(scope.space);
  const me = scope.holder.principal;
  return [
    pub(front, subjects.take(role, me), "§8.1 take"),
    sub(front, subjects.takeReplies(role, me), "§8.1 take replies (H7)"),
    ...bindRows(spaceNames(scope.space).task, roleDurable(role), "§8 role queue, bind only"),
  ];
}

export function observerRows(scope: HolderScope): Row[] {
  return [
    ...callerRows(scope),
    sub(front, spaceSubjects(scope.space).chatAll, "§9 observer, all chat"),
    sub(front, kvAll(spaceNames(scope.space).bucket.presence), "§9 observer, presence"),
    ...readRows(scope, MEMBER_READS),
  ];
}

export function adminRows(scope: HolderScope): Row[] {
  const subjects = spaceSubjects(scope.space);
  return [
    ...observerRows(scope),
    sub(front, subjects.instAll, "§9 admin, live direct messages"),
    sub(front, subjects.svcAll, "§9 admin, live anycast"),
    ...commandRows(scope, [ReadCommand.DmHistory], "§9 admin, DM history, mediated", EndpointName.Delivery),
  ];
}

export function operatorRows(scope: HolderScope): Row[] {
  return [
    ...callerRows(scope),
    describeRow(scope),
    ...commandRows(scope, OPERATOR_COMMANDS, "supplement F, operator"),
    ...commandRows(scope, OPERATOR_READS, "supplement F, operator, mediated reads", EndpointName.Delivery),
    ...commandRows(scope, OPERATOR_AUTH_COMMANDS, "supplement F, operator, actor ledger", EndpointName.Auth),
    ...commandRows(scope, OPERATOR_DELIVERY_COMMANDS, "§8 what waits for whom", EndpointName.Delivery),
    ...livenessRows(scope),
  ];
}

export function probeRows(scope: HolderScope): Row[] {
  return [...callerRows(scope), ...commandRows(scope, [ProvisionerCommand.Check], "supplement F, probe")];
}
