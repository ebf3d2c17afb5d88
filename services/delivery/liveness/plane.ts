/**
 * The delivery plane of one space as one daemon has it: which member groups it holds, and the answer to who asks if
 * the plane is served.
 *
 * Invariants
 * 1. Only who holds a group serves the filter (decision H51): where nobody does, the broker's own no-responders
 *    says so.
 * 2. Who lost its last one answers from the rows for a moment more and then lets go: whoever asked meanwhile hears
 *    a truth.
 */
import { randomBytes } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import { type LeaseHolder, groupLease, lookAtLease } from "../../../shared/broker/lease.ts";
import { createLiveness } from "./liveness.ts";
import { gradeLeases } from "./verdict.ts";

/** A run of the daemon: the next run of it has a higher epoch (§13.1), and takes its leases over at once. */
export type Run = {
  readonly uid: string;
  readonly epoch: number;
  readonly instanceId: string;
  readonly principal: string;
};

export function holderOf({ uid, epoch, instanceId, principal }: Run): LeaseHolder {
  return {
    holder: `${uid}.${epoch}.${instanceId}`,
    principal,
    succeeds: ({ holder }) => {
      const [its, at] = holder.split(".");
      return its === uid && Number(at) < epoch;
    },
  };
}

export type PlaneOptions = {
  readonly space: string;
  /** How many member groups are in force. */
  readonly groups: () => Promise<number>;
  readonly front: NatsConnection;
  readonly store: NatsConnection;
  /** As the lease rows name this run. */
  readonly holder: string;
  readonly onDropped: (why: string) => void;
  readonly lettingGoMs?: number;
};

export type DeliveryPlane = {
  readonly held: (group: number) => void;
  readonly lost: (group: number) => void;
  /** The front connection dropped. */
  readonly disconnected: () => void;
  readonly stop: () => void;
};

const LETTING_GO_MS = 1000;

export function createPlane(options: PlaneOptions): DeliveryPlane {
  const { space, front, store, holder, onDropped, lettingGoMs = LETTING_GO_MS } = options;
  const held = new Set<number>();
  let letGo: NodeJS.Timeout | undefined;
  const liveness = createLiveness({
    nc: front,
    space,
    random: randomBytes,
    verdict: async () => {
      const places = Array.from({ length: await options.groups() }, (_, n) => groupLease(space, n));
      return gradeLeases(await Promise.all(places.map((place) => lookAtLease(store, place))), holder);
    },
    onDropped,
  });
  return {
    held: (group) => {
      clearTimeout(letGo);
      if (held.size === 0) liveness.bind();
      held.add(group);
    },
    lost: (group) => {
      held.delete(group);
      if (held.size > 0) return;
      clearTimeout(letGo);
      letGo = setTimeout(liveness.unbind, lettingGoMs);
    },
    disconnected: liveness.disconnected,
    stop: () => {
      clearTimeout(letGo);
      liveness.unbind();
    },
  };
}
