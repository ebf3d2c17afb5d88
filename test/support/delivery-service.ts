/**
 * The delivery service of a test's space as a process of its own, and a caller that may ask it: a daemon
 * whose credentials the test mints from the keys in the state folder.
 */
import { randomBytes } from "node:crypto";
import { type Call, createCaller } from "../../shared/client/caller.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import type { Principal } from "../../shared/protocol/base/principals.ts";
import {
  ORACLE_DEADLINE_MS,
  type PrincipalVerdict,
  PrincipalsAnswer,
} from "../../shared/protocol/endpoint/delivery-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { type DeliveryService, spawnDelivery } from "./delivery-process.ts";
import { daemonCredential, freshHolder } from "./holders.ts";
import type { TestSpace } from "./space.ts";

export type { DeliveryService } from "./delivery-process.ts";

/** Spaces whose own delivery service somebody has in hand. */
const inHand = new WeakSet<TestSpace>();

/** The delivery service that the space was started with, to hurt; at each later call another process of it. */
export function startDeliveryService(space: TestSpace): DeliveryService {
  if (space.delivery === undefined || inHand.has(space)) return spawnDelivery({ state: space.state, url: space.url });
  inHand.add(space);
  return space.delivery;
}

export type BarrierCaller = {
  readonly call: Call;
  readonly evict: (...principals: readonly Principal[]) => Promise<PrincipalVerdict[]>;
  readonly liveness: (...principals: readonly Principal[]) => Promise<PrincipalVerdict[]>;
};

/** A caller with the front profile of one of the two daemons that may ask. */
export async function barrierCaller(
  space: TestSpace,
  profile: "auth-server" | "provisioner",
  name = "main",
): Promise<BarrierCaller> {
  const fresh = freshHolder(`u_${"b".repeat(26)}`, `barrier_${profile.replace("-", "_")}`);
  const scope = { ...fresh, space: name, instanceId: fresh.holder.uid, epoch: 1 };
  const credential = await daemonCredential(space, profile, "front", scope);
  const connection = await space.open(credential);
  const call = createCaller({
    nc: connection.nc,
    space: name,
    caller: fresh.holder,
    name: fresh.holder.principal.actor,
    inboxPrefix: connection.inboxPrefix,
    denials: watchDenials(connection.nc),
    random: randomBytes,
  });
  const ask =
    (command: string) =>
    async (...principals: readonly Principal[]) => {
      const { data } = await call(EndpointName.Delivery, command, { principals }, { deadlineMs: ORACLE_DEADLINE_MS });
      return PrincipalsAnswer.parse(data).principals;
    };
  return { call, evict: ask("evict-principals"), liveness: ask("principal-liveness") };
}
