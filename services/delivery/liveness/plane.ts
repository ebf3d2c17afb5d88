/**
 * The delivery plane of one space as one daemon has it: its lease, and the answer to who asks if it is served.
 *
 * Invariants
 * 1. Only who holds the lease serves the filter (decision H51): where nobody does, the broker's own
 *    no-responders says so.
 * 2. Who lost it answers `stale` for a moment and then lets go: whoever asked meanwhile hears a truth.
 */
import { randomBytes } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import { type LeaseHolder, type LeasePlace, lookAtLease } from "../../../shared/broker/lease.ts";
import { DELIVERY_SERVICE } from "../../../shared/protocol/base/names.ts";
import { keepDuty } from "../duty.ts";
import { createLiveness } from "./liveness.ts";
import { gradeLeases } from "./verdict.ts";

export type PlaneEvent =
  | { readonly kind: "bound" | "lost" }
  | { readonly kind: "dropped"; readonly why: string }
  | { readonly kind: "failed"; readonly cause: unknown };

/** A run of one instance: the next run of it has a higher epoch (§13.1), and takes its lease over at once. */
export type Run = { readonly uid: string; readonly epoch: number; readonly principal: string };

export function holderOf({ uid, epoch, principal }: Run): LeaseHolder {
  return {
    holder: `${uid}.${epoch}`,
    principal,
    succeeds: ({ holder }) => {
      const [its, at] = holder.split(".");
      return its === uid && Number(at) < epoch;
    },
  };
}

export type PlaneOptions = {
  readonly space: string;
  readonly front: NatsConnection;
  readonly store: NatsConnection;
  readonly run: Run;
  readonly onEvent: (event: PlaneEvent) => void;
  readonly lettingGoMs?: number;
};

export type KeptPlane = { readonly disconnected: () => void; readonly stop: () => Promise<void> };

const LETTING_GO_MS = 1000;

/** The lease of the only member group that there is yet. */
export const planeLease = (space: string): LeasePlace => ({ space, service: DELIVERY_SERVICE, duty: "group", n: 0 });

export function keepPlane(options: PlaneOptions): KeptPlane {
  const { space, front, store, onEvent, lettingGoMs = LETTING_GO_MS } = options;
  const who = holderOf(options.run);
  const place = planeLease(space);
  let letGo: NodeJS.Timeout | undefined;
  const liveness = createLiveness({
    nc: front,
    space,
    random: randomBytes,
    verdict: async () => gradeLeases([await lookAtLease(store, place)], who.holder),
    onDropped: (why) => onEvent({ kind: "dropped", why }),
  });
  const duty = keepDuty({
    nc: store,
    place,
    who,
    onHeld: () => {
      clearTimeout(letGo);
      liveness.bind();
      onEvent({ kind: "bound" });
    },
    onLost: () => {
      onEvent({ kind: "lost" });
      clearTimeout(letGo);
      letGo = setTimeout(liveness.unbind, lettingGoMs);
    },
    onFailed: (cause) => onEvent({ kind: "failed", cause }),
  });
  return {
    disconnected: liveness.disconnected,
    stop: async () => {
      await duty.stop();
      clearTimeout(letGo);
      liveness.unbind();
    },
  };
}
