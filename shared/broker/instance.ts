/**
 * Which instance of a daemon this process is (decision 25).
 *
 * Several processes may serve one space from the same files. Each takes a lease on a number, and with it the instance
 * id of that number, so none is taken for the predecessor of another whose answers are stale (§13.2).
 *
 * Invariants
 * 1. Whoever takes a number after another has a higher epoch: what the former still says is stale, and is refused.
 * 2. A lease that is lost ends the opening: the space is opened anew, under an instance that is free.
 * 3. A broker that is away ends nothing: the row is asked again when it is back.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import { type Hold, LEASE_RENEW_MS, type LeaseHolder, countHeld, takeLease } from "./lease.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { MOST_INSTANCES, daemonInstance } from "../protocol/endpoint/instances.ts";

export type Instance = {
  readonly id: string;
  /** Processes that serve this space now, this one among them; one that was killed counts until its lease is over. */
  readonly peers: number;
  /** Resolves with the cause once it is another's. */
  readonly lost: Promise<CotalError>;
  /** Lets another have it at once. */
  readonly stop: () => Promise<void>;
};

/** How long a stop waits for a broker that is away. */
const STOP_MS = 1500;

/** `nc`: inside the store. `uid`: the lifecycle that the processes of this daemon share. */
export async function takeInstance(
  nc: NatsConnection,
  { space, service, uid }: { readonly space: string; readonly service: string; readonly uid: string },
  who: Pick<LeaseHolder, "holder" | "principal">,
): Promise<Instance> {
  const duty = { space, service, duty: "instance" };
  for (let n = 0; n < MOST_INSTANCES; n += 1) {
    const taken = await takeLease(nc, { ...duty, n }, who);
    if (taken.kind !== "held") continue;
    const peers = await countHeld(nc, duty, MOST_INSTANCES);
    return { ...keep(daemonInstance(uid, n), taken.hold), peers };
  }
  throw new CotalError(ErrorCode.ResourceExhausted, `${MOST_INSTANCES} processes serve this space already`, {
    outcome: Outcome.NotExecuted,
    next: "run fewer of them; one that was killed leaves its place within fifteen seconds",
  });
}

function keep(id: string, hold: Hold): Omit<Instance, "peers"> {
  const stopping = new AbortController();
  const { promise: lost, resolve: lose } = Promise.withResolvers<CotalError>();
  const renewing = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      const isHeld = await hold.renew(true).catch(() => hold.isHeld());
      if (!isHeld) return lose(taken());
      await sleep(LEASE_RENEW_MS, undefined, { signal: stopping.signal }).catch(() => undefined);
    }
  };
  const running = renewing();
  const release = async (): Promise<void> => {
    await running;
    await hold.release().catch(() => undefined);
  };
  return {
    id,
    lost,
    stop: async () => {
      stopping.abort();
      await Promise.race([release(), sleep(STOP_MS, undefined, { ref: false })]);
    },
  };
}

function taken(): CotalError {
  return new CotalError(ErrorCode.Expired, "another process has taken this instance over", {
    outcome: Outcome.NotExecuted,
    next: "nothing to do: the space is opened anew, under an instance that is free",
  });
}
