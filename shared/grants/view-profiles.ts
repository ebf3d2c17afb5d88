/**
 * Rows of the views (§9, §10): closed profiles that the callout mints instead of `agent`.
 *
 * Invariants
 * 1. Nothing of an agent's grants comes with a view: no message, no presence, no channel.
 * 2. What a claim names (an instance, a session, an object) is the only one that its rows reach.
 * 3. Every row lies in front, as of all who are not trusted (decision H60): where the specification has a
 *    client ask the store for information or a last message, nothing here does.
 */
import { inboxGrant, jsAck, jsApi, objectChunks, objectMeta } from "../protocol/base/broker-subjects.ts";
import { dmDurable, spaceNames, transferBucket, transferObject } from "../protocol/base/names.ts";
import { EndpointName, endpointSubjects } from "../protocol/endpoint/grammar.ts";
import type { HolderScope } from "./client-profiles.ts";
import { DEPLOYER_COMMANDS, DEPLOYER_READS, MANAGER_COMMANDS, ProvisionerCommand, ReadCommand } from "./commands.ts";
import { Account, type Row, pub, sub } from "./row.ts";

export type ManagerCallerScope = HolderScope & {
  readonly managerInstanceId: string;
  /** Of the actor's row, as the ledger has them now. */
  readonly capabilities: readonly string[];
};

export type SessionCallerScope = HolderScope & {
  readonly session: { readonly endpoint: string; readonly sessionId: string; readonly epoch: number };
};

export type TransferWriterScope = HolderScope & {
  readonly transferWriter: { readonly instanceId: string; readonly hex: string };
};

const front = Account.Front;

const inbox = ({ holder, inboxNonce }: HolderScope): Row => sub(front, inboxGrant(holder.uid, inboxNonce), "§9 item 1");

const replies = ({ space, holder }: HolderScope): Row =>
  sub(front, endpointSubjects(space).replyGrant(holder), "§13.2 reply rail");

/** Commands of the provisioner, mediated reads, and what answers both. */
function callerOf(
  scope: HolderScope,
  commands: readonly ProvisionerCommand[],
  why: string,
  reads: readonly ReadCommand[] = [ReadCommand.Channels],
): Row[] {
  const ep = endpointSubjects(scope.space);
  return [
    inbox(scope),
    replies(scope),
    ...commands.map((command) => pub(front, ep.oneGrant(EndpointName.Provisioner, command, scope.holder), why)),
    ...reads.map((command) => pub(front, ep.oneGrant(EndpointName.Delivery, command, scope.holder), why)),
  ];
}

const { ChannelSet, ChannelPurge, HistoryPurge } = ProvisionerCommand;

export const channelWriterRows = (scope: HolderScope): Row[] =>
  callerOf(scope, [ChannelSet], "supplement F, channel-writer");

export const channelPurgerRows = (scope: HolderScope): Row[] => callerOf(scope, [ChannelPurge], "§10 channel-purger");

export const purgerRows = (scope: HolderScope): Row[] =>
  callerOf(scope, [ChannelPurge, HistoryPurge], "supplement F, purger");

export const deployerRows = (scope: HolderScope): Row[] =>
  callerOf(scope, DEPLOYER_COMMANDS, "supplement F, deployer", DEPLOYER_READS);

export function managerCallerRows(scope: ManagerCallerScope): Row[] {
  const ep = endpointSubjects(scope.space);
  const commands = scope.capabilities.flatMap((scopeName) => MANAGER_COMMANDS.get(scopeName) ?? []);
  return [
    inbox(scope),
    replies(scope),
    ...["describe", ...new Set(commands)].map((command) =>
      pub(
        front,
        ep.instGrant(EndpointName.Manager, scope.managerInstanceId, command, scope.holder),
        "§9 manager-caller, that instance",
      ),
    ),
  ];
}

export function sessionCallerRows(scope: SessionCallerScope): Row[] {
  const ep = endpointSubjects(scope.space);
  const { endpoint, sessionId, epoch } = scope.session;
  return [
    inbox(scope),
    pub(front, ep.session(endpoint, sessionId, epoch, "in"), "§13.6 session, the caller speaks"),
    sub(front, ep.session(endpoint, sessionId, epoch, "out"), "§13.6 session, the caller hears"),
  ];
}

export function transferWriterRows(scope: TransferWriterScope): Row[] {
  const { instanceId, hex } = scope.transferWriter;
  const bucket = transferBucket(scope.space, instanceId);
  return [
    inbox(scope),
    pub(front, objectChunks(bucket, hex), "§8 chunks of one transcript"),
    pub(front, objectMeta(bucket, transferObject(hex)), "§8 the record that commits it"),
  ];
}

export function dmReaderRows(scope: HolderScope): Row[] {
  const { dm } = spaceNames(scope.space);
  const durable = dmDurable(scope.holder.principal, scope.holder.uid);
  return [
    inbox(scope),
    pub(front, jsApi.next(dm, durable), "§9 dm-reader, own inbox"),
    pub(front, jsAck.of(dm, durable), "§9 dm-reader, own inbox"),
  ];
}
