/**
 * Commands of the endpoint `delivery`: the table of what it serves. Who may call which stands in the grants
 * (`shared/grants/commands.ts`); the broker enforces it.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { type Setting, isDrained, markersInForce } from "../../shared/broker/markers.ts";
import { DeliveryCommand as Name } from "../../shared/grants/commands.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { DELIVERY_CLUSTER } from "../../shared/protocol/endpoint/delivery-contract.ts";
import { type HandlerTable, type Handlers, handlersOf } from "../../shared/serve/serve.ts";
import type { Anycast } from "./anycast/anycast.ts";
import { listMemberships } from "./fanout/durable.ts";
import { isSwept } from "./fanout/swept.ts";
import type { Groups } from "./fanout/groups.ts";
import { proofOf } from "./proof/proof.ts";
import { pendingPage } from "./proof/pending.ts";
import { readMembers } from "./feed/members.ts";
import { readReached } from "./feed/reached.ts";
import type { Oracle } from "./oracle/oracle.ts";
import type { Reload } from "./reload.ts";

type DeliveryHandlers = Handlers<typeof DELIVERY_CLUSTER>;

export type Served = {
  readonly oracle: Oracle;
  readonly anycast: Pick<Anycast, "handlers" | "status">;
  readonly groups: Groups;
  readonly store: NatsConnection;
  readonly space: string;
  readonly reload: Reload;
  readonly setting: Setting;
};

export function deliveryHandlers({ oracle, anycast, groups, store, space, reload, setting }: Served): HandlerTable {
  const proof = { store, space, setting, statusOf: anycast.status };
  // The grants and the contract name the same commands, or this does not type.
  const handlers: { readonly [N in Name]: DeliveryHandlers[N] } = {
    ...anycast.handlers,
    [Name.EvictPrincipals]: async ({ principals }) => ({ principals: await oracle.evict(principals) }),
    [Name.PrincipalLiveness]: async ({ principals }) => ({ principals: await oracle.liveness(principals) }),
    [Name.DurableJoin]: async ({ channel, cursor }, { caller, signal }) => {
      const membership = await groups.change({ kind: "join", pattern: channel, cursor }, caller, signal);
      if (membership === undefined) throw new CotalError(ErrorCode.Internal, "no row", { outcome: Outcome.Unknown });
      return membership;
    },
    [Name.DurableLeave]: async ({ channel }, { caller, signal }) => {
      const membership = await groups.change({ kind: "leave", pattern: channel }, caller, signal);
      return membership === undefined ? {} : { membership };
    },
    [Name.Members]: (args) => (args.of === "hears" ? readMembers : readReached)(store, space, args),
    [Name.ReloadCreds]: () => reload(),
    [Name.DurableList]: ({ cursor }, { caller }) => listMemberships(store, space, caller, cursor),
    [Name.AclSwept]: async (args, { signal }) => ({
      swept: await isSwept({ nc: store, space, setting }, args, signal),
    }),
    [Name.GroupsShow]: async () => {
      const [found, wanted] = [await markersInForce(store, space, setting), await setting()];
      const state = isDrained(found, wanted) ? "changed" : "changing";
      return { wanted, inForce: found.length, state };
    },
    [Name.Pending]: (args) => pendingPage(proof, args),
    [Name.Proof]: (args, { caller, signal }) => proofOf(proof, caller, args, signal),
  };
  return handlersOf(DELIVERY_CLUSTER, handlers);
}
