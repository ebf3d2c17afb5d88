/**
 * Commands of the endpoint `auth`: the table of what it serves. Who may call which stands in the grants
 * (`shared/grants/commands.ts`); the broker enforces it.
 */
import { AuthCommand as Name } from "../../shared/grants/commands.ts";
import type { Connected } from "../../shared/broker/still-connected.ts";
import { principal } from "../../shared/protocol/base/principals.ts";
import { AUTH_CLUSTER } from "../../shared/protocol/endpoint/auth-contract.ts";
import type { ActorGrantArgs, ActorNarrowArgs, ShownActor } from "../../shared/protocol/endpoint/auth-shapes.ts";
import type { ActorRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { type HandlerTable, type Handlers, handlersOf } from "../../shared/serve/serve.ts";
import { ownerToken } from "../../shared/trust/owner.ts";
import type { ActorAdministration, Changed } from "./plane/authority-type.ts";
import type { EdgeAnswers } from "./plane/elsewhere.ts";

type AuthHandlers = Handlers<typeof AUTH_CLUSTER>;

export function authHandlers(ledger: ActorAdministration, edges: EdgeAnswers, ownerSecret: Uint8Array): HandlerTable {
  const ownerOf = (owner: ActorGrantArgs["owner"]): string =>
    typeof owner === "string" ? owner : ownerToken(ownerSecret, owner.issuer, owner.subject);
  // The grants and the contract name the same commands, or this does not type.
  const handlers: { readonly [N in Name]: AuthHandlers[N] } = {
    [Name.ActorGrant]: async ({ owner, name, kind, ...args }) => {
      const granted = await ledger.grant({
        ...args,
        owner: ownerOf(owner),
        name: name ?? args.actor,
        kind: kind ?? "interactive",
        allowSubscribe: args.allowSubscribe ?? [],
        allowPublish: args.allowPublish ?? [],
        capabilities: args.capabilities ?? [],
      });
      return changed(granted);
    },
    [Name.ActorNarrow]: async ({ owner, actor, role, ...lists }) => {
      const narrowed = await ledger.narrow(principal(owner, actor), {
        ...defined(lists),
        ...(role === undefined ? {} : { role: role ?? "" }),
      });
      return changed(narrowed);
    },
    [Name.ActorRevoke]: async ({ owner, actor }) => {
      const { connections, ...revoked } = await ledger.revoke(principal(owner, actor));
      return { ...revoked, connections: shownConnections(connections) };
    },
    [Name.RetireLifecycle]: ({ owner, actor, lifecycleUid }) => ledger.retire(principal(owner, actor), lifecycleUid),
    [Name.TakeoverLifecycle]: async ({ owner, actor, lifecycleUid, epoch }) => ({
      epoch: await ledger.takeOver(principal(owner, actor), lifecycleUid, epoch),
    }),
    [Name.OperationList]: async ({ cursor }) => {
      const { held, unreadable, ...rest } = await ledger.operations(cursor);
      return { ...rest, operations: [...held], unreadable: [...unreadable] };
    },
    [Name.DaemonEnter]: (args, { caller }) => ledger.enterDaemon(caller, args),
    [Name.Serving]: (args, { caller }) => ledger.serving(caller, args),
    [Name.Enrol]: async (args, { caller }) => {
      await edges.enrol(caller, args);
      return {};
    },
    [Name.ChatOpen]: async (args, { caller }) => ({ session: await edges.chatOpen(caller, args) }),
    [Name.ActorList]: async (page) => {
      const { actors, unreadable, ...rest } = await ledger.list(page);
      return { ...rest, actors: actors.map(shown), unreadable: [...unreadable] };
    },
  };
  return handlersOf(AUTH_CLUSTER, handlers);
}

function shown(row: ActorRow): ShownActor {
  const { secretDigest: _, ...rest } = row;
  return rest;
}

const changed = ({ narrowing, ...row }: Changed) => ({
  actor: shown(row),
  ...(narrowing === undefined ? {} : { narrowing }),
});
function shownConnections(found: Connected) {
  if (found.kind === "some") return { state: found.kind, count: found.count };
  return found.kind === "unknown" ? { state: found.kind, why: found.why } : { state: found.kind };
}

type Lists = Pick<ActorNarrowArgs, "allowSubscribe" | "allowPublish" | "capabilities">;

function defined({ allowSubscribe, allowPublish, capabilities }: Lists) {
  return {
    ...(allowSubscribe === undefined ? {} : { allowSubscribe }),
    ...(allowPublish === undefined ? {} : { allowPublish }),
    ...(capabilities === undefined ? {} : { capabilities }),
  };
}
