/**
 * Mediated reads (decision H1): a client of a space reaches no store, so this daemon reads for it, onto the caller's
 * own reply rail.
 *
 * Siblings: `read-list.ts` what a caller may read now; one file for each kind of read.
 *
 * Invariants
 * 1. Every read of channels looks the caller's list up at the leader first, at every page. Nothing of it is kept.
 * 2. One answer is one message, bounded in rows and in bytes; what did not fit is named by where it begins.
 * 3. Reading changes nothing, and leaves nothing behind in the store: a page that is lost with this process is asked
 *    for again, of whatever process answers then.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { ReadCommand as Name } from "../../../shared/grants/commands.ts";
import type { SpaceNames } from "../../../shared/protocol/base/names.ts";
import { spaceNames } from "../../../shared/protocol/base/names.ts";
import { type SpaceSubjects, spaceSubjects } from "../../../shared/protocol/base/subjects.ts";
import { READS_CLUSTER } from "../../../shared/protocol/endpoint/reads-contract.ts";
import { type HandlerTable, type Handlers, handlersOf } from "../../../shared/serve/serve.ts";
import { registryPage } from "../../../shared/serve/registry.ts";
import { artifacts } from "./artifacts.ts";
import { channels, frontier } from "./channels.ts";
import { dmHistory, history } from "./history.ts";
import type { AclReader } from "./read-list.ts";
import { records } from "./records.ts";
import { roster } from "./roster.ts";
import { SNAPSHOT_BYTES, answerRoom } from "./room.ts";

/** What the reads of one space are made from. */
export type Mediator = {
  readonly space: string;
  readonly names: SpaceNames;
  readonly subjects: SpaceSubjects;
  readonly store: NatsConnection;
  readonly acl: AclReader;
};

export const mediatorOf = (space: string, store: NatsConnection, acl: AclReader): Mediator => ({
  space,
  names: spaceNames(space),
  subjects: spaceSubjects(space),
  store,
  acl,
});

type ReadHandlers = Handlers<typeof READS_CLUSTER>;

export function readHandlers(mediator: Mediator): HandlerTable {
  // The grants and the contract name the same reads, or this does not type.
  const handlers: { readonly [N in Name]: ReadHandlers[N] } = {
    [Name.Channels]: (args, { caller }) => channels(mediator, caller, args),
    [Name.Roster]: (args) => roster(mediator, args),
    [Name.Frontier]: (args, { caller }) => frontier(mediator, caller, args),
    [Name.History]: (args, { caller }) => history(mediator, caller, args),
    [Name.DmHistory]: (args) => dmHistory(mediator, args),
    [Name.Artifacts]: (args) => artifacts(mediator, args),
    [Name.Endpoints]: ({ cursor }) => registryPage(mediator, cursor, answerRoom(mediator, SNAPSHOT_BYTES)),
    [Name.Records]: (args) => records(mediator, args),
  };
  return handlersOf(READS_CLUSTER, handlers);
}
