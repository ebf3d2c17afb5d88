/**
 * Commands of the endpoint `delivery`: the table of what it serves. Who may call which stands in the grants
 * (`shared/grants/commands.ts`); the broker enforces it.
 */
import { DeliveryCommand as Name } from "../../shared/grants/commands.ts";
import { DELIVERY_CLUSTER } from "../../shared/protocol/endpoint/delivery-contract.ts";
import { type HandlerTable, type Handlers, handlersOf } from "../../shared/serve/serve.ts";
import type { Anycast } from "./anycast/anycast.ts";
import type { Oracle } from "./oracle/oracle.ts";

type DeliveryHandlers = Handlers<typeof DELIVERY_CLUSTER>;

export function deliveryHandlers(oracle: Oracle, anycast: Anycast["handlers"]): HandlerTable {
  // The grants and the contract name the same commands, or this does not type.
  const handlers: { readonly [N in Name]: DeliveryHandlers[N] } = {
    ...anycast,
    [Name.EvictPrincipals]: async ({ principals }) => ({ principals: await oracle.evict(principals) }),
    [Name.PrincipalLiveness]: async ({ principals }) => ({ principals: await oracle.liveness(principals) }),
  };
  return handlersOf(DELIVERY_CLUSTER, handlers);
}
