/**
 * Commands of the endpoint `auth`: the table of what it serves. Who may call which stands in the grants
 * (`shared/grants/commands.ts`); the broker enforces it.
 */
import { AuthCommand as Name } from "../../shared/grants/commands.ts";
import { principal } from "../../shared/protocol/base/principals.ts";
import {
  ActorGrantArgs,
  ActorListArgs,
  ActorNarrowArgs,
  ActorRevokeArgs,
  DaemonEnterArgs,
  type ShownActor,
} from "../../shared/protocol/endpoint/auth-shapes.ts";
import type { ActorRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { type Command, command } from "../../shared/serve/serve.ts";
import { ownerToken } from "../../shared/trust/owner.ts";
import type { ActorAdministration } from "./plane/authority-type.ts";

export function authCommands(ledger: ActorAdministration, ownerSecret: Uint8Array): Readonly<Record<Name, Command>> {
  const ownerOf = (owner: ActorGrantArgs["owner"]): string =>
    typeof owner === "string" ? owner : ownerToken(ownerSecret, owner.issuer, owner.subject);
  return {
    [Name.ActorGrant]: command(ActorGrantArgs, async ({ owner, name, kind, ...args }) => {
      const actor = await ledger.grant({
        ...args,
        owner: ownerOf(owner),
        name: name ?? args.actor,
        kind: kind ?? "interactive",
        allowSubscribe: args.allowSubscribe ?? [],
        allowPublish: args.allowPublish ?? [],
        capabilities: args.capabilities ?? [],
      });
      return { actor: shown(actor) };
    }),
    [Name.ActorNarrow]: command(ActorNarrowArgs, async ({ owner, actor, role, ...lists }) => {
      const narrowed = await ledger.narrow(principal(owner, actor), {
        ...defined(lists),
        ...(role === undefined ? {} : { role: role ?? "" }),
      });
      return { actor: shown(narrowed) };
    }),
    [Name.ActorRevoke]: command(ActorRevokeArgs, ({ owner, actor }) => ledger.revoke(principal(owner, actor))),
    [Name.DaemonEnter]: command(DaemonEnterArgs, (args, { caller }) => ledger.enterDaemon(caller, args)),
    [Name.ActorList]: command(ActorListArgs, async (page) => {
      const { actors, ...rest } = await ledger.list(page);
      return { actors: actors.map(shown), ...rest };
    }),
  };
}

function shown(row: ActorRow): ShownActor {
  const { secretDigest: _, ...rest } = row;
  return rest;
}

type Lists = Pick<ActorNarrowArgs, "allowSubscribe" | "allowPublish" | "capabilities">;

function defined({ allowSubscribe, allowPublish, capabilities }: Lists) {
  return {
    ...(allowSubscribe === undefined ? {} : { allowSubscribe }),
    ...(allowPublish === undefined ? {} : { allowPublish }),
    ...(capabilities === undefined ? {} : { capabilities }),
  };
}
