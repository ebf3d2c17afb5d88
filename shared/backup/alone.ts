/** Is this connection the only one of its account? Whoever else were there could write to what is being restored. */
import { setTimeout as sleep } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import { z } from "zod";
import { sys } from "../protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";

const Answer = z.looseObject({ data: z.looseObject({ total: z.number() }) });
const WAIT_MS = 3000;
/** Servers of a cluster answer one after another. */
const QUIET_MS = 500;
/** A connection that has just ended is listed for a moment. */
const PATIENCE_MS = 5000;

export async function assertAlone(nc: NatsConnection): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS;
  let others = await othersOf(nc);
  while (others !== 0 && performance.now() < deadline) {
    await sleep(QUIET_MS);
    others = await othersOf(nc);
  }
  if (others === 0) return;
  throw new CotalError(
    ErrorCode.FailedPrecondition,
    others < 0
      ? "the broker does not say who is connected to this space"
      : `${others} more are connected to the store of this space`,
    { outcome: Outcome.NotExecuted, next: "stop every daemon of the space, then run the same command again" },
  );
}

/** Connections of the account beside this one; -1 if no server tells. */
async function othersOf(nc: NatsConnection): Promise<number> {
  const answers = await nc.requestMany(sys.ownConnections, JSON.stringify({ limit: 1 }), {
    strategy: "stall",
    maxWait: WAIT_MS,
    stall: QUIET_MS,
  });
  let others = -1;
  for await (const answer of answers) others += Answer.parse(answer.json()).data.total;
  return others;
}
